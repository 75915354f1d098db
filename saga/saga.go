package saga

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Saga starts instances of a registered definition and returns their results.
type Saga[Tx, D any] struct {
	engine   *Engine[Tx]
	compiled *machine.Definition
}

// Started is the result of Start.
type Started struct {
	// ID identifies the instance.
	ID string
	// New: the instance was started by this call. Otherwise it existed: its ID, or its key while it is running.
	New bool
}

// StartOption changes how an instance is started.
type StartOption func(*startOptions)

type startOptions struct{ id string }

// ID sets the ID of an instance: 1 to 64 bytes, e.g. the idempotency key of a request. Default: a new UUIDv7. A second start with
// the same ID returns the same instance, also after its end, until the instance is purged.
func ID(id string) StartOption { return func(o *startOptions) { o.id = id } }

// Start starts an instance in the transaction tx: it exists, and its first commands are sent, if, and only if, tx commits. A
// start with an ID that exists, or with a key whose instance is running, starts nothing and returns that instance. Call
// outbox.Wake after the commit, or start in outbox.InTx, so that the commands leave at once.
//
// Errors: ErrConflict, with the existing instance, if that was started with other data; those of outbox.Publish and of the
// store.
func (s *Saga[Tx, D]) Start(ctx context.Context, tx Tx, data D, options ...StartOption) (Started, error) {
	var o startOptions
	for _, option := range options {
		option(&o)
	}
	if o.id == "" {
		o.id = postrider.NewID()
	}
	if len(o.id) > postrider.MaxIDBytes {
		return Started{}, fmt.Errorf("start saga %s: the ID has %d bytes, more than %d", s.compiled.Name, len(o.id), postrider.MaxIDBytes)
	}
	input, err := encode(&data)
	if err != nil {
		return Started{}, fmt.Errorf("start saga %s: encode the data: %w", s.compiled.Name, err)
	}
	if limit := s.engine.cfg.MaxState; len(input) > limit {
		return Started{}, fmt.Errorf("start saga %s: the data have %d bytes, more than MaxState (%d)", s.compiled.Name, len(input), limit)
	}
	run, err := s.begin(ctx, o.id, data, input)
	if err != nil {
		return Started{}, fmt.Errorf("start saga %s: %w", s.compiled.Name, err)
	}
	started, err := s.engine.create(ctx, tx, run)
	if err != nil {
		return started, fmt.Errorf("start saga %s: %w", s.compiled.Name, err)
	}
	return started, nil
}

// begin makes a new instance and its first transition.
func (s *Saga[Tx, D]) begin(ctx context.Context, id string, data D, input []byte) (*transition, error) {
	t := newTransition(s.engine.cfg.Name, s.compiled, id, input)
	var err error
	if t.identity.Key, err = s.compiled.KeyOf(&data); err != nil {
		return nil, err
	}
	t.identity.CorrelationID = t.identity.Run
	if m := postrider.MessageFromContext(ctx); m != nil {
		t.messageID, t.identity.Tenant, t.identity.CorrelationID = m.ID, tenantOf(m), correlationOf(m)
	}
	t.after, t.out, err = s.compiled.Advance(s.engine.policy(), t.before, machine.Input{Start: &machine.Start{}})
	return t, err
}

// newTransition begins the first transition of an instance with data.
func newTransition(engine string, d *machine.Definition, id string, data []byte) *transition {
	token := make([]byte, 16)
	rand.Read(token) // never fails
	sum := sha256.Sum256(data)
	run := postrider.NewID()
	return &transition{
		identity: store.SagaIdentity{
			Run: run, ID: id, Engine: engine, Saga: d.Name, Version: d.Version, Hash: d.Hash(), Kind: store.SagaOrchestrated,
		},
		startedAt: time.Now(), input: "start",
		before: machine.Instance{ID: id, Run: run, Data: data, State: machine.State{
			Token: hex.EncodeToString(token), Input: hex.EncodeToString(sum[:]),
		}},
	}
}

// Result is an instance as callers see it.
type Result[D any] struct {
	ID     string
	Status Status
	// Cause says why it turned back, or how an operator ended it; nil if neither.
	Cause *Cause
	// Waiting are the paths of the steps that it waits for.
	Waiting []string
	// Data is the data as of now.
	Data D
	// Rev is the revision of the instance: it rises by one with each transition.
	Rev int64
}

// Get returns an instance as it is now. Errors: ErrNotFound; those of the store.
func (s *Saga[Tx, D]) Get(ctx context.Context, id string) (Result[D], error) {
	return get[D](ctx, s.engine.store, id)
}

// Get returns an instance of any saga, also of one that is tracked by a contract. Its data are JSON; those of a contract are the payloads
// of the events that may have to be undone. Errors: ErrNotFound; those of the store.
func (e *Engine[Tx]) Get(ctx context.Context, id string) (Result[json.RawMessage], error) {
	return get[json.RawMessage](ctx, e.store, id)
}

func get[D any](ctx context.Context, reader store.SagaReader, id string) (Result[D], error) {
	in, err := show(ctx, reader, id)
	if err != nil {
		return Result[D]{}, err
	}
	return resultOf[D](&in)
}

func resultOf[D any](in *store.SagaInstance) (Result[D], error) {
	r := Result[D]{ID: in.ID, Status: in.Status, Rev: in.Rev}
	var state machine.State
	if err := json.Unmarshal(in.State, &state); err != nil {
		return r, fmt.Errorf("read the state of instance %s: %w", in.ID, err)
	}
	r.Cause, r.Waiting = state.Cause, state.Waiting()
	if err := json.NewDecoder(bytes.NewReader(in.Data)).Decode(&r.Data); err != nil {
		return r, fmt.Errorf("read the data of instance %s: %w", in.ID, err)
	}
	return r, nil
}

// Wait waits until the instance with an ID has ended, and returns it. Until then, one statement per Config.WaitInterval asks for
// all instances that this process waits for, and one reads each that has ended. An end that is committed in this process takes neither.
// Errors: ErrPending, with the instance as it is, if ctx ends before; ErrNotFound; those of the store.
func (s *Saga[Tx, D]) Wait(ctx context.Context, id string) (Result[D], error) {
	return wait[D](ctx, s.engine, id)
}

// Wait is Saga.Wait for an instance of any saga, as Get returns it.
func (e *Engine[Tx]) Wait(ctx context.Context, id string) (Result[json.RawMessage], error) {
	return wait[json.RawMessage](ctx, e, id)
}

func wait[D, Tx any](ctx context.Context, e *Engine[Tx], id string) (Result[D], error) {
	in, err := e.waiters.wait(ctx, id)
	switch {
	case err == nil:
		return resultOf[D](in)
	case ctx.Err() == nil:
		return Result[D]{}, err
	}
	r, err := get[D](context.WithoutCancel(ctx), e.store, id)
	if err != nil {
		return r, err
	}
	return r, fmt.Errorf("instance %s is %s: %w", id, r.Status, ErrPending)
}
