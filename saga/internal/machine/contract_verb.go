package machine

import "fmt"

func (t *tracking) forbids(v *Verb) string {
	switch {
	case v.Kind == VerbMigrate:
		return fmt.Sprintf("saga %s is tracked by a contract, and continues with the version that it began with", t.c.Name)
	case v.Kind == VerbEdit || v.Kind == VerbAnswer:
		return fmt.Sprintf("saga %s is tracked by a contract, which has no data of its own and asks nobody: %s is for sagas with a definition", t.c.Name, v.Kind)
	case len(v.Patch) > 0:
		return fmt.Sprintf("saga %s is tracked by a contract, which has no data of its own to change", t.c.Name)
	case t.s.Ended == "" || v.Kind == VerbCancel && t.cancellable():
		return ""
	case t.s.Ended != Completed || v.Kind != VerbCancel:
		return "the instance is " + string(t.s.Ended)
	case t.c.CancelWithin == 0:
		return fmt.Sprintf("the instance is completed, and contract %s v%d has no CancelWithin", t.c.Name, t.c.Version)
	case t.passed():
		return "the instance is past its pivot"
	}
	return fmt.Sprintf("the instance was completed more than %s ago", t.c.CancelWithin)
}

func (t *tracking) finally(status Status) { t.end(status) }

func (t *tracking) edit(*Verb) {} // forbidden

// retryStep tries again the undo of an event, or waits again for the event.
func (t *tracking) retryStep(path string) {
	e, st := t.c.Event(path), t.s.Steps[path]
	st.Attempt, st.Reason = 0, ""
	switch {
	case t.s.Back && st.Seen:
		st.Status = StepDone // not undone yet
	case t.s.Back:
		st.Status = StepUnknown
	case st.Skip:
		t.sendUndo(e, path, st)
	case t.ofNoItem(e, path):
		delete(t.s.Steps, path)
	default:
		st.Seen, st.Failed = false, false
		t.awaitEvent(e, path)
	}
}

func (t *tracking) stepVerb(v *Verb, st *StepState) {
	e := t.c.Event(v.Step)
	if e == nil {
		t.refuse("%q is no event of contract %s v%d", v.Step, t.c.Name, t.c.Version)
		return
	}
	unconfirmed := !t.s.Back && st.Skip && st.Status == StepStuck // its service could not be asked, or did not know: now the operator's word holds
	awaited := unconfirmed || !t.s.Back && !st.Skip && (st.Status == StepWaiting || st.Status == StepStuck)
	if v.Kind == VerbDone {
		t.doneByHand(e, v.Step, st, awaited)
		return
	}
	if awaited && (unconfirmed || t.ofNoItem(e, v.Step)) { // nobody can be asked
		st.Owed = false
	}
	t.skip(v.Step, st, awaited, func() {
		st.Attempt = 0
		t.sendUndo(e, v.Step, st)
	})
}

// doneByHand records that an event has happened although its service did not publish it.
func (t *tracking) doneByHand(e *Expected, path string, st *StepState, awaited bool) {
	switch {
	case awaited:
		st.Status, st.Owed, st.Due, st.Reason, st.ByHand, st.Failed, st.Skip = StepDone, t.c.undoable(e), 0, "", true, false, false
		t.event("step.done", path, "by hand")
	case t.s.Back && e.Pivot && st.Owed && !t.s.Forced:
		st.ByHand = true
		t.event("step.done", path, "by hand")
		t.pivotHappened(e, path, st)
	default:
		t.refuse("event %s is %s and the instance is %s; only one that is waited for can be done by hand", path, st.Status, t.s.Status())
	}
}
