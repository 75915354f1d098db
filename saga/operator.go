package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// ErrNoDefinition: no process has reported the definition of the instance, so tools cannot say what would happen.
var ErrNoDefinition = errors.New("the definition of the instance is not stored")

// Operator plans and asks for operations on instances, and says what became of them. It needs no definitions, so it is what tools
// use: it reads those that the engines have reported.
type Operator struct{ reader store.SagaReader }

// NewOperator returns an operator for the instances of a store.
func NewOperator(r store.SagaReader) *Operator { return &Operator{r} }

// Plan is what an operation would do now.
type Plan struct {
	// Rev is the revision of the instance on which the plan is based, for Operation.Rev.
	Rev int64 `json:"rev"`
	// Refused says why the operation would be refused; "" if it would not.
	Refused string `json:"refused,omitempty"`
	// Before and After are the statuses of the instance. After is that of the same transition: answers come later.
	Before Status `json:"before"`
	After  Status `json:"after"`
	// Sent are the commands and undos that would be sent, by step; Entries are those of the history.
	Sent    []PlannedMessage  `json:"sent,omitempty"`
	Entries []store.SagaEntry `json:"entries,omitempty"`
	// Owed are the steps with an obligation that is open afterwards.
	Owed []string `json:"owed,omitempty"`
	// Depends are steps whose turn would come, and that the data decide about: only the engine can say what they do.
	Depends []string `json:"depends,omitempty"`
}

// PlannedMessage is a message that an operation would send.
type PlannedMessage struct {
	Step string `json:"step"`
	Undo bool   `json:"undo,omitempty"`
	// Type and Topic are those of the message; "" for a local step, which the engine runs, and for a Child.
	Type  string `json:"type,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Child is the ID of the instance that a Child starts or undoes.
	Child string `json:"child,omitempty"`
}

// Plan says what an operation would do now, by the rules that the engine follows. Whether the data after an Edit or Done are valid
// is for the engine to say. Errors: ErrNotFound; ErrNoDefinition; those of the store.
func (o *Operator) Plan(ctx context.Context, id string, op Operation) (Plan, error) {
	in, d, err := o.read(ctx, id)
	if err != nil {
		return Plan{}, err
	}
	v := op.verb()
	if from, is := d.(*machine.Definition); is && op.Verb == Migrate {
		v.From = from
		d, err = o.reported(ctx, in.Saga, op.To, "")
		switch {
		case errors.Is(err, ErrNoDefinition):
			why := fmt.Sprintf("no process has reported version %d of saga %s", op.To, in.Saga)
			return Plan{Rev: in.Rev, Refused: why, Before: in.Status, After: in.Status}, nil
		case err != nil:
			return Plan{}, err
		}
	}
	if len(v.Patch) > 0 {
		v.Patch = json.RawMessage("{}") // it is not applied here
	}
	before := machine.Instance{ID: in.ID, Run: in.Run, Rev: in.Rev, Data: in.Data}
	if err := json.Unmarshal(in.State, &before.State); err != nil {
		return Plan{}, fmt.Errorf("read the state of instance %s: %w", id, err)
	}
	after, out, err := d.Advance(planPolicy, before, machine.Input{Age: in.Age, Verb: &v})
	if err != nil {
		return Plan{}, fmt.Errorf("plan an operation on instance %s: %w", id, err)
	}
	p := Plan{Rev: in.Rev, Refused: out.Refused, Before: in.Status, Owed: after.State.Owed()}
	for path, st := range after.State.Steps {
		if st.NeedsData() {
			p.Depends = append(p.Depends, path)
			delete(after.State.Steps, path)
		}
	}
	p.After = after.State.Status()
	for _, c := range out.Commands {
		m := PlannedMessage{Step: c.SentAs, Undo: c.Undo}
		if c.Message != nil {
			m.Type, m.Topic = c.Message.Type, c.Message.Topic
		}
		if c.Child != nil {
			m.Child = c.Child.ID
		}
		p.Sent = append(p.Sent, m)
	}
	for _, e := range out.Events {
		if e.What != "step.stuck" || after.State.Steps[e.Step] != nil {
			p.Entries = append(p.Entries, store.SagaEntry{Name: e.What, Step: e.Step, Text: e.Note})
		}
	}
	return p, nil
}

// planPolicy has no limits: a plan neither waits nor counts.
var planPolicy = machine.Policy{
	StepTimeout: time.Hour, UndoTimeout: time.Hour, UndoAttempts: math.MaxInt32, LocalAttempts: math.MaxInt32, StuckAfter: time.Hour,
	BackoffBase: time.Second, BackoffMax: time.Hour, MaxSignals: math.MaxInt32,
}

// read returns an instance and its definition.
func (o *Operator) read(ctx context.Context, id string) (store.SagaInstance, machine.Rules, error) {
	in, err := show(ctx, o.reader, id)
	if err != nil {
		return in, nil, err
	}
	d, err := o.reported(ctx, in.Saga, in.Version, in.Hash)
	return in, d, err
}

// reported returns a definition that a process has reported.
func (o *Operator) reported(ctx context.Context, saga string, version int, hash string) (machine.Rules, error) {
	all, err := o.reader.SagaDefinitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	d, err := reportedRules(all, saga, version, hash)
	if err == nil && d == nil {
		err = fmt.Errorf("saga %s v%d: %w", saga, version, ErrNoDefinition)
	}
	return d, err
}

// Message returns the message that asks for an operation on an instance. Publish it through an outbox of the engine's database; its
// ID is the operation's, for Outcome. Errors: ErrNotFound; an operation that is incomplete or invalid; those of the store.
func (o *Operator) Message(ctx context.Context, id string, op Operation) (*postrider.Message, error) {
	in, err := show(ctx, o.reader, id)
	if err != nil {
		return nil, err
	}
	return op.message(in.Engine, in.ID)
}

// SignalMessage returns the message that brings a signal of a type to an instance. Publish it through an outbox of the engine's
// database. Errors: ErrNotFound; those of the store.
func (o *Operator) SignalMessage(ctx context.Context, id, messageType string, payload []byte) (*postrider.Message, error) {
	in, err := show(ctx, o.reader, id)
	if err != nil {
		return nil, err
	}
	return asSignal(in.Engine, in.ID, &postrider.Message{Type: messageType, Payload: payload, ContentType: "application/json"}), nil
}

// Outcome returns what has become of an operation, by the ID of its message. Errors: ErrNotFound; those of the store.
func (o *Operator) Outcome(ctx context.Context, id, operation string) (Outcome, error) {
	for t, err := range history(ctx, o.reader, id) {
		if err != nil {
			return Outcome{}, err
		}
		if t.MessageID != operation {
			continue
		}
		outcome := Outcome{Handled: true, Rev: t.Rev}
		for _, entry := range t.Entries {
			if entry.Name == machine.EventRefused {
				outcome.Refused = t.Note
			}
		}
		return outcome, nil
	}
	return Outcome{}, nil
}

// Mermaid draws an instance over its definition, as a Mermaid flowchart. Errors: ErrNotFound; ErrNoDefinition; those of the store.
func (o *Operator) Mermaid(ctx context.Context, id string) (string, error) {
	in, d, err := o.read(ctx, id)
	if err != nil {
		return "", err
	}
	var state machine.State
	if err := json.Unmarshal(in.State, &state); err != nil {
		return "", fmt.Errorf("read the state of instance %s: %w", id, err)
	}
	return d.Mermaid(&state), nil
}
