package machine

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/postrider/postrider"
)

// advance is what transitions of definitions and of contracts have in common.
type advance struct {
	p   Policy
	in  *Instance
	s   *State // of in
	age time.Duration
	out Output
}

func (t *advance) event(what, step, note string) {
	t.out.Events = append(t.out.Events, Event{What: what, Step: step, Note: note})
}

// stuck leaves a step to an operator.
func (t *advance) stuck(path string, st *StepState, reason string) {
	st.Status, st.Due, st.Reason = StepStuck, 0, reason
	t.event("step.stuck", path, reason)
}

// ended records the end. Nothing is due any more, nor paused: if the instance is turned back later, it begins at once.
func (t *advance) ended(status Status) {
	t.s.Ended, t.s.Deadline, t.s.Timer.At, t.s.Paused, t.s.PausedAt = status, 0, 0, false, 0
	for _, st := range t.s.Steps {
		st.Due = 0
	}
	t.event(string(status), "", "")
}

// check says whether a message that the definition makes can be published.
func (t *advance) check(m *postrider.Message) error {
	if t.p.Check == nil {
		return nil
	}
	return t.p.Check(m)
}

// setTimer sets the instance's timer if it has none, or one that fires too late. age is that of the input: below zero if the clock was set
// back, and then the timer waits until the clock has caught up, instead of firing again and again before anything is due.
func (t *advance) setTimer(age time.Duration) {
	if t.s.Paused || t.s.Ended != "" {
		return
	}
	next := t.s.next()
	if next == 0 || t.s.Timer.At > 0 && t.s.Timer.At <= next {
		return
	}
	t.s.Timer = Timer{ID: t.s.Timer.ID + 1, At: next}
	t.out.Timer = &TimerSet{ID: t.s.Timer.ID, After: max(next-age, time.Millisecond)}
}

// next is the earliest of the deadline and the times of the steps, 0 if there is none.
func (s *State) next() time.Duration {
	next := s.Deadline
	for _, st := range s.Steps {
		if st.Due > 0 && (next == 0 || st.Due < next) {
			next = st.Due
		}
	}
	return next
}

// undoDue is when an undo that is sent now has had its time. If another attempt follows, that is after its timeout and a backoff: steps that
// were started together, and time out together, are undone together once, and not again and again.
func (t *advance) undoDue(path string, attempt int) time.Duration {
	due := t.clock() + t.p.UndoTimeout
	if attempt < t.p.UndoAttempts {
		due += t.backoff(path, attempt)
	}
	return due
}

// backoff is the wait after a number of attempts: random between half of and the whole of BackoffBase·2^(attempts−1), at most
// BackoffMax. The random number is a hash, so that Advance stays a function of its arguments.
func (t *advance) backoff(path string, attempts int) time.Duration {
	wait := t.p.BackoffMax
	if shift := attempts - 1; shift < 30 {
		wait = min(wait, t.p.BackoffBase<<max(shift, 0))
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", t.in.Run, path, attempts)
	return wait/2 + time.Duration(h.Sum64()%uint64(wait/2+1))
}
