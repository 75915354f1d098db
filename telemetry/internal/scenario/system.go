package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
)

// The labels of the stores.
const (
	mainStore  = "main"
	otherStore = "other"
)

// place is a store with its label, and what of it fails.
type place struct {
	name  string
	store *memory.Store
	fails *failures
}

// failures are the operations of a store that fail.
type failures struct {
	mu  sync.Mutex
	ops map[string]bool
}

func (f *failures) set(op string, fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops[op] = fails
}

// before implements memory.Config.Fault.
func (f *failures) before(op string, done bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ops[op] && !done {
		return errors.New("permission denied")
	}
	return nil
}

func newPlace(name string) place {
	p := place{name: name, fails: &failures{ops: make(map[string]bool)}}
	p.store = memory.New(memory.Config{Partitions: 2, Fault: p.fails.before})
	return p
}

// auditless is a store whose audit cannot be written while that fails.
type auditless struct {
	*memory.Store
	fails *failures
}

// Change implements store.Records.
func (a auditless) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	return a.Store.Change(ctx, op, func(w store.Writer) error { return f(auditlessWriter{w, a.fails}) })
}

type auditlessWriter struct {
	store.Writer
	fails *failures
}

// PutRecord implements store.Writer.
func (a auditlessWriter) PutRecord(ctx context.Context, r store.Record) error {
	if err := a.fails.before("audit", false); err != nil && r.Table == store.AuditRecords {
		return err
	}
	return a.Writer.PutRecord(ctx, r)
}

// System has relays to a broker and to handlers, consumers that read from the broker, sagas, and a second store.
type System struct {
	Config

	tb TB
	// main is the store, and sick is the same database as another process sees it, for which operations can fail.
	main, sick, other place
	outbox            *outbox.Outbox[*memory.Tx]
	broker, archive   *memorybroker.Broker
	gate              *gate
	disk              *disk // nil if this user may not mount a file system
	sagas             *sagas
	admin             *admin.Service

	hung   chan struct{} // until it is closed, by unhang
	unhang func()

	mu    sync.Mutex
	stops map[string]func() // of processes, by relay or consumer
}

// process records how to stop the process of a relay or consumer.
func (s *System) process(name string, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops[name] = stop
}

// stopOf returns what stops the process of a relay or consumer.
func (s *System) stopOf(name string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stops[name]
}

// Config says how a system runs.
type Config struct {
	// Telemetry is what its processes export through.
	Telemetry *telemetry.Telemetry
	// Rest is that of the load between two messages to each topic, and two sagas.
	Rest   time.Duration
	Logger *slog.Logger
}

// Start starts a system, with constant load.
func Start(tb TB, c Config) *System {
	tb.Helper()
	s, t := newSystem(tb, c), c.Telemetry
	s.start(s.main, "to-broker", relay.Config{Publisher: s.broker})
	for _, name := range []string{"paused", "keys", "surge", "mails", "rolling", "unowned"} {
		s.start(s.main, name, relay.Config{})
	}
	s.start(s.main, "gated", relay.Config{Gate: s.gate})
	s.start(s.sick, "stalled", relay.Config{})
	s.start(s.other, "tidy", relay.Config{})
	s.consumeGroup()
	s.publish(&postrider.Message{ID: "first", Type: "t", Topic: "archive", Key: "k", Time: time.Now()})
	s.consumeLog()
	s.consumeLedger()
	s.sagas = newSagas(s)
	s.admin = admin.New(auditless{s.main.store, s.main.fails}, admin.Config{Name: mainStore, AuditFailed: t.AuditFailed(mainStore), Logger: s.Logger})
	s.Watch(t)
	operations := t.Operations()
	operations.Called(tb.Context(), "charge", "", "failure", 2, time.Second)
	operations.BreakerChanged("charge", "", "open")
	s.load([]string{"to-broker", "mails", "rolling", "paused", "gated", "stalled", "unowned"})
	return s
}

// StartSmall starts the part of a system that SlowFaults is about.
func StartSmall(tb TB, c Config) *System {
	tb.Helper()
	s := newSystem(tb, c)
	for _, name := range []string{"keys", "mails"} {
		s.start(s.main, name, relay.Config{})
	}
	s.Watch(c.Telemetry)
	s.load([]string{"mails"})
	return s
}

func newSystem(tb TB, c Config) *System {
	s := &System{
		Config: c, tb: tb, sick: newPlace(mainStore), other: newPlace(otherStore), gate: &gate{changed: make(chan struct{})},
		disk: mount(tb), stops: make(map[string]func()),
	}
	s.hung = make(chan struct{})
	s.unhang = sync.OnceFunc(func() { close(s.hung) })
	s.main = place{mainStore, s.sick.store.Reopen(), s.sick.fails}
	var err error
	s.outbox, err = outbox.New(s.main.store, outbox.Config{Source: "shop", Observer: c.Telemetry.Outbox(mainStore)})
	must(tb, err)
	s.broker, err = memorybroker.New(memorybroker.Config{})
	must(tb, err)
	s.archive, err = memorybroker.New(memorybroker.Config{})
	must(tb, err)
	return s
}

// Watch exports the state of both stores, as each process of a system does.
func (s *System) Watch(t *telemetry.Telemetry) {
	path := ""
	if s.disk != nil {
		path = s.disk.dir
	}
	for _, p := range []place{s.main, s.other} {
		s.tb.Cleanup(t.WatchStore(telemetry.StoreOf{
			Name: p.name, System: "memory", Store: sized{p.store}, Every: 200 * time.Millisecond, Path: path,
			Targets: map[string]time.Duration{"": time.Minute, "mails": 10 * time.Second, "paused": 20 * time.Second},
		}))
	}
}

// sized is a store in memory that reports the size of a table, as databases do.
type sized struct{ telemetry.Store }

// Status implements store.StatusReader.
func (s sized) Status(ctx context.Context) (store.Status, error) {
	st, err := s.Store.Status(ctx)
	st.Tables = []store.TableSize{{Table: "log", Bytes: 1 << 20}}
	return st, err
}

// run runs f until the returned function is called, or the scenario ends.
func (s *System) run(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.tb.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	s.tb.Cleanup(stop)
	return stop
}

// load sends messages to each topic, five of them in turn to five keys.
func (s *System) load(topics []string) {
	s.run(func(ctx context.Context) error {
		for n := 0; ctx.Err() == nil; n++ {
			for _, topic := range topics {
				s.send(topic, fmt.Sprint(topic, n%5), "t")
			}
			sleep(ctx, s.Rest)
		}
		return nil
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *System) send(topic, key, kind string) {
	s.transact(func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.outbox.Publish(ctx, tx, &postrider.Message{Type: kind, Topic: topic, Key: key})
		return err
	})
}

func (s *System) transact(f func(ctx context.Context, tx *memory.Tx) error) {
	if _, err := s.outbox.InTx(context.Background(), f); err != nil {
		s.tb.Error(err)
	}
}

// keepDelivered keeps the log short, which a store in memory reads as a whole when it is maintained.
const keepDelivered = 10 * time.Minute

// start runs a relay of the topic that has its name. Without a publisher it has a handler, with which one of twenty messages fails at
// first, those of type "rejected" are dead-lettered, and those of type "refused" fail.
func (s *System) start(p place, name string, c relay.Config) {
	c.Name, c.Topics, c.Logger = name, []string{name}, s.Logger
	c.Observer = s.Telemetry.Relay(telemetry.RelayOf{Store: p.name, Relay: name})
	c.BackoffBase, c.MaxAttempts, c.PollMax, c.KeepDelivered = 100*time.Millisecond, 1000, 10*time.Second, keepDelivered
	r, err := relay.New(p.store, c)
	must(s.tb, err)
	if c.Publisher == nil {
		for _, kind := range []string{"t", "refused", "rejected"} {
			must(s.tb, r.HandleFunc(kind, handle))
		}
	}
	unwatch, end := s.Telemetry.WatchRelay(p.name, r), s.run(r.Run)
	s.process(name, func() { end(); unwatch() })
}

func handle(_ context.Context, m *postrider.Message) error {
	switch {
	case m.Type == "rejected":
		return postrider.Dead("rejected", errors.New("no such address"))
	case m.Type == "refused", m.Attempt == 1 && rand.IntN(20) == 0:
		return errors.New("try again")
	}
	return nil
}

// gate is a relay.Gate that can be closed.
type gate struct {
	mu      sync.Mutex
	closed  bool
	changed chan struct{}
}

// Allow implements relay.Gate.
func (g *gate) Allow(limit int) (n int, again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, 0
	}
	return limit, 0
}

// Changed implements relay.Gate.
func (g *gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	close(g.changed)
	g.changed = make(chan struct{})
}
