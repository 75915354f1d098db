package sagatest

import (
	"fmt"

	"github.com/postrider/postrider/saga/internal/machine"
)

// check returns what is wrong with a state, "" if nothing is.
func (w *world) check(m *model) string {
	for key, r := range w.records {
		if n := r.done - r.undone; n < 0 || n > 1 {
			return fmt.Sprintf("step %s was done %d times and undone %d times", key, r.done, r.undone)
		}
	}
	s := &w.inst.State
	if why := w.checkAnswer(m); why != "" {
		return why
	}
	switch s.Ended {
	case machine.Completed:
		return w.checkCompleted(m)
	case machine.Compensated:
		return w.checkCompensated(m)
	}
	if m.d.Deadline > 0 && w.age > m.d.Deadline && s.Deadline > 0 && s.Deadline < w.age && !s.Back && !s.Paused && !w.passed(m) {
		return "the deadline is over and the instance has not turned back"
	}
	if s.Ended == "" && s.Status() != machine.Stuck && !s.Paused && !w.waits(m) {
		return "the instance waits for nothing: no message is in flight, and no timer is set"
	}
	return ""
}

// checkAnswer: the parent of an instance that has ended knows how, and is not told that what is done was undone.
func (w *world) checkAnswer(m *model) string {
	s := &w.inst.State
	if s.Parent == nil || s.Ended == "" {
		return ""
	}
	want := map[machine.Status]machine.Outcome{machine.Completed: machine.OutcomeDone, machine.Compensated: machine.OutcomeRefused}[s.Ended]
	if s.Parent.Undo {
		want = map[machine.Status]machine.Outcome{machine.Completed: machine.OutcomeCannotUndo, machine.Compensated: machine.OutcomeUndone}[s.Ended]
	}
	switch {
	case w.answered != want:
		return fmt.Sprintf("the instance is %s, and its parent was told %q instead of %q", s.Ended, w.answered, want)
	case want == machine.OutcomeCannotUndo && !w.passed(m):
		return "the parent was told that the instance cannot be undone, and no pivot has happened"
	}
	return ""
}

// checkCompleted: all steps happened once, except those that were skipped or refused.
func (w *world) checkCompleted(m *model) string {
	for _, s := range w.steps(m) {
		if s.Kind != machine.Request && s.Kind != machine.Local && s.Kind != machine.Child {
			continue
		}
		want, st := 0, w.inst.State.Steps[s.Path]
		if st != nil && st.Status == machine.StepDone {
			want = 1
		}
		if n := w.effect(s.Path); n != want {
			return fmt.Sprintf("the instance completed, and the effect of step %s happened %d times instead of %d", s.Path, n, want)
		}
	}
	return ""
}

// checkCompensated: nothing is left of any step, except of those that need no undo.
func (w *world) checkCompensated(m *model) string {
	for _, s := range w.steps(m) {
		if n := w.effect(s.Path); n != 0 && (!s.NoUndo || s.Pivot) {
			return fmt.Sprintf("the instance is compensated, and the effect of step %s happened %d times instead of 0", s.Path, n)
		}
	}
	return ""
}

// passed says whether a pivot has happened, whether or not the instance knows.
func (w *world) passed(m *model) bool {
	for _, s := range w.steps(m) {
		if s.Pivot && w.effect(s.Path) > 0 {
			return true
		}
	}
	return false
}

// waits says whether something in flight, or somebody, will move the instance.
func (w *world) waits(m *model) bool {
	for _, msg := range w.flight {
		if msg.kind != toTimer || msg.timer == w.inst.State.Timer.ID && w.inst.State.Timer.At > 0 {
			return true
		}
	}
	for _, s := range w.steps(m) {
		st := w.inst.State.Steps[s.Path]
		sent := s.Kind == machine.Await && w.sent[s.Message] > 0 // its signal does not come again
		if st != nil && st.Status == machine.StepWaiting && s.Timeout == machine.NoTimeout && !sent {
			return true
		}
	}
	return false
}
