package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// batch handles messages of an engine that follow one another in a transaction. Its beginning locks the instances of all of them; its
// end saves them, and publishes what their transitions result in. So each takes one statement for all messages.
type batch[Tx any] struct {
	*Engine[Tx]
	tx        Tx
	runs      map[string]string    // by ID, of those that were looked for; "" if there was none
	instances map[string]*instance // by run
	changed   []*instance
	msgs      []*postrider.Message
	timers    []*postrider.Message // published last: in a relay, a message that is parked separates those before and after it
	made      []*transition        // those that the observer is to be told of
	last      *postrider.Message   // the message that was handled last
}

// instance is one that the transaction has locked.
type instance struct {
	store.SagaInstance
	readAt time.Time
	// current is the instance after its transitions, if it is decoded. history are those that are not saved, latest the last of them.
	current *machine.Instance
	history []store.SagaTransition
	latest  *transition
}

// begin begins a batch.
func (e *Engine[Tx]) begin(ctx context.Context, tx Tx, msgs []*postrider.Message) (relay.Batch, error) {
	b := &batch[Tx]{Engine: e, tx: tx, runs: make(map[string]string), instances: make(map[string]*instance)}
	if err := protected(msgs[0], func() error { return b.lockAll(ctx, msgs) }); err != nil {
		return nil, e.uncounted(msgs[0], err)
	}
	return b, nil
}

// lockAll locks the instances of messages.
func (b *batch[Tx]) lockAll(ctx context.Context, msgs []*postrider.Message) error {
	var runs, ids []string
	for _, m := range msgs {
		switch run := m.Headers[headerRun]; {
		case !ofEngine(m):
			ids = append(ids, b.identified(m)...)
		case run != "":
			runs = append(runs, run)
		default:
			ids = append(ids, m.Headers[headerID])
		}
	}
	if err := b.find(ctx, ids); err != nil {
		return err
	}
	for _, id := range ids {
		runs = append(runs, b.runs[id])
	}
	return b.lock(ctx, runs)
}

// ofEngine says whether a message is one of the engine's, not an event of a contract.
func ofEngine(m *postrider.Message) bool {
	return m.Type == typeLocal || slices.Contains(engineTypes, m.Type)
}

// find looks for the runs of IDs.
func (b *batch[Tx]) find(ctx context.Context, ids []string) error {
	var lookups []store.SagaLookup
	for _, id := range ids {
		if id != "" && b.runs[id] == "" {
			lookups = append(lookups, store.SagaLookup{ID: id})
		}
	}
	if len(lookups) == 0 {
		return nil
	}
	runs, err := b.store.FindSagas(ctx, b.tx, lookups)
	if err != nil {
		return storeError{fmt.Errorf("find %d instances: %w", len(lookups), err)}
	}
	for i, run := range runs {
		b.runs[lookups[i].ID] = run
	}
	return nil
}

// lock locks the instances of runs, as far as they exist.
func (b *batch[Tx]) lock(ctx context.Context, runs []string) error {
	runs = slices.DeleteFunc(runs, func(run string) bool { return run == "" || b.instances[run] != nil })
	if len(runs) == 0 {
		return nil
	}
	found, err := b.store.LoadSagas(ctx, b.tx, runs)
	if err != nil {
		return storeError{fmt.Errorf("load %d instances: %w", len(runs), err)}
	}
	now := time.Now()
	for i := range found {
		b.instances[found[i].Run] = &instance{SagaInstance: found[i], readAt: now}
	}
	return nil
}

// instance returns the instance of a run, nil if there is none.
func (b *batch[Tx]) instance(ctx context.Context, run string) (*instance, error) {
	err := b.lock(ctx, []string{run})
	return b.instances[run], err
}

// instanceOf returns the instance of a message of the engine, by run or by ID, nil if there is none.
func (b *batch[Tx]) instanceOf(ctx context.Context, m *postrider.Message) (*instance, error) {
	run, id := m.Headers[headerRun], m.Headers[headerID]
	if run == "" {
		if err := b.find(ctx, []string{id}); err != nil { // unless it is known
			return nil, err
		}
		run = b.runs[id]
	}
	in, err := b.instance(ctx, run)
	if in == nil || in.Engine != b.cfg.Name {
		return nil, err
	}
	return in, nil
}

// age is that of the instance as of now.
func (in *instance) age() time.Duration { return in.Age + time.Since(in.readAt) }

// decode reads the state of the instance.
func (in *instance) decode() error {
	if in.current != nil {
		return nil
	}
	current := &machine.Instance{ID: in.ID, Run: in.Run, Rev: in.Rev, Data: in.Data}
	if err := json.Unmarshal(in.State, &current.State); err != nil {
		return fmt.Errorf("read the state of instance %s: %w", in.ID, err)
	}
	current.State.Token = in.Token
	in.current = current
	return nil
}

// Handle implements relay.Batch.
func (b *batch[Tx]) Handle(ctx context.Context, m *postrider.Message) error {
	b.last = m
	return b.uncounted(m, protected(m, func() error {
		if ofEngine(m) {
			return b.transact(ctx, m)
		}
		return b.track(ctx, m)
	}))
}

// End implements relay.Batch.
func (b *batch[Tx]) End(ctx context.Context) error {
	if b.last == nil { // there was no time for any message
		return nil
	}
	return b.uncounted(b.last, protected(b.last, func() error { return b.write(ctx) }))
}

// keep keeps a transition of an instance, and what it results in, to be written.
func (b *batch[Tx]) keep(ctx context.Context, in *instance, t *transition) error {
	msgs, err := b.outgoing(ctx, b.tx, t)
	if err != nil { // what the definition makes has been checked
		return storeError{err}
	}
	entry, err := t.entry()
	if err != nil {
		return err
	}
	if in.latest == nil {
		b.changed = append(b.changed, in)
	}
	in.current, in.history, in.latest = &t.after, append(in.history, entry), t
	t.entries, t.took = entry.Entries, time.Since(t.began)
	for _, m := range msgs {
		if m.Type == typeTimer {
			b.timers = append(b.timers, m)
		} else {
			b.msgs = append(b.msgs, m)
		}
	}
	b.made = append(b.made, t)
	return nil
}

// pipelined calls f with a transaction of a store. What f publishes is sent together with its next statement, if the store can do that.
func pipelined[Tx any](ctx context.Context, s any, tx Tx, f func(ctx context.Context, tx Tx) error) error {
	if p, ok := s.(store.TxPipeliner[Tx]); ok {
		return p.Pipeline(ctx, tx, f)
	}
	return f(ctx, tx)
}

// write writes what was kept.
func (b *batch[Tx]) write(ctx context.Context) error {
	changes := make([]store.SagaChange, len(b.changed))
	for i, in := range b.changed {
		body, err := body(in.current)
		if err != nil {
			return err
		}
		changes[i] = in.latest.change(body, in.history...)
		in.history, in.latest = nil, nil
	}
	if err := pipelined(ctx, b.store, b.tx, func(ctx context.Context, tx Tx) error {
		if err := b.publish(ctx, tx, append(b.msgs, b.timers...)); err != nil || len(changes) == 0 {
			return err
		}
		if err := b.store.SaveSagas(ctx, tx, changes); err != nil {
			return fmt.Errorf("save %d instances: %w", len(changes), err)
		}
		return nil
	}); err != nil {
		return storeError{err}
	}
	for i, in := range b.changed {
		if c := &changes[i]; c.Status.Ended() {
			ended := in.SagaInstance
			ended.SagaCondition, ended.SagaBody, ended.Rev = c.SagaCondition, c.SagaBody, c.Rev
			b.waiters.ending(ctx, &ended)
		}
	}
	for _, t := range b.made {
		b.observe(t)
	}
	b.changed, b.msgs, b.timers, b.made = nil, nil, nil, nil
	return nil
}
