package saga

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Child starts an instance of another saga, with data of type C, and waits for its end: completed, the step is done; compensated, it is
// refused. The instance is started in the transaction of the step, so there is one if and only if the step has begun. To undo the step is to
// turn that instance back, also if it is completed. It has no timeout: what limits it is the Deadline of the other saga, and if it
// is stuck, an operator decides about it. Wait and Get take its ID, which `postrider saga show` has at the step. The message that tells
// its end has its data, so the MaxPayload of the outbox must not be less than Config.MaxState.
type Child[D, C any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Saga is what is started. Register it with the same engine, before this saga. If it has a pivot, this step must be the pivot, or
	// come after it. Required.
	Saga Definition[C]
	// Data makes the data of the instance to start. Required.
	Data func(d D) C
	// Done takes the data of the instance that has completed into the data. Default: they are not needed.
	Done func(d *D, child C)
	// Refused takes the reason why the instance was compensated into the data, and the saga continues. It also gets a refusal "key" if
	// an instance with the key of the one to start is running. Default: a refusal turns it back.
	Refused func(d *D, r Refusal)
	// Pivot: once the instance has completed, the saga does not turn back. At most one step on each way is a pivot.
	Pivot bool
}

func (c Child[D, C]) build(*D) *machine.Step {
	s := &machine.Step{
		Kind: machine.Child, Name: c.Name, OnlyIf: condition(c.OnlyIf), Message: c.Saga.Name, Pivot: c.Pivot, Refused: refusalOf(c.Refused),
		Sample: func() ([]byte, error) { return encode(new(C)) },
		Done: func(data any, payload []byte) error {
			child, err := decode[C](payload)
			if err != nil {
				return fmt.Errorf("decode the data of the child: %w", err)
			}
			if c.Done != nil {
				c.Done(data.(*D), *child.(*C))
			}
			return nil
		},
	}
	s.Child, s.Invalid = c.Saga.Compile()
	if c.Data != nil {
		s.ChildData = func(data any) (json.RawMessage, error) {
			child := c.Data(*data.(*D))
			return encode(&child)
		}
	}
	return s
}

// wished is the payload of a message from the parent of an instance.
type wished struct {
	Wish machine.Wish `json:"wish"`
	// Parent is whom to answer.
	Parent machine.Parent `json:"parent"`
}

// child starts the instance of a step, or undoes it, and returns the messages to publish for that.
func (e *Engine[Tx]) child(ctx context.Context, tx Tx, t *transition, c machine.Command) ([]*postrider.Message, error) {
	parent := machine.Parent{ID: t.identity.ID, Run: t.identity.Run, Step: c.SentAs}
	if c.Undo {
		return one(wishMessage(e.Topic(), c.Child.ID, machine.WishUndo, parent))
	}
	existing, msgs, err := e.startChild(ctx, tx, t, c.Child, parent)
	switch {
	case err != nil || existing == nil:
		return msgs, err
	case existing.ID == c.Child.ID:
		return one(wishMessage(e.Topic(), c.Child.ID, machine.WishAnswer, parent))
	}
	return one(endedMessage(e.Topic(), parent, &machine.Reply{Outcome: machine.OutcomeRefused, Refusal: Refusal{
		Reason: "key", Text: fmt.Sprintf("run %s of saga %s has the key of the instance to start", existing.Run, existing.Saga),
	}}))
}

func one(m *postrider.Message, err error) ([]*postrider.Message, error) {
	return []*postrider.Message{m}, err
}

// startChild starts an instance for a step of another, and returns its messages. If it exists, or another one has its key, that one is
// returned.
func (e *Engine[Tx]) startChild(ctx context.Context, tx Tx, t *transition, c *machine.ChildStart, parent machine.Parent) (
	*store.SagaInstance, []*postrider.Message, error,
) {
	d := c.Definition
	child := newTransition(e.cfg.Name, d, c.ID, c.Data)
	child.identity.Key, child.identity.ParentRun, child.identity.ParentStep = c.Key, parent.Run, parent.Step
	child.identity.CorrelationID, child.identity.Tenant, child.messageID = t.identity.CorrelationID, t.identity.Tenant, t.messageID
	child.before.State.Parent = &parent
	child.isolated = t.isolated
	var err error
	if child.after, child.out, err = d.Advance(e.policy(), child.before, machine.Input{Start: &machine.Start{}, Isolated: t.isolated}); err != nil {
		return nil, nil, err
	}
	return e.insert(ctx, tx, child)
}

// wishMessage tells an instance what the one wants that has started it.
func wishMessage(topic, child string, w machine.Wish, parent machine.Parent) (*postrider.Message, error) {
	payload, err := json.Marshal(wished{w, parent})
	if err != nil {
		return nil, err
	}
	return &postrider.Message{
		Type: typeParent, Topic: topic, Key: keyOf(child), Payload: payload, Headers: map[string]string{headerID: child, headerStep: parent.Step},
	}, nil
}

// endedMessage tells the parent of an instance how it ended.
func endedMessage(topic string, parent machine.Parent, r *machine.Reply) (*postrider.Message, error) {
	m := &postrider.Message{Type: typeEnded, Topic: topic, Key: keyOf(parent.ID), Payload: r.Payload, Headers: map[string]string{
		headerID: parent.ID, headerRun: parent.Run, headerStep: parent.Step, headerOutcome: string(r.Outcome),
	}}
	if r.Refusal != (Refusal{}) {
		var err error
		if m.Payload, err = json.Marshal(r.Refusal); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// neverStarted answers the wish to undo an instance that does not exist: another one had its key.
func (b *batch[Tx]) neverStarted(m *postrider.Message) error {
	var w wished
	if err := json.Unmarshal(m.Payload, &w); err != nil {
		return postrider.Dead(ReasonNotApplicable, fmt.Errorf("read %s: %w", m.Type, err))
	}
	if w.Wish != machine.WishUndo {
		return nil
	}
	answer, err := endedMessage(b.Topic(), w.Parent, &machine.Reply{Outcome: machine.OutcomeUndone})
	b.msgs = append(b.msgs, answer)
	return err
}
