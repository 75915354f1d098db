package machine

import (
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider"
)

// undo undoes a sequence of steps, the last first, as far as it goes. It reports whether no obligation of theirs is open.
func (t *transition) undo(steps []*Step) bool {
	for _, s := range slices.Backward(steps) {
		if !t.undoStep(s) {
			return false
		}
	}
	return true
}

// undoStep undoes a step if it has an open obligation. Branches of a Parallel are undone together.
func (t *transition) undoStep(s *Step) bool {
	st := t.s.Steps[s.Path]
	switch {
	case st == nil:
		return true
	case s.Kind == Choose:
		return t.undo(s.chosen(st.Case))
	case s.Kind == Parallel:
		all := true
		for _, b := range slices.Backward(s.Branches) {
			all = t.undoStep(b) && all
		}
		return all
	case s.Kind == Each:
		return t.undoItems(s)
	case !st.Owed:
		if st.Status == StepWaiting || st.Status == StepStuck || st.Status == StepUnknown { // it has done nothing and now will not
			st.Status = StepSkipped
			t.event("step.skipped", s.Path, "turned back")
		}
		return true
	case st.Status != StepUndoing && st.Status != StepStuck:
		t.sendUndo(s, st)
	}
	return false
}

// sendUndo sends the undo of a step: the next attempt.
func (t *transition) sendUndo(s *Step, st *StepState) {
	switch {
	case st.ByHand && st.Status == StepDone:
		t.stuck(s.Path, st, undoByHand)
		return
	case s.Kind == Local && !s.Undoes:
		t.stuck(s.Path, st, "the step has no Undo")
		return
	}
	if st.Status != StepUndoing {
		st.Status, st.Attempt = StepUndoing, 0
	}
	st.Attempt++
	st.Due = t.undoDue(s.Path, st.Attempt)
	c := Command{
		Path: s.Path, SentAs: st.SentAs, Undo: true, Local: s.Kind == Local, Attempt: st.Before + st.Attempt, Seen: st.Seen, Since: st.Since,
	}
	switch s.Kind {
	case Child: // it answers at its end, however long that takes
		st.Due, c.Child = 0, &ChildStart{ID: st.Child}
	case Request:
		c.Message = &postrider.Message{Type: UndoType(st.Message), Topic: st.Topic, Key: st.Key}
	}
	t.out.Commands = append(t.out.Commands, c)
	t.event("undo.sent", st.SentAs, "attempt "+strconv.Itoa(st.Attempt))
}

// undoAgain plans another attempt of an undo, or leaves the step to an operator.
func (t *transition) undoAgain(s *Step, st *StepState, after time.Duration, why string) {
	if st.Attempt >= t.p.UndoAttempts {
		t.stuck(s.Path, st, "undo failed "+strconv.Itoa(st.Attempt)+" times: "+why)
		return
	}
	st.Due = t.clock() + after
}
