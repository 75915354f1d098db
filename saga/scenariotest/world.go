package scenariotest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// Store is what the scenarios need of a store.
type Store[Tx any] interface {
	store.Outbox[Tx]
	store.Inbox[Tx]
	store.TxSettler[Tx]
	store.Records
	saga.Store[Tx]
	saga.Records[Tx]
	store.SagaMaintenance
}

// Kit says how to open a store for each scenario.
type Kit[Tx any] struct {
	Open func(t testing.TB) Store[Tx]
	// Bubble: the store works in a testing/synctest bubble, so that time is virtual.
	Bubble bool
	// InMemory: the store is in memory, so that thousands of sagas take seconds.
	InMemory bool
	// Again is for another server, or another way to access one, once a server has passed every scenario: what decides is the same code
	// above every store, so a fraction of the scenarios runs. storetest.Sagas tests the store itself.
	Again bool
	// Rows makes a table with the rows 0 and 1 next to a store of Open, and returns a function that updates one of them. Nil: the database
	// has one writer at a time, so there are no deadlocks.
	Rows func(t testing.TB, s Store[Tx]) (update func(ctx context.Context, tx Tx, row int) error)

	torture bool
}

// Run runs every scenario on a store, unless Kit.Again chooses.
func Run[Tx any](t *testing.T, k Kit[Tx]) {
	if testing.Short() && !k.Bubble {
		t.Skip("left out by -short, except in virtual time")
	}
	all := scenarios[Tx]()
	for _, name := range again {
		if all[name] == nil {
			t.Errorf("there is no scenario %q", name)
		}
	}
	if k.Rows == nil {
		delete(all, "A44 deadlock")
	}
	maps.Copy(all, longScenarios[Tx]())
	run := make(map[string]func(w *world[Tx]))
	for name, scenario := range all {
		if k.Again && !slices.Contains(again, name) {
			continue
		}
		run[name] = scenario
	}
	k.each(t, run)
}

// patience bounds every wait for a condition.
const patience = 3 * time.Minute

// world is a shop: an engine and its participants on one store.
type world[Tx any] struct {
	*testing.T
	kit    Kit[Tx]
	store  Store[Tx]
	box    *outbox.Outbox[Tx]
	engine *saga.Engine[Tx]

	mu      sync.Mutex
	effects map[string]int // what is left of each step: do − undo; "" counts announcements
	seen    map[string]bool
	done    map[string]int                                // how often each step was done and not rolled back
	do      map[string]func(Tx, *postrider.Message) error // what the handler of a step does next to its effect
	undo    map[string]func() error
	stop    map[string]func()                     // by relay
	changes map[string]func(m *postrider.Message) // by message type
	pollMax time.Duration                         // of relays; 0: the usual one
}

func newWorld[Tx any](t *testing.T, k Kit[Tx]) *world[Tx] {
	w := &world[Tx]{
		T: t, kit: k, store: k.Open(t), effects: make(map[string]int), seen: make(map[string]bool), done: make(map[string]int),
		do: make(map[string]func(Tx, *postrider.Message) error), undo: make(map[string]func() error), stop: make(map[string]func()),
		changes: make(map[string]func(*postrider.Message)),
	}
	w.box = w.newOutbox(w.store)
	w.engine = w.newEngine()
	return w
}

func (w *world[Tx]) newOutbox(s Store[Tx]) *outbox.Outbox[Tx] {
	box, err := outbox.New(s, outbox.Config{Source: "shop", Hooks: []outbox.Hooks{{BeforePublish: w.change}}})
	w.must(err)
	return box
}

// newEngine returns an engine whose timeouts never end a step because a machine is slow. Scenarios about timeouts shorten them.
func (w *world[Tx]) newEngine(change ...func(c *saga.Config)) *saga.Engine[Tx] {
	c := saga.Config{
		Name: "shop", StepTimeout: time.Hour, UndoTimeout: time.Hour, UndoAttempts: 3, LocalAttempts: 3, LocalTimeout: time.Minute,
		StuckAfter: time.Hour, BackoffBase: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, EarlyFor: 3 * time.Second, Logger: quiet,
	}
	for _, f := range change {
		f(&c)
	}
	e, err := saga.New(saga.Store[Tx](w.store), w.box, c)
	w.must(err)
	return e
}

// tamper changes all messages of a type as they are published.
func (w *world[Tx]) tamper(messageType string, f func(m *postrider.Message)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes[messageType] = f
}

func (w *world[Tx]) change(_ context.Context, m *postrider.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.changes[m.Type]; f != nil {
		f(m)
	}
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

func (w *world[Tx]) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// run runs a relay until the test ends.
func (w *world[Tx]) run(name string, topics []string, register func(r *relay.Relay) error) {
	c := relayConfig(name, topics)
	c.PollMax = cmp.Or(w.pollMax, c.PollMax)
	r, err := relay.New(w.store, c)
	w.must(err)
	w.must(register(r))
	w.keepRunning(name, r.Run)
}

func relayConfig(name string, topics []string) relay.Config {
	return relay.Config{
		Name: name, Topics: topics, Logger: quiet, MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond,
		PollMax: 250 * time.Millisecond,
	}
}

// keepRunning runs a relay or consumer until the test ends, or until w.stop of its name is called.
func (w *world[Tx]) keepRunning(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("%s: %v", name, err)
		}
	})
	w.stop[name] = stop
	w.Cleanup(stop)
}

// runEngine runs the engine's relay, and the one that counts effects.
func (w *world[Tx]) runEngine() {
	w.run("engine", []string{w.engine.Topic()}, w.engine.Relay)
	w.run("ledger", []string{"effects", "announcements"}, w.count)
}

// count lets a relay count effects and announcements, each message once.
func (w *world[Tx]) count(r *relay.Relay) error {
	count := func(_ context.Context, m *postrider.Message) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.seen[m.ID] {
			return nil
		}
		w.seen[m.ID] = true
		if m.Type == "undo" {
			w.effects[m.Subject]--
		} else {
			w.effects[m.Subject]++
			w.done[m.Subject]++
		}
		return nil
	}
	for _, messageType := range []string{"do", "undo", "announced"} {
		if err := r.HandleFunc(messageType, count); err != nil {
			return err
		}
	}
	return nil
}

// runParticipants runs the participants of the shop on a relay of their own.
func (w *world[Tx]) runParticipants() {
	w.run("participants", participantTopics, w.newParticipant(w.store, w.box).Relay)
}

var participantTopics = []string{"stock", "cards", "parcels"}

func (w *world[Tx]) newParticipant(s Store[Tx], box *outbox.Outbox[Tx]) *saga.Participant[Tx] {
	p, err := saga.NewParticipant(saga.Records[Tx](s), box, saga.ParticipantConfig{Name: "shop"})
	w.must(err)
	w.must(saga.Handle(p, reserve, w.doer(box, "reserve"), w.undoer(box, "reserve")))
	w.must(saga.Handle(p, charge, w.doer(box, "charge"), w.undoer(box, "charge")))
	w.must(saga.Handle(p, ship, w.doer(box, "ship"), nil))
	return p
}

// effect records an effect in the transaction: a message, which is there if and only if the transaction commits.
func effect[Tx any](ctx context.Context, tx Tx, box *outbox.Outbox[Tx], messageType, step string) error {
	_, err := box.Publish(ctx, tx, &postrider.Message{Type: messageType, Topic: "effects", Subject: step})
	return err
}

func (w *world[Tx]) doer(box *outbox.Outbox[Tx], step string) func(context.Context, Tx, postrider.Typed[item]) (item, error) {
	return func(ctx context.Context, tx Tx, m postrider.Typed[item]) (item, error) {
		if err := effect(ctx, tx, box, "do", step); err != nil { // also if it fails: then it must be rolled back
			return item{}, err
		}
		w.mu.Lock()
		f := w.do[step]
		w.mu.Unlock()
		if f != nil {
			if err := f(tx, m.Message); err != nil {
				return item{}, err
			}
		}
		return item{step + " of " + m.Data.ID}, nil
	}
}

func (w *world[Tx]) undoer(box *outbox.Outbox[Tx], step string) func(context.Context, Tx, item, item) error {
	return func(ctx context.Context, tx Tx, command, reply item) error {
		if reply.ID != step+" of "+command.ID {
			w.Errorf("undo of %s got the command %v and the reply %v", step, command, reply)
		}
		w.mu.Lock()
		f := w.undo[step]
		w.mu.Unlock()
		if f != nil {
			if err := f(); err != nil {
				return err
			}
		}
		return effect(ctx, tx, box, "undo", step)
	}
}

// onDo and onUndo replace what the handlers of a step do next to their effect; nil restores them.
func (w *world[Tx]) onDo(step string, f func(tx Tx, m *postrider.Message) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.do[step] = f
}

func (w *world[Tx]) onUndo(step string, f func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undo[step] = f
}

// register registers a definition.
func (w *world[Tx]) register(d saga.Definition[order]) *saga.Saga[Tx, order] {
	w.Helper()
	s, err := saga.Register(w.engine, d)
	w.must(err)
	return s
}

// start starts an instance with an ID in a transaction of its own.
func (w *world[Tx]) start(s *saga.Saga[Tx, order], o order) saga.Started {
	w.Helper()
	var started saga.Started
	w.inTx(func(ctx context.Context, tx Tx) (err error) {
		started, err = s.Start(ctx, tx, o, saga.ID(o.ID))
		return err
	})
	return started
}

// inTx runs f in a transaction, again if its commit failed at a fail point.
func (w *world[Tx]) inTx(f func(ctx context.Context, tx Tx) error) {
	w.Helper()
	err := errFailPoint
	for errors.Is(err, errFailPoint) {
		_, err = w.box.InTx(w.Context(), f)
	}
	w.must(err)
}

// ends waits for the end of an instance and checks its status, and that its history ends with it.
func (w *world[Tx]) ends(s *saga.Saga[Tx, order], id string, want saga.Status) saga.Result[order] {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	r, err := s.Wait(ctx, id)
	if err != nil {
		w.Fatalf("%v; history:\n%s", err, w.historyText(id))
	}
	if r.Status != want {
		w.Fatalf("instance %s ended %s, want %s; history:\n%s", id, r.Status, want, w.historyText(id))
	}
	return r
}

// becomes waits until an instance satisfies a condition.
func (w *world[Tx]) becomes(s *saga.Saga[Tx, order], id, what string, is func(saga.Result[order]) bool) saga.Result[order] {
	w.Helper()
	for begun := time.Now(); ; rest(begun) {
		r, err := s.Get(w.Context(), id)
		w.must(err)
		if is(r) {
			return r
		}
		if time.Since(begun) > patience {
			w.Fatalf("instance %s is %s and waits for %q, want %s; history:\n%s", id, r.Status, r.Waiting, what, w.historyText(id))
		}
	}
}

// ledger waits until the effects are as wanted; steps that are not named have none.
func (w *world[Tx]) ledger(want map[string]int) {
	w.Helper()
	var got map[string]int
	for begun := time.Now(); time.Since(begun) < patience; rest(begun) {
		w.mu.Lock()
		got = maps.Clone(w.effects)
		w.mu.Unlock()
		maps.DeleteFunc(got, func(step string, n int) bool { return n == 0 || step == "" })
		if maps.Equal(got, want) {
			return
		}
	}
	w.Errorf("the effects that are left are %v, want %v", got, want)
}

// history returns the names of the entries of an instance's history, with their steps.
func (w *world[Tx]) history(id string) (entries []string) {
	w.Helper()
	for t, err := range w.engine.History(w.Context(), id) {
		w.must(err)
		for _, e := range t.Entries {
			entry := e.Name
			if e.Step != "" {
				entry += " " + e.Step
			}
			entries = append(entries, entry)
		}
	}
	return entries
}

// equal compares lists.
func (w *world[Tx]) equal(what string, got, want []string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
