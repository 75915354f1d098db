package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// reply handles what a participant, or the engine for a local step, says about a step.
func (t *transition) reply(r *Reply) error {
	if r.Token != t.s.Token {
		return fmt.Errorf("%w: the reply to step %s does not have the token of instance %s", ErrInput, r.SentAs, t.in.ID)
	}
	s, st := t.sent(r.SentAs)
	if st == nil {
		t.late(r, "no step waits for it")
		return nil
	}
	if r.Outcome == OutcomeDone || r.Outcome == OutcomeCannotUndo {
		if err := t.try(s, r.Payload); err != nil {
			return t.unreadable(s, st, err)
		}
		st.Seen = true
	}
	if st.newEffect(r) && t.reopens(s, st) {
		return nil
	}
	if t.s.Ended != "" {
		t.late(r, "the instance has ended")
		return nil
	}
	if st.outdated(r) {
		t.late(r, "the undo was sent before the step had this effect")
		return nil
	}
	switch st.Status {
	case StepUndoing:
		t.undoReply(s, st, r)
	case StepStuck:
		if st.Owed && (r.Outcome == OutcomeUndone) == (t.s.Back || st.Skip || st.ByHand) {
			t.answered(s, st, r)
			return nil
		}
		t.late(r, "the step is stuck")
	case StepWaiting, StepUnknown:
		if r.Outcome == OutcomeUndone && !t.s.Back {
			t.late(r, "no undo was sent")
			return nil
		}
		t.answered(s, st, r)
	default:
		t.late(r, "the step is "+string(st.Status))
	}
	return nil
}

// EventLateEffect is the event of a step that was done after its undo had been confirmed, or after it was refused.
const EventLateEffect = "late.effect"

// newEffect says whether a reply is the first about an effect of a step. Each attempt of its command can have one at a participant without
// records, which may say so several times. If it does not say which attempt it is about, each reply counts as a new effect.
func (s *StepState) newEffect(r *Reply) bool {
	switch {
	case !r.Unrecorded || r.Outcome != OutcomeDone || slices.Contains(s.Effects, r.Attempt):
		return false
	case r.Attempt > 0:
		s.Effects = append(s.Effects, r.Attempt)
	}
	return true
}

// outdated says whether a reply of a participant without records confirms an undo that was sent before the effect that is to be undone.
func (s *StepState) outdated(r *Reply) bool {
	return r.Unrecorded && r.Outcome == OutcomeUndone && r.Attempt > 0 && r.Attempt <= s.Before
}

// reopens handles an effect of a step that was undone or refused: there is an obligation again, and another undo is sent. What an operator
// undid by hand has no attempts, and may be what the reply is about.
func (t *transition) reopens(s *Step, st *StepState) bool {
	back, forward := t.s.Back && t.s.Ended != Abandoned, !t.s.Back && t.s.Ended == ""
	switch {
	case st.Status == StepUndone && back && st.Attempt > 0:
	case st.Status == StepSkipped && st.Skip && t.s.Ended == "" && st.Attempt > 0:
	case st.Status == StepRefused && (back || forward):
		st.Skip, st.Attempt = forward, 0 // forward, it continues without the step
	default:
		return false
	}
	t.event(EventLateEffect, st.SentAs, "done after it was "+string(st.Status))
	t.s.Ended, st.Owed = "", true
	st.Status, st.Before, st.Attempt = StepUndoing, st.Before+st.Attempt, 0
	if t.s.Paused { // it is sent when the instance resumes
		st.Due = max(t.clock(), 1)
		return true
	}
	t.sendUndo(s, st)
	return true
}

// unreadable handles an answer that cannot be decoded. A request is asked again or times out; a child answers once, so an operator decides.
func (t *transition) unreadable(s *Step, st *StepState, err error) error {
	if s.Kind != Child || t.s.Ended != "" || !st.open() {
		return err
	}
	t.stuck(s.Path, st, err.Error())
	return nil
}

// sent finds the step whose last command was sent under a name. A step that sends none has no name.
func (t *transition) sent(as string) (*Step, *StepState) {
	for _, s := range t.d.order {
		if st := t.s.Steps[s.Path]; st != nil && st.SentAs == as && as != "" {
			return s, st
		}
	}
	return nil, nil
}

func (t *transition) late(r *Reply, why string) {
	t.event("late", r.SentAs, fmt.Sprintf("%s: %s", r.Outcome, why))
}

// answered handles the answer to a command that is waiting, unknown or stuck, or to the undo of one that is stuck.
func (t *transition) answered(s *Step, st *StepState, r *Reply) {
	switch r.Outcome {
	case OutcomeDone:
		t.done(s, st, r)
	case OutcomeRefused:
		t.refused(s, st, r.Refusal)
	case OutcomeFailed:
		t.failed(s, st, r.Refusal)
	case OutcomeNoRecord:
		t.stuck(s.Path, st, nobodyKnows+r.Refusal.Text)
	default: // of an undo
		t.undoReply(s, st, r)
	}
}

// nobodyKnows begins the reason why a step is stuck whose participant has no record of it.
const nobodyKnows = "nobody knows whether it happened: "

// unconfirmed says whether the participant of a step that an operator did or skipped has answered the undo that it has no record, so that
// nobody can confirm what the operator says.
func (s *StepState) unconfirmed() bool {
	return s.Status == StepStuck && (s.ByHand || s.Skip) && strings.HasPrefix(s.Reason, nobodyKnows)
}

// done applies the reply of a step that was done.
func (t *transition) done(s *Step, st *StepState, r *Reply) {
	if t.s.Back { // its undo comes in its turn
		st.Status = StepDone
		t.event("late", st.SentAs, "done")
		return
	}
	if !t.change(s, st, "Done", func(data any) { t.takeReply(s, data, r) }) {
		return
	}
	st.Owed = s.owes()
	t.finish(s, st)
}

// takeReply applies the payload of a reply to the data.
func (t *transition) takeReply(s *Step, data any, r *Reply) {
	if r.Data != nil {
		t.scope(s).replace(r.Data)
	} else if s.Done != nil {
		_ = s.Done(data, r.Payload) // try has decoded it
	}
}

// replace replaces the data by JSON that was made from it.
func (sc *scope) replace(text json.RawMessage) {
	data, err := sc.Decode(text)
	if err != nil {
		panic(err) // the engine has encoded it
	}
	sc.data = data
}

// refused handles a step that certainly did not happen and will not.
func (t *transition) refused(s *Step, st *StepState, r Refusal) {
	st.Owed, st.Due, st.Reason = false, 0, r.Reason
	t.event("step.refused", s.Path, r.Reason)
	switch {
	case t.s.Back:
		st.Status = StepRefused
	case s.Refused != nil:
		if t.change(s, st, "Refused", func(data any) { s.Refused(data, r) }) {
			st.Status = StepRefused
		}
	case t.passed():
		t.stuck(s.Path, st, "refused after the pivot: "+r.Reason)
	default:
		st.Status = StepRefused
		t.turn(Cause{Kind: CauseRefused, Step: s.Path, Reason: r.Reason, Text: r.Text})
	}
}

// failed handles an attempt of a local step that was rolled back.
func (t *transition) failed(s *Step, st *StepState, r Refusal) {
	t.event("attempt.failed", s.Path, r.Text)
	switch {
	case st.Attempt < t.attempts(s):
		st.Due = t.clock() + t.backoff(s.Path, st.Attempt)
	case t.passed():
		t.stuck(s.Path, st, r.Text)
	default:
		st.Status, st.Due, st.Reason = StepRefused, 0, r.Text
		t.turn(Cause{Kind: CauseFailed, Step: s.Path, Text: r.Text})
	}
}

// undoReply handles the answer to an undo.
func (t *transition) undoReply(s *Step, st *StepState, r *Reply) {
	if r.Outcome == OutcomeRefused && r.Unrecorded {
		t.late(r, "another attempt may have had its effect, so the undo decides")
		return
	}
	switch r.Outcome {
	case OutcomeUndone, OutcomeRefused:
		if r.Data != nil && !t.change(s, st, "Undo", func(any) { t.scope(s).replace(r.Data) }) {
			return
		}
		if st.ByHand {
			t.notDoneTwice(s, st)
			return
		}
		st.Status, st.Owed, st.Due, st.Reason = StepUndone, false, 0, ""
		if st.Skip && !t.s.Back {
			st.Status = StepSkipped
		}
		t.event("step.undone", s.Path, "")
	case OutcomeCannotUndo:
		t.cannotUndo(s, st, r)
	case OutcomeNoRecord:
		t.stuck(s.Path, st, nobodyKnows+r.Refusal.Text)
	case OutcomeFailed:
		t.event("attempt.failed", s.Path, r.Refusal.Text)
		t.undoAgain(s, st, t.backoff(s.Path, st.Attempt), r.Refusal.Text)
	case OutcomeDone: // what it answers, its undo takes back
		t.late(r, "the step is being undone")
	}
}

// notDoneTwice handles the confirmation that a participant has not done what an operator did by hand.
func (t *transition) notDoneTwice(s *Step, st *StepState) {
	if t.s.Back {
		t.stuck(s.Path, st, undoByHand)
		return
	}
	st.Owed = s.owes()
	t.finish(s, st)
}

// undoByHand is why a step is stuck that an operator did.
const undoByHand = "it was done by hand: undo it by hand, and say undone"

// cannotUndo handles a step that was done and that its participant cannot undo. If it is the pivot, there is no way back.
func (t *transition) cannotUndo(s *Step, st *StepState, r *Reply) {
	overruled := st.Skip || st.ByHand
	if overruled {
		t.event(EventOverruled, s.Path, "its participant has done it and cannot undo it")
		st.Skip, st.ByHand = false, false
	}
	switch {
	case overruled && !t.s.Back:
		t.done(s, st, r)
	case s.Pivot && !t.s.Forced:
		t.pivotDone(s, st, r)
	case s.NoUndo && !s.Pivot:
		st.Status, st.Owed, st.Due = StepDone, false, 0
		t.event("step.done", s.Path, "needs no undo")
	default:
		t.stuck(s.Path, st, "the participant cannot undo it")
	}
}

// pivotDone turns forward again, unless something has been undone already, which is what a participant without records can lead to. A step
// that was skipped stays so.
func (t *transition) pivotDone(s *Step, st *StepState, r *Reply) {
	undone := t.s.paths(func(o *StepState) bool {
		return !o.Skip && (o.Status == StepUndone || o.Status == StepUndoing && o != st) || o.Status == StepReleased
	})
	if t.s.Back && len(undone) > 0 {
		t.stuck(s.Path, st, "the pivot is done and cannot be undone, and step "+undone[0]+" is undone")
		return
	}
	for _, o := range t.s.Steps {
		if o.Status == StepUndone {
			o.Status = StepSkipped
		}
	}
	t.event("turned forward", s.Path, "the pivot is done")
	t.s.Back, t.s.Cause = false, nil
	t.done(s, st, r)
}
