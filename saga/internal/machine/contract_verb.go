package machine

import "strings"

// verb handles an operator's verb about an instance that is tracked.
func (t *tracking) verb(v *Verb) {
	switch {
	case v.Rev > 0 && v.Rev != t.in.Rev:
		t.refuse("the instance has moved on from revision %d to %d; look again and decide on that", v.Rev, t.in.Rev)
	case v.Kind == VerbEdit || v.Kind == VerbAnswer:
		t.refuse("saga %s is tracked by a contract, which has no data of its own and asks nobody: %s is for sagas with a definition", t.c.Name, v.Kind)
	case len(v.Patch) > 0:
		t.refuse("saga %s is tracked by a contract, which has no data of its own to change", t.c.Name)
	case t.s.Ended != "" && (v.Kind != VerbCancel || t.s.Ended != Completed):
		t.refuse("the instance is %s", t.s.Ended)
	case t.s.Paused && (v.Kind == VerbRetry || v.Kind == VerbSkip || v.Kind == VerbDone):
		t.refuse("the instance is paused, so nothing can be sent; resume it first")
	default:
		t.whole(v)
	}
	t.record(v)
}

// whole handles the verbs about the whole instance, and passes on those about an event.
func (t *tracking) whole(v *Verb) {
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
	case VerbRetry:
		t.retry(v)
	default:
		t.eventVerb(v)
	}
}

// turnBy turns back for an operator or the owner.
func (t *tracking) turnBy(v *Verb, kind CauseKind, force bool) {
	switch {
	case t.s.Ended == Completed && t.c.CancelWithin == 0:
		t.refuse("the instance is %s, and contract %s v%d has no CancelWithin", t.s.Ended, t.c.Name, t.c.Version)
	case t.s.Back:
		t.refuse("the instance is compensating already")
	case t.passed() && !force:
		t.refuse("the instance is past its pivot")
	case t.s.Ended == Completed && !t.cancellable():
		t.refuse("the instance was completed more than %s ago", t.c.CancelWithin)
	default:
		t.s.Ended, t.s.Forced = "", force
		t.turn(Cause{Kind: kind, Reason: v.Reason})
	}
}

// endBy ends the instance on an operator's word, and records what is open.
func (t *tracking) endBy(v *Verb, status Status) {
	if open := t.s.Owed(); len(open) > 0 && status == Abandoned {
		t.event("obligations open", "", strings.Join(open, ", "))
	}
	if left := t.s.Waiting(); len(left) > 0 {
		t.event("steps not finished", "", strings.Join(left, ", "))
	}
	t.s.Cause = &Cause{Kind: CauseOperator, Reason: v.Reason}
	t.end(status)
}

// retry tries again what is stuck: the event of the verb, or all.
func (t *tracking) retry(v *Verb) {
	found := false
	for _, path := range t.s.paths(func(st *StepState) bool { return st.Status == StepStuck }) {
		if v.Step != "" && v.Step != path {
			continue
		}
		found = true
		e, st := t.c.Event(path), t.s.Steps[path]
		st.Attempt, st.Reason = 0, ""
		switch {
		case t.s.Back && st.Seen:
			st.Status = StepDone // not undone yet
		case t.s.Back:
			st.Status = StepUnknown
		case st.Skip:
			t.sendUndo(e, path, st)
		default:
			st.Failed = false
			t.awaitEvent(e, path)
		}
	}
	if !found {
		t.refuse("nothing is stuck%s", ofStep(v.Step))
	}
}

// eventVerb handles the verbs about one event.
func (t *tracking) eventVerb(v *Verb) {
	e, st := t.c.Event(v.Step), t.s.Steps[v.Step]
	if e == nil || st == nil {
		t.refuse("nothing is known of an event %q; name one that show lists", v.Step)
		return
	}
	awaited := !t.s.Back && !st.Skip && (st.Status == StepWaiting || st.Status == StepStuck)
	switch v.Kind {
	case VerbDone:
		t.doneByHand(e, v.Step, st, awaited)
	case VerbUndone:
		if !t.s.Back || !st.Owed || st.Status != StepUndoing && st.Status != StepStuck {
			t.refuse("event %s is %s and the instance is %s; only one that is being undone can be undone by hand", v.Step, st.Status, t.s.Status())
			return
		}
		st.Status, st.Owed, st.Due, st.Reason = StepUndone, false, 0, ""
		t.event("step.undone", v.Step, "by hand")
	case VerbSkip:
		t.skip(e, v.Step, st, awaited)
	default:
		t.refuse("%q is not a verb", v.Kind)
	}
}

// doneByHand records that an event has happened although its service did not publish it.
func (t *tracking) doneByHand(e *Expected, path string, st *StepState, awaited bool) {
	switch {
	case awaited:
		st.Status, st.Owed, st.Due, st.Reason, st.ByHand, st.Failed = StepDone, t.c.undoable(e), 0, "", true, false
		t.event("step.done", path, "by hand")
	case t.s.Back && e.Pivot && st.Owed && !st.Seen && !t.s.Forced:
		st.ByHand = true
		t.event("step.done", path, "by hand")
		t.pivotHappened(e, path, st)
	default:
		t.refuse("event %s is %s and the instance is %s; only one that is waited for can be done by hand", path, st.Status, t.s.Status())
	}
}

// skip continues without an event; back, it releases the event's obligation.
func (t *tracking) skip(e *Expected, path string, st *StepState, awaited bool) {
	switch {
	case t.s.Back && st.Owed && st.Status == StepStuck:
		st.Status, st.Owed = StepReleased, false
		t.event("step.released", path, st.Reason)
	case t.s.Back:
		t.refuse("event %s is %s; only one whose undo is stuck can be released", path, st.Status)
	case !awaited:
		t.refuse("event %s is %s; only one that is waited for can be skipped", path, st.Status)
	case st.Owed: // it may happen yet, so its undo is confirmed first
		st.Skip, st.Attempt = true, 0
		t.sendUndo(e, path, st)
	default:
		st.Status, st.Due = StepSkipped, 0
		t.event("step.skipped", path, "by an operator")
	}
}
