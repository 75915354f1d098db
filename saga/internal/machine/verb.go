package machine

import (
	"fmt"
	"strings"
	"time"
)

// EventRefused is the event of a verb that was refused.
const EventRefused = "operator.refused"

// EventOverruled is the event of a step that an operator skipped or did by hand, and that its participant has done and cannot undo.
const EventOverruled = "operator.overruled"

// operated is an instance that operators decide about: what a definition and a contract each do in their own way.
type operated interface {
	// forbids says why a verb does not apply to such an instance as it is, "" if it may.
	forbids(v *Verb) string
	passed() bool
	turn(c Cause)
	finally(status Status)
	edit(v *Verb)
	// retryStep tries again a step that is stuck. stepVerb handles Done, Skip and Answer about a step that has a state.
	retryStep(path string)
	stepVerb(v *Verb, st *StepState)
}

// operate handles an operator's verb. What cannot be done is refused, with the reason in Output.Refused.
func (t *advance) operate(o operated, v *Verb) {
	switch why := o.forbids(v); {
	case v.Rev > 0 && v.Rev != t.in.Rev:
		t.refuse(movedOn, v.Rev, t.in.Rev)
	case why != "":
		t.out.Refused = why
	case t.s.Paused && (v.Kind == VerbRetry || v.Kind == VerbSkip || v.Kind == VerbDone):
		t.refuse("the instance is paused, so nothing can be sent; resume it first")
	default:
		t.decide(o, v)
	}
	t.record(v)
}

// movedOn is why a verb is refused that was decided on an older revision.
const movedOn = "the instance has moved on from revision %d to %d; look again and decide on that"

func (t *advance) decide(o operated, v *Verb) {
	switch v.Kind {
	case VerbCancel:
		t.turnBy(o, v, CauseCancelled, false)
	case VerbCompensate:
		t.turnBy(o, v, CauseOperator, v.Force)
	case VerbComplete:
		if t.s.Status() != Stuck || t.s.Back {
			t.refuse("only an instance that is stuck in direction forward can be completed by hand; it is %s", t.s.Status())
			return
		}
		t.endBy(o, v, Completed)
	case VerbAbandon:
		t.endBy(o, v, Abandoned)
	case VerbPause:
		t.pause()
	case VerbResume:
		t.resume()
	case VerbEdit:
		o.edit(v)
	case VerbRetry:
		t.retry(o, v)
	case VerbMigrate:
		t.event("migrated", "", fmt.Sprintf("from version %d to %d", v.From.Version, v.To)) // see Definition.migrate
	case VerbDone, VerbUndone, VerbSkip, VerbAnswer:
		switch st := t.s.Steps[v.Step]; {
		case st == nil:
			t.refuse("there is no step %q that was started; name one that show lists", v.Step)
		case v.Kind == VerbUndone:
			t.undoneByHand(v.Step, st)
		default:
			o.stepVerb(v, st)
		}
	default:
		t.refuse("%q is not a verb", v.Kind)
	}
}

// turnBy turns back for an operator or the owner.
func (t *advance) turnBy(o operated, v *Verb, kind CauseKind, force bool) {
	switch {
	case t.s.Back:
		t.refuse("the instance is compensating already")
	case o.passed() && !force:
		t.refuse("the instance is past its pivot")
	default:
		t.s.Ended, t.s.Forced = "", force
		o.turn(Cause{Kind: kind, Reason: v.Reason})
	}
}

// endBy ends the instance on an operator's word, and records what is open.
func (t *advance) endBy(o operated, v *Verb, status Status) {
	if open := t.s.Owed(); len(open) > 0 && status == Abandoned {
		t.event("obligations open", "", strings.Join(open, ", "))
	}
	if left := t.s.Waiting(); len(left) > 0 {
		t.event("steps not finished", "", strings.Join(left, ", "))
	}
	t.s.Cause = &Cause{Kind: CauseOperator, Reason: v.Reason}
	o.finally(status)
}

// retry tries again what is stuck: the step of the verb, or all.
func (t *advance) retry(o operated, v *Verb) {
	found := false
	for _, path := range t.s.paths(func(st *StepState) bool { return st.Status == StepStuck }) {
		if v.Step == "" || v.Step == path {
			found = true
			o.retryStep(path)
		}
	}
	switch {
	case found:
	case v.Step == "":
		t.refuse("nothing is stuck")
	default:
		t.refuse("nothing is stuck at step %s", v.Step)
	}
}

// undoneByHand records that an operator undid a step.
func (t *advance) undoneByHand(path string, st *StepState) {
	if !t.s.Back || !st.Owed || st.Status != StepUndoing && st.Status != StepStuck {
		t.refuse("step %s is %s and the instance is %s; only a step that is being undone can be undone by hand", path, st.Status, t.s.Status())
		return
	}
	st.Status, st.Owed, st.Due, st.Attempt = StepUndone, false, 0, 0
	t.event("step.undone", path, "by hand")
}

// skip continues without a step that is open; if it may happen yet, its undo is confirmed first. Back, it releases the step's obligation.
func (t *advance) skip(path string, st *StepState, open bool, sendUndo func()) {
	switch {
	case t.s.Back && st.Owed && st.Status == StepStuck:
		st.Status, st.Owed = StepReleased, false
		t.event("step.released", path, st.Reason)
	case t.s.Back:
		t.refuse("step %s is %s; only one whose undo is stuck can be released", path, st.Status)
	case !open:
		t.refuse("step %s is %s; only one that is waited for can be skipped", path, st.Status)
	case st.Owed:
		st.Skip = true
		sendUndo()
	default:
		st.Status, st.Due = StepSkipped, 0
		t.event("step.skipped", path, "by an operator")
	}
}

func (t *advance) refuse(format string, args ...any) { t.out.Refused = fmt.Sprintf(format, args...) }

// record records an operator's verb, and why it was refused.
func (t *advance) record(v *Verb) {
	what := "operator." + string(v.Kind)
	note := v.Reason
	if t.out.Refused != "" {
		what, note = EventRefused, string(v.Kind)+": "+t.out.Refused
		t.out.Events = nil
	}
	t.out.Events = append([]Event{{What: what, Step: v.Step, Note: note}}, t.out.Events...)
}

// pause stops what is sent and the time of steps and deadline.
func (t *advance) pause() {
	if t.s.Paused {
		t.refuse("the instance is paused")
		return
	}
	t.s.Paused, t.s.PausedAt = true, t.age
}

// clock is the age by which times are set: it stands still while the instance is paused, since resume adds the length of the pause to all.
func (t *advance) clock() time.Duration {
	if t.s.Paused {
		return t.s.PausedAt
	}
	return t.age
}

// resume continues a paused instance: all its times move by the length of the pause.
func (t *advance) resume() {
	if !t.s.Paused {
		t.refuse("the instance is not paused")
		return
	}
	by := max(t.age-t.s.PausedAt, 0) // the clock may have been set back
	for _, st := range t.s.Steps {
		if st.Due > 0 {
			st.Due += by
		}
		st.Asked += by
	}
	if t.s.Deadline > 0 {
		t.s.Deadline += by
	}
	t.s.Paused, t.s.PausedAt = false, 0
}
