package saga

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// maxProcess is the largest size of the identity of a business process.
const maxProcess = 1 << 10

// tracked is a contract that an engine tracks.
type tracked struct {
	contract Contract
	compiled *machine.Contract
}

// Track lets an engine track a contract: its consumers and relays then take the contract's events, and its instances are listed,
// shown and decided about like those of definitions. Track all contracts, in all versions that have running instances, before the
// relay and the consumers of the engine. A new instance has the highest version that knows its first event. Errors:
// ErrDuplicate; otherwise everything that is wrong with the contract.
func Track[Tx any](e *Engine[Tx], c Contract) error {
	compiled, err := c.Compile()
	if err != nil {
		return err
	}
	if keep := e.cfg.KeepEnded; keep >= 0 && c.CancelWithin > keep {
		return fmt.Errorf("contract %s v%d: CancelWithin is %s, and the engine removes what has completed after %s (KeepEnded); keep it as long",
			c.Name, c.Version, c.CancelWithin, keep)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, tracked := e.contracts[c.Name][c.Version]; tracked || e.sagas[c.Name] != nil {
		return fmt.Errorf("contract %s v%d: %w", c.Name, c.Version, ErrDuplicate)
	}
	if e.contracts[c.Name] == nil {
		e.contracts[c.Name] = make(map[int]tracked)
	}
	e.contracts[c.Name][c.Version] = tracked{c, compiled}
	return nil
}

// Topics are the topics of the events of all contracts that the engine tracks.
func (e *Engine[Tx]) Topics() (topics []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, versions := range e.contracts {
		for _, t := range versions {
			topics = append(topics, t.compiled.Topics()...)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// eventTypes are the message types of all contracts.
func (e *Engine[Tx]) eventTypes() (types []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, versions := range e.contracts {
		for _, t := range versions {
			types = append(types, t.compiled.Types()...)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// contractsOf returns, for each contract that knows a message type, the newest version that does.
func (e *Engine[Tx]) contractsOf(messageType string) (found []tracked) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.contracts)) {
		versions := e.contracts[name]
		for _, version := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
			if versions[version].compiled.Knows(messageType) {
				found = append(found, versions[version])
				break
			}
		}
	}
	return found
}

// identified returns the IDs that the instances of an event can have.
func (e *Engine[Tx]) identified(m *postrider.Message) (ids []string) {
	for _, c := range e.contractsOf(m.Type) {
		if identity, _ := c.contract.identityOf(m); identity != "" { // an error is found again, and reported, when the event is tracked
			both := trackedIDs(c.contract.Name, identity)
			ids = append(ids, both[:]...)
		}
	}
	return ids
}

// track handles an event: for each contract that knows it, it is the input of one instance.
func (b *batch[Tx]) track(ctx context.Context, m *postrider.Message) error {
	for _, c := range b.contractsOf(m.Type) {
		if err := b.trackOne(ctx, c, m); err != nil {
			return err
		}
	}
	return nil
}

// trackOne makes the transition of the instance of a contract that an event belongs to. If there is none, the event begins it.
func (b *batch[Tx]) trackOne(ctx context.Context, c tracked, m *postrider.Message) error {
	identity, fault := c.contract.identityOf(m)
	input := machine.Input{Event: m, Process: processOf(m)}
	if fault != nil {
		b.cfg.Logger.Error("saga: the Instance of a contract panics; the event is left to an operator, in an instance of its own", "engine", b.cfg.Name,
			"contract", c.contract.Name, "type", m.Type, "message", m.ID, "error", fault)
		text, _, _ := strings.Cut(fault.Error(), "\n")
		input.Unidentified = "Instance: " + text
	}
	switch {
	case identity == "":
		return nil
	case !stored.Holdable(processOf(m), maxProcess): // requests for undos name it
		return postrider.Dead(ReasonNotApplicable, fmt.Errorf("%s %s: the identity of its business process must be UTF-8 without NUL, of at most %d bytes",
			m.Type, m.ID, maxProcess))
	}
	ids := trackedIDs(c.contract.Name, identity)
	for _, id := range ids { // the batch has looked for them
		in, err := b.instance(ctx, b.runs[id])
		if err != nil {
			return err
		}
		if in != nil && b.tracks(c, &in.SagaInstance) {
			return b.trackNext(ctx, input, in)
		}
	}
	id := ids[0]
	if b.runs[id] != "" { // another saga has it
		id = ids[1]
	}
	existing, err := b.trackFirst(ctx, c, id, input)
	if err == nil && existing != nil && !b.tracks(c, existing) {
		existing, err = b.trackFirst(ctx, c, ids[1], input)
	}
	if err != nil || existing == nil {
		return err
	}
	b.runs[existing.ID] = existing.Run
	in, err := b.instance(ctx, existing.Run)
	if err != nil {
		return err
	}
	if in == nil || !b.tracks(c, &in.SagaInstance) {
		return storeError{fmt.Errorf("instance %s of saga %s is in the way of that of %s %s", existing.ID, existing.Saga, m.Type, m.ID)}
	}
	return b.trackNext(ctx, input, in)
}

// tracks says whether an instance is one of a contract that this engine tracks.
func (e *Engine[Tx]) tracks(c tracked, in *store.SagaInstance) bool {
	return in.Saga == c.contract.Name && in.Kind == store.SagaChoreographed && in.Engine == e.cfg.Name
}

// trackedIDs are the IDs that the instance of a contract can have: its identity, or another one if an instance of another saga has
// that.
func trackedIDs(name, identity string) [2]string {
	ids := [2]string{identity, name + "/" + identity}
	for i, id := range ids {
		if len(id) > postrider.MaxIDBytes {
			sum := sha256.Sum256([]byte(id))
			ids[i] = hex.EncodeToString(sum[:postrider.MaxIDBytes/2])
		}
	}
	return ids
}

// trackNext makes the transition of an instance that exists.
func (b *batch[Tx]) trackNext(ctx context.Context, input machine.Input, in *instance) error {
	t, r, err := b.prepare(ctx, in, input.Event, nil)
	if err != nil {
		return err
	}
	t.input, t.step, input.Age = "event", input.Event.Type, in.age()
	return b.advance(ctx, in, r, t, input)
}

// trackFirst creates an instance with its first event, unless another instance has its ID: then it returns that one.
func (b *batch[Tx]) trackFirst(ctx context.Context, c tracked, id string, input machine.Input) (*store.SagaInstance, error) {
	m := input.Event
	token := make([]byte, 16)
	rand.Read(token) // never fails
	t := &transition{
		identity: store.SagaIdentity{
			Run: postrider.NewID(), ID: id, Engine: b.cfg.Name, Saga: c.compiled.Name, Version: c.compiled.Version, Hash: c.compiled.Hash(),
			Kind: store.SagaChoreographed, CorrelationID: correlationOf(m), Tenant: tenantOf(m),
		},
		startedAt: time.Now(), input: "event", step: m.Type, messageID: m.ID,
	}
	t.before = machine.Instance{ID: id, Run: t.identity.Run, State: machine.State{Token: hex.EncodeToString(token)}}
	var err error
	t.after, t.out, err = c.compiled.Advance(b.policy(), t.before, input)
	if err != nil {
		return nil, err
	}
	existing, msgs, err := b.insert(ctx, b.tx, t)
	if err != nil {
		return nil, storeError{err}
	}
	if existing == nil {
		b.runs[id], b.msgs = t.identity.Run, append(b.msgs, msgs...)
	}
	return existing, nil
}
