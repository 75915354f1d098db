package machine

import (
	"bytes"
	"slices"
	"strings"
)

// EventRefused is the event of a verb that was refused.
const EventRefused = "operator.refused"

// EventOverruled is the event of a step that an operator skipped or did by hand, and that its participant has done and cannot undo.
const EventOverruled = "operator.overruled"

// verb handles an operator's verb. What cannot be done is refused, with the reason in Output.Refused.
func (t *transition) verb(v *Verb) {
	switch {
	case v.Rev > 0 && v.Rev != t.in.Rev:
		t.refuse("the instance has moved on from revision %d to %d; look again and decide on that", v.Rev, t.in.Rev)
	case t.s.Ended != "":
		t.refuse("the instance is %s", t.s.Ended)
	case t.s.Paused && (v.Kind == VerbRetry || v.Kind == VerbSkip || v.Kind == VerbDone):
		t.refuse("the instance is paused, so nothing can be sent; resume it first")
	default:
		t.whole(v)
	}
	t.record(v)
}

// whole handles the verbs about the whole instance, and passes on those about a step.
func (t *transition) whole(v *Verb) {
	switch v.Kind {
	case VerbCancel:
		t.turnBy(v, CauseCancelled, false)
	case VerbCompensate:
		t.turnBy(v, CauseOperator, v.Force)
	case VerbComplete:
		if t.s.Status() != Stuck || t.s.Back {
			t.refuse("only an instance that is stuck in direction forward can be completed by hand; it is %s", t.s.Status())
			return
		}
		t.endBy(v, Completed)
	case VerbAbandon:
		t.endBy(v, Abandoned)
	case VerbPause:
		t.pause()
	case VerbResume:
		t.resume()
	case VerbEdit:
		t.patch(v)
	case VerbRetry:
		t.retry(v)
	default:
		t.stepVerb(v)
	}
}

// turnBy turns back for an operator or the owner.
func (t *transition) turnBy(v *Verb, kind CauseKind, force bool) {
	switch {
	case t.s.Back:
		t.refuse("the instance is compensating already")
	case t.passed() && !force:
		t.refuse("the instance is past its pivot")
	default:
		t.s.Forced = force
		t.turn(Cause{Kind: kind, Reason: v.Reason})
	}
}

// endBy ends the instance on an operator's word, and records what is open.
func (t *transition) endBy(v *Verb, status Status) {
	if open := t.s.Owed(); len(open) > 0 && status == Abandoned {
		t.event("obligations open", "", strings.Join(open, ", "))
	}
	if left := t.s.Waiting(); len(left) > 0 {
		t.event("steps not finished", "", strings.Join(left, ", "))
	}
	t.s.Cause = &Cause{Kind: CauseOperator, Reason: v.Reason}
	t.end(status, nil)
}

// patch changes the data. The original is in the history.
func (t *transition) patch(v *Verb) bool {
	if !bytes.HasPrefix(bytes.TrimSpace(v.Patch), []byte("{")) {
		t.refuse("the patch is not a JSON object")
		return false
	}
	changed, err := MergePatch(t.json, v.Patch)
	var data any
	if err == nil {
		data, err = t.d.Decode(changed)
	}
	if err == nil {
		err = t.keep(changed)
	}
	if err != nil {
		t.refuse("the data after the change is not that of saga %s v%d: %v", t.d.Name, t.d.Version, err)
		return false
	}
	t.data = data
	return true
}

// retry tries again what is stuck: the step of the verb, or all.
func (t *transition) retry(v *Verb) {
	found := false
	for _, path := range t.s.paths(func(st *StepState) bool { return st.Status == StepStuck }) {
		if v.Step != "" && v.Step != path {
			continue
		}
		found = true
		t.retryStep(path)
	}
	if !found {
		t.refuse("nothing is stuck%s", ofStep(v.Step))
	}
}

func ofStep(path string) string {
	if path == "" {
		return ""
	}
	return " at step " + path
}

func (t *transition) retryStep(path string) {
	s, st := t.d.Step(path), t.s.Steps[path]
	why := st.Reason
	st.Reason = ""
	switch {
	case path == endPath || s == nil:
		delete(t.s.Steps, path)
	case st.Owed && (t.s.Back || st.Skip || st.ByHand):
		st.Status = StepDone // not undone yet
		if st.ByHand && why != undoByHand {
			st.Status = StepUnknown // what the participant did is not undone yet
		}
		t.sendUndo(s, st)
	case st.Owed: // the same step for its participant, whose record says what happened
		st.Status, st.Attempt, st.Asked = StepWaiting, 0, t.age
		t.send(s, st)
	case st.SentAs == "" && s.leaf(), !s.leaf():
		delete(t.s.Steps, path) // from its condition on
	default:
		t.start(s, st)
	}
}

// stepVerb handles the verbs about one step.
func (t *transition) stepVerb(v *Verb) {
	s, st := t.d.Step(v.Step), t.s.Steps[v.Step]
	if s == nil || st == nil || !s.leaf() {
		t.refuse("there is no step %q that was started; name one that does something itself", v.Step)
		return
	}
	open := st.Status == StepWaiting || st.Status == StepUnknown || st.Status == StepStuck
	switch v.Kind {
	case VerbDone:
		if t.s.Back || !open || st.Skip || st.ByHand {
			t.refuse("step %s is %s and the instance is %s; only a step that is waited for can be done by hand", v.Step, st.Status, t.s.Status())
			return
		}
		if len(v.Patch) == 0 || t.patch(v) {
			t.doneByHand(s, st)
		}
	case VerbUndone:
		if !t.s.Back || !st.Owed || st.Status != StepUndoing && st.Status != StepStuck {
			t.refuse("step %s is %s and the instance is %s; only a step that is being undone can be undone by hand", v.Step, st.Status, t.s.Status())
			return
		}
		st.Status, st.Owed, st.Due = StepUndone, false, 0
		t.event("step.undone", v.Step, "by hand")
	case VerbSkip:
		t.skip(s, st, open)
	case VerbAnswer:
		t.answer(s, st, v)
	default:
		t.refuse("%q is not a verb", v.Kind)
	}
}

// doneByHand records that an operator did a step. If its command was sent, its undo is confirmed first: otherwise it could be done
// twice.
func (t *transition) doneByHand(s *Step, st *StepState) {
	st.ByHand = true
	if st.Owed {
		t.sendUndo(s, st)
		return
	}
	st.Owed = s.owes()
	t.finish(s, st)
}

// skip continues without a step; back, it releases the step's obligation.
func (t *transition) skip(s *Step, st *StepState, open bool) {
	switch {
	case t.s.Back && st.Owed && st.Status == StepStuck:
		st.Status, st.Owed = StepReleased, false
		t.event("step.released", s.Path, st.Reason)
	case t.s.Back:
		t.refuse("step %s is %s; only one whose undo is stuck can be released", s.Path, st.Status)
	case !open:
		t.refuse("step %s is %s; only one that is waited for can be skipped", s.Path, st.Status)
	case st.Owed: // its command was sent, so its undo is confirmed first
		st.Skip = true
		t.sendUndo(s, st)
	default:
		st.Status, st.Due = StepSkipped, 0
		t.event("step.skipped", s.Path, "by an operator")
	}
}

// answer handles a person's answer to an Ask.
func (t *transition) answer(s *Step, st *StepState, v *Verb) {
	switch {
	case s.Kind != Ask:
		t.refuse("step %s asks nothing", s.Path)
	case t.s.Back || st.Status != StepWaiting:
		t.refuse("step %s is %s: the question is closed", s.Path, st.Status)
	case !slices.Contains(s.Options, v.Option):
		t.refuse("%q is not an option of step %s; choose one of %s", v.Option, s.Path, strings.Join(s.Options, ", "))
	default:
		t.event("answer", s.Path, v.Option)
		var err error
		if s.Answered != nil && !t.change(s, st, "Answered", func() {
			err = s.Answered(t.data, Answer{Option: v.Option, Actor: v.Actor, Reason: v.Reason})
		}) {
			return
		}
		if err != nil {
			t.refused(s, st, RefusalOf(err))
			return
		}
		t.finish(s, st)
	}
}
