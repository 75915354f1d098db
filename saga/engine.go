package saga

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Store is what an engine needs of the database of its instances. The implementations are store/postgres, store/mysql,
// store/sqlite and store/memory.
type Store[Tx any] interface {
	store.SagaStore[Tx]
	store.SagaReader
	store.SagaMaintenance
	// Savepoint is that of store.Transactor.
	Savepoint(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
}

// Engine runs the instances of the sagas that are registered with it. It is safe for concurrent use. Its work is done by the relay
// and the consumers that it is given, see Relay and Consume: while one of them runs, the engine also reports which definitions
// this process has, and removes instances that ended longer than Config.KeepEnded ago.
type Engine[Tx any] struct {
	cfg     Config
	store   Store[Tx]
	box     *outbox.Outbox[Tx]
	waiters waiters
	sources sources
	process string // names this process in reports
	watched protect.Observer

	mu        sync.Mutex
	sagas     map[string]map[int]*machine.Definition // by name and version
	contracts map[string]map[int]tracked             // by name and version
	running   int                                    // relays and consumers
	overran   overruns                               // messages whose local step took too long, see runLocal
}

// New returns an engine that keeps instances in a store and publishes through an outbox of the same database. The error lists
// every error in the Config.
func New[Tx any](s Store[Tx], box *outbox.Outbox[Tx], c Config) (*Engine[Tx], error) {
	if s == nil || box == nil {
		return nil, errors.New("saga: New needs a store and an outbox")
	}
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	e := &Engine[Tx]{cfg: c, store: s, box: box, process: processName(), sagas: make(map[string]map[int]*machine.Definition),
		contracts: make(map[string]map[int]tracked)}
	e.sources.grace = c.Grace
	e.waiters.init(s, c.WaitInterval)
	return e, nil
}

// Topic is the topic of the engine's own messages and of replies: that of the relay given to Relay, and of the subscriber of
// the consumer given to Consume.
func (e *Engine[Tx]) Topic() string { return topicPrefix + e.cfg.Name }

// Register adds a definition to an engine. Register all before the relay and the consumers of the engine run. The instances of
// a version that this process does not have wait for a process that has it. A version that the database knows with another
// structure is refused when the engine begins to run, see CheckDefinitions. Errors: ErrDuplicate; otherwise everything that is wrong
// with the definition.
func Register[Tx, D any](e *Engine[Tx], d Definition[D]) (*Saga[Tx, D], error) {
	compiled, err := d.Compile()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range compiled.All() {
		err = errors.Join(err, e.fits(s))
	}
	if err != nil {
		return nil, fmt.Errorf("saga %s v%d: %w", d.Name, d.Version, err)
	}
	versions := e.sagas[d.Name]
	if versions == nil {
		versions = make(map[int]*machine.Definition)
		e.sagas[d.Name] = versions
	}
	if versions[d.Version] != nil || e.contracts[d.Name] != nil {
		return nil, fmt.Errorf("saga %s v%d: %w", d.Name, d.Version, ErrDuplicate)
	}
	versions[d.Version] = compiled
	return &Saga[Tx, D]{engine: e, compiled: compiled}, nil
}

// fits says why an engine cannot run a step.
func (e *Engine[Tx]) fits(s *machine.Step) error {
	switch {
	case s.Kind == machine.Local && s.TxType != reflect.TypeFor[Tx]():
		return fmt.Errorf("step %s: its transactions are of type %s, those of the engine are of type %s", s.Path, s.TxType, reflect.TypeFor[Tx]())
	case s.Kind == machine.Child:
		if own := e.sagas[s.Child.Name][s.Child.Version]; own == nil || own.Hash() != s.Child.Hash() {
			return fmt.Errorf("step %s: register saga %s v%d before, with the same steps", s.Path, s.Child.Name, s.Child.Version)
		}
		answer := &postrider.Message{Type: typeEnded, Topic: e.Topic(), Payload: make([]byte, e.cfg.MaxState)}
		if err := e.box.Check(answer); err != nil {
			return fmt.Errorf("step %s: the data of a child may have MaxState (%d) bytes, which the outbox does not take: %w", s.Path, e.cfg.MaxState, err)
		}
	}
	return nil
}

// Relay lets a relay of the engine's outbox run the engine: timers, local steps, operators' verbs, and replies of participants
// that share the outbox. The relay needs the topic of the engine (Topic) among its topics, and may handle other messages with
// transactions. With Topics among its topics, it also takes the events of contracts that are published in the outbox; give it
// then no other handlers of these events. The relay's Run ends with ErrRedefined if a definition cannot be run, see
// CheckDefinitions. Errors: ErrHoldKey; those of relay.HandleTxBatch.
func (e *Engine[Tx]) Relay(r *relay.Relay) error {
	errs := []error{e.refuseHeldKeys("relay "+r.Name(), r.OnDead()), r.Prepare(e.prepare), r.Background(e.maintain)}
	types := e.eventTypes()
	errs = append(errs, relay.HandleTxBatch(r, slices.Concat(engineTypes, types), e.begin), relay.HandleTxFunc(r, typeLocal, e.handleOne))
	if status, ok := e.store.(store.StatusReader); ok && len(types) > 0 {
		errs = append(errs, r.Background(e.sources.add(backlogOf(status, r.Name()), e.cfg.Logger)))
	}
	return errors.Join(errs...)
}

// refuseHeldKeys refuses a relay or consumer that holds the key of a dead letter: that of an instance, whose timers would wait for
// an operator.
func (e *Engine[Tx]) refuseHeldKeys(what string, onDead relay.OnDead) error {
	if onDead != relay.HoldKey {
		return nil
	}
	return fmt.Errorf("saga: engine %s: %s: %w", e.cfg.Name, what, ErrHoldKey)
}

// Consume lets a consumer take the replies of participants, signals, and the events of contracts, that come from a broker. For
// replies and signals, it needs the topic of the engine (Topic) among its topics; for events, those of Topics, and
// inbox.SkipUnhandled if these topics have other messages too. The consumer's Run ends with ErrRedefined as that of a relay does. Errors:
// ErrHoldKey; those of inbox.Consumer.HandleBatch.
func (e *Engine[Tx]) Consume(c *inbox.Consumer[Tx]) error {
	errs := []error{e.refuseHeldKeys("consumer "+c.Name(), c.OnDead()), c.Prepare(e.prepare), c.Background(e.maintain)}
	types := e.eventTypes()
	errs = append(errs, c.HandleBatch(slices.Concat([]string{typeReply, typeSignal}, types), e.begin))
	if len(types) > 0 {
		errs = append(errs, c.Background(e.sources.add(c.CatchUp, e.cfg.Logger)))
	}
	return errors.Join(errs...)
}

// Signal sends a signal to the instance with an ID, in the caller's transaction. It reaches the Await of this message type,
// also if the instance has not come to it yet. A signal for an instance that is not started within Config.EarlyFor is
// dead-lettered. The outbox may be that of another service: then its relay takes the message to the engine's topic. Errors:
// those of the definition and of outbox.Publish.
func Signal[Tx, S any](ctx context.Context, tx Tx, box *outbox.Outbox[Tx], engine, id string, signal postrider.Definition[S], data S) error {
	m, err := signalMessage(engine, id, signal, data)
	if err != nil {
		return err
	}
	_, err = box.Publish(ctx, tx, m)
	return err
}
