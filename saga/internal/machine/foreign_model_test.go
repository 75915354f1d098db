package machine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// stranger is a participant without records. It does each message once, in any order, and answers redelivered ones again; its answers
// about a step arrive in the order of what it did.
type stranger struct {
	random  *rand.Rand
	flight  []Command
	did     map[string]Outcome      // by message: what it answered
	effects map[string]map[int]bool // of a step, by attempt
	replies map[string][]Reply      // by step
	keeps   bool                    // it cannot undo a charge
	history []string
}

// do handles a message that is in flight, and sometimes leaves it to be redelivered.
func (s *stranger) do() {
	i := s.random.IntN(len(s.flight))
	c := s.flight[i]
	if s.random.IntN(4) > 0 {
		s.flight = append(s.flight[:i:i], s.flight[i+1:]...)
	}
	if s.random.IntN(8) == 0 { // its handler has failed
		s.history = append(s.history, fmt.Sprintf("%s %v %d fails", c.SentAs, c.Undo, c.Attempt))
		return
	}
	message := fmt.Sprint(c.SentAs, c.Undo, c.Attempt)
	outcome, repeated := s.did[message]
	switch {
	case repeated:
	case c.Undo && s.keeps && c.SentAs == "charge" && len(s.effects[c.SentAs]) > 0:
		outcome = OutcomeCannotUndo
	case c.Undo:
		outcome = OutcomeUndone
		clear(s.effects[c.SentAs])
	case s.random.IntN(4) == 0:
		outcome = OutcomeRefused
	default:
		outcome = OutcomeDone
		if s.effects[c.SentAs] == nil {
			s.effects[c.SentAs] = make(map[int]bool)
		}
		s.effects[c.SentAs][c.Attempt] = true
	}
	s.did[message] = outcome
	s.replies[c.SentAs] = append(s.replies[c.SentAs], *foreign(c.SentAs, outcome, c.Attempt).Reply)
	s.history = append(s.history, fmt.Sprintf("%s %v %d: %s", c.SentAs, c.Undo, c.Attempt, outcome))
}

// answer takes the next answer about a step.
func (s *stranger) answer(steps []string) *Reply {
	for _, i := range s.random.Perm(len(steps)) {
		if waiting := s.replies[steps[i]]; len(waiting) > 0 {
			s.replies[steps[i]] = waiting[1:]
			return &waiting[0]
		}
	}
	return nil
}

// strange is a participant with a saga of two steps, of which the second may be a pivot that it cannot undo.
func strange(t *testing.T, seed uint64) (*stranger, *Definition) {
	t.Helper()
	s := &stranger{
		random: rand.New(rand.NewPCG(seed, 0)), did: make(map[string]Outcome), effects: make(map[string]map[int]bool), replies: make(map[string][]Reply),
	}
	reserve, charge := requested("reserve"), requested("charge")
	reserve.Attempts, charge.Attempts, charge.Pivot = 2, 2, s.random.IntN(2) == 0
	charge.NoUndo = charge.Pivot && s.random.IntN(2) == 0
	s.keeps = charge.NoUndo
	return s, saga(t, reserve, charge)
}

// input is what the instance is told next: an answer, that an operator cancels it, or its timer; nil if it is nothing.
func (s *stranger) input(in Instance, age *time.Duration) *Input {
	if s.random.IntN(3) > 0 {
		if r := s.answer([]string{"reserve", "charge"}); r != nil {
			return &Input{Age: *age, Reply: r}
		}
	}
	switch {
	case len(s.flight) > 0 && s.random.IntN(8) > 0:
		s.do()
		return nil
	case s.random.IntN(8) == 0: // refused, unless the instance is running
		return &Input{Age: *age, Verb: says(VerbCancel, "").Verb}
	case in.State.Timer.At == 0:
		return nil
	default:
		*age = max(*age, in.State.Timer.At)
		return &Input{Age: *age, Timer: &Fired{ID: in.State.Timer.ID}}
	}
}

// idle says whether nothing is left to do or to tell.
func (s *stranger) idle() bool {
	return len(s.flight)+len(s.replies["reserve"])+len(s.replies["charge"]) == 0
}

// TestParticipantWithoutRecords: whatever is late, repeated, lost or overtakes, nothing is left of a saga that is compensated, and each step of
// one that is completed was done. One is stuck only if a pivot that cannot be undone was done after its undo had been confirmed.
func TestParticipantWithoutRecords(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.UndoAttempts = 1000
	ends := make(map[Status]int)
	for seed := range uint64(20_000) {
		s, d := strange(t, seed)
		in, out, err := d.Advance(p, Instance{ID: "42", Run: "run", Data: []byte("{}"), State: State{Token: "token"}}, Input{Start: &Start{}})
		s.flight = out.Commands
		var age time.Duration
		for n := 0; err == nil && n < 10_000 && (!s.idle() || in.State.Ended == "" && in.State.Status() != Stuck); n++ {
			input := s.input(in, &age)
			if input == nil {
				continue
			}
			if in, out, err = d.Advance(p, in, *input); err == nil {
				s.flight = append(s.flight, out.Commands...)
			}
		}
		status := in.State.Status()
		ends[status]++
		reserved, charged := len(s.effects["reserve"]) > 0, len(s.effects["charge"]) > 0
		if err != nil || status == Compensated && (reserved || charged) || status == Completed && !(reserved && charged) ||
			status == Stuck && !(s.keeps && charged) || status == Running || status == Compensating {
			t.Fatalf("seed %d: the instance is %s (%v), reserved %t, charged %t, after %q", seed, status, err, reserved, charged, s.history)
		}
	}
	if ends[Completed] < 1000 || ends[Compensated] < 1000 || ends[Stuck] == 0 {
		t.Errorf("the instances ended as %v, too few of a kind", ends)
	}
}
