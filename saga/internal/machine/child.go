package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Parent is the instance that started this one.
type Parent struct {
	ID  string `json:"id"`
	Run string `json:"run"`
	// Step is the name under which the parent started it, see StepState.SentAs.
	Step string `json:"step"`
	// Undo: the parent wants it undone. Closed: the parent will not ask about it again.
	Undo   bool `json:"undo,omitzero"`
	Closed bool `json:"closed,omitzero"`
}

// Wish is what a parent wants of an instance that it started.
type Wish string

// The wishes.
const (
	WishAnswer Wish = "answer" // say again how it ended
	WishUndo   Wish = "undo"   // turn back, also after its end
	WishClose  Wish = "close"  // its participants need not keep their records any longer
)

// ChildStart is an instance to start as a step of another, in the same transaction.
type ChildStart struct {
	ID         string
	Definition *Definition
	// Key is that of the definition, from the data.
	Key  string
	Data json.RawMessage
}

// childID is the ID of the instance that a step starts. It is the same each time, so that the step cannot start two.
func childID(run, sentAs string) string {
	sum := sha256.Sum256([]byte(run + "/" + sentAs))
	return hex.EncodeToString(sum[:16])
}

// child builds what a Child starts.
func (t *transition) child(s *Step, st *StepState, data any) (*ChildStart, error) {
	c := &ChildStart{ID: childID(t.in.Run, st.SentAs), Definition: s.Child}
	var err error
	if c.Data, err = s.ChildData(data); err != nil {
		return nil, fmt.Errorf("encode the data of the child: %w", err)
	}
	if limit := t.p.MaxState; limit > 0 && len(c.Data) > limit {
		return nil, fmt.Errorf("the data of the child would have %d bytes, more than MaxState (%d)", len(c.Data), limit)
	}
	own, err := s.Child.Decode(c.Data)
	if err != nil {
		return nil, fmt.Errorf("decode the data of the child: %w", err)
	}
	c.Key, err = s.Child.KeyOf(own)
	return c, err
}

// wished handles what the parent of the instance wants. The answer is given at the end: one that has not ended waits for something.
func (t *transition) wished(w Wish) error {
	p := t.s.Parent
	if p == nil {
		return fmt.Errorf("%w: instance %s was not started by another", ErrInput, t.in.ID)
	}
	t.event("parent wants", "", string(w))
	switch w {
	case WishClose:
		p.Closed = true
		return nil
	case WishUndo:
		p.Undo = true
		if !t.s.Back && !t.passed() && t.s.Ended != Abandoned && (t.s.Ended == "" || t.s.Ended == Completed) {
			t.s.Ended = ""
			t.turn(Cause{Kind: CauseCancelled, Reason: "its parent turned back"})
			return nil
		}
	}
	t.answerParent()
	return nil
}

// answerParent answers the parent once the instance has ended: what it asked, the start or the undo, is a command to it, and the end
// the reply.
func (t *transition) answerParent() {
	p := t.s.Parent
	if p == nil || t.s.Ended == "" {
		return
	}
	r := &Reply{SentAs: p.Step}
	switch {
	case t.s.Ended == Completed && p.Undo:
		r.Outcome, r.Payload = OutcomeCannotUndo, *t.root.json
	case t.s.Ended == Completed:
		r.Outcome, r.Payload = OutcomeDone, *t.root.json
	case t.s.Ended == Compensated && p.Undo:
		r.Outcome = OutcomeUndone
	case t.s.Ended == Compensated:
		r.Outcome, r.Refusal = OutcomeRefused, t.refusal()
	default:
		r.Outcome = OutcomeNoRecord
		r.Refusal = Refusal{Reason: string(Abandoned), Text: fmt.Sprintf("run %s was abandoned by an operator", t.in.Run)}
	}
	t.out.Answer = r
}

// refusal says why the instance was compensated.
func (t *transition) refusal() Refusal {
	c := t.s.Cause
	if c == nil {
		return Refusal{Reason: string(Compensated)}
	}
	r := Refusal{Reason: c.Reason, Text: c.Text}
	if c.Kind != CauseRefused || r.Reason == "" {
		r.Reason = string(c.Kind)
		if c.Reason != "" {
			r.Text = c.Reason
		}
	}
	if c.Step != "" {
		r.Text = fmt.Sprintf("step %s of run %s: %s", c.Step, t.in.Run, r.Text)
	}
	return r
}

// Closes says whether nobody will ask about the steps of the instance any more.
func (s *State) Closes() bool {
	return s.Ended != "" && (s.Parent == nil || s.Parent.Closed || s.Ended != Completed)
}

// HasPivot says whether instances of the definition can have a point after which there is no way back.
func (d *Definition) HasPivot() bool {
	for _, s := range d.order {
		if s.Pivot {
			return true
		}
	}
	return false
}
