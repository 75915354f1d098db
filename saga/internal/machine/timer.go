package machine

import "time"

// timer handles the timer of the instance: it does what is due.
func (t *transition) timer(f *Fired) {
	if f.ID != t.s.Timer.ID || t.s.Timer.At == 0 || t.s.Ended != "" {
		t.out.Ignored = true
		return
	}
	t.s.Timer.At = 0
	t.event("timer", "", "")
	if t.s.Paused {
		return
	}
	for _, s := range t.d.order {
		st := t.s.Steps[s.Path]
		if st != nil && st.Due > 0 && st.Due <= t.age {
			st.Due = 0
			t.due(s, st)
		}
	}
	if t.s.Deadline > 0 && t.s.Deadline <= t.age && !t.s.Back {
		t.deadline()
	}
}

// deadline handles the deadline of an instance, before its pivot by turning back.
func (t *transition) deadline() {
	t.s.Deadline = 0
	if t.passed() {
		t.event("deadline", "", "the pivot is done, so the instance continues")
		return
	}
	t.turn(Cause{Kind: CauseTimedOut, Reason: "deadline"})
}

// due handles the end of a step's time.
func (t *transition) due(s *Step, st *StepState) {
	switch {
	case st.Status == StepUndoing:
		t.undoTimedOut(s, st)
	case t.s.Back: // turn has left no other
	case s.Kind == Local && st.Attempt < t.attempts(s): // it failed before, or its message was dead-lettered
		t.send(s, st)
	case s.Kind == Local:
		t.failed(s, st, Refusal{Reason: "failed", Text: "it was not run in time"})
	case s.Kind == Request:
		t.unanswered(s, st)
	default:
		t.unattended(s, st)
	}
}

// undoTimedOut sends an undo again.
func (t *transition) undoTimedOut(s *Step, st *StepState) {
	if st.Attempt >= t.p.UndoAttempts {
		t.undoAgain(s, st, 0, "no answer")
		return
	}
	t.sendUndo(s, st)
}

// unanswered handles a request that was not answered in time.
func (t *transition) unanswered(s *Step, st *StepState) {
	t.event("timed out", st.SentAs, "")
	switch {
	case st.Status == StepWaiting && st.Attempt < max(s.Attempts, 1):
		t.send(s, st)
	case !t.passed():
		st.Status = StepUnknown
		t.turn(Cause{Kind: CauseTimedOut, Step: s.Path})
	case t.age-st.Asked >= t.p.StuckAfter:
		t.stuck(s.Path, st, "no answer, and the pivot is done")
	default:
		st.Status = StepUnknown
		t.send(s, st)
	}
}

// unattended handles an Await or Ask whose time is up.
func (t *transition) unattended(s *Step, st *StepState) {
	t.event("timed out", s.Path, "")
	switch {
	case s.TimedOut != nil:
		if t.change(s, st, "TimedOut", func(data any) { s.TimedOut(data) }) {
			t.finish(s, st)
		}
	case t.passed():
		t.stuck(s.Path, st, "its time is up, and the pivot is done")
	default:
		t.turn(Cause{Kind: CauseTimedOut, Step: s.Path})
	}
}

// attempts is how often a local step is run.
func (t *transition) attempts(s *Step) int {
	if s.Attempts > 0 {
		return s.Attempts
	}
	return t.p.LocalAttempts
}

// timeout is the time for an answer to a request.
func (t *transition) timeout(s *Step) time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return t.p.StepTimeout
}
