package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
)

// system is a small system under load, with faults that can be switched on and off.
type system struct {
	*world
	store  *memory.Store
	outbox *outbox.Outbox[*memory.Tx]

	storeDown, brokerDown atomic.Bool
	stopMails             func()
	stopRolling           func()
}

// flaky is a broker that can be unavailable.
type flaky struct {
	*memorybroker.Broker
	down *atomic.Bool
}

// Publish implements postrider.Publisher.
func (f flaky) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if !f.down.Load() {
		return f.Broker.Publish(ctx, msgs)
	}
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = postrider.Unavailable(errors.New("connection refused"))
	}
	return errs
}

// newSystem has relays to a broker and to handlers, a consumer that reads from the broker, sagas, a second store, and constant load.
func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{world: newWorld(t, telemetry.Config{}), store: memory.New(memory.Config{Partitions: 2})}
	var err error
	s.outbox, err = outbox.New(s.store, outbox.Config{Source: "shop", Observer: s.Outbox("main")})
	must(t, err)
	broker, err := memorybroker.New(memorybroker.Config{})
	must(t, err)
	s.start("to-broker", relay.Config{Publisher: flaky{broker, &s.brokerDown}})
	s.start("paused", relay.Config{})
	s.start("keys", relay.Config{})
	s.startMails()
	s.stopRolling = s.start("rolling", relay.Config{})
	s.consume(broker)
	startSaga := startSagas(t, s.store, s.Saga("main"))
	startSaga("paid")
	startSaga("stuck")
	other := memory.New(memory.Config{Fault: func(op string, _ bool) error {
		if op == "Status" && s.storeDown.Load() {
			return errors.New("connection refused")
		}
		return nil
	}})
	for name, of := range map[string]*memory.Store{"main": s.store, "other": other} {
		t.Cleanup(s.WatchStore(telemetry.StoreOf{
			Name: name, System: "memory", Store: of, Every: 200 * time.Millisecond, Path: t.TempDir(),
			Targets: map[string]time.Duration{"": time.Minute, "mails": 2 * time.Second, "paused": 2 * time.Second},
		}))
	}
	operations := s.Operations()
	operations.Called(t.Context(), "charge", "", "failure", 2, time.Second)
	operations.BreakerChanged("charge", "", "open")
	s.run(func(ctx context.Context) error {
		for n := 0; ctx.Err() == nil; n++ {
			for _, topic := range []string{"to-broker", "mails", "rolling", "paused"} {
				s.send(topic, fmt.Sprint(topic, n%5), "t")
			}
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	})
	return s
}

// run runs f until the returned function is called, or the test ends.
func (s *system) run(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return stop
}

func (s *system) send(topic, key, kind string) {
	_, err := s.outbox.InTx(context.Background(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.outbox.Publish(ctx, tx, &postrider.Message{Type: kind, Topic: topic, Key: key})
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// start runs a relay of the topic that has its name. Without a publisher it has a handler, with which one of twenty messages fails at
// first, those of type "rejected" are dead-lettered, and those of type "refused" fail.
func (s *system) start(name string, c relay.Config) (stop func()) {
	c.Name, c.Topics, c.Logger = name, []string{name}, slog.New(slog.DiscardHandler)
	c.Observer = s.Relay(telemetry.RelayOf{Store: "main", Relay: name})
	c.BackoffBase, c.MaxAttempts = 100*time.Millisecond, 1000
	r, err := relay.New(s.store, c)
	must(s.t, err)
	if c.Publisher == nil {
		for _, kind := range []string{"t", "refused", "rejected"} {
			must(s.t, r.HandleFunc(kind, handle))
		}
	}
	unwatch, ended := s.WatchRelay("main", r), s.run(r.Run)
	return func() { ended(); unwatch() }
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

func (s *system) startMails() { s.stopMails = s.start("mails", relay.Config{}) }

// replaceProcesses replaces the processes of the relay "rolling", one after another, n times.
func (s *system) replaceProcesses(n int) {
	for range n {
		time.Sleep(2 * time.Second)
		next := s.start("rolling", relay.Config{})
		time.Sleep(2 * time.Second)
		s.stopRolling()
		s.stopRolling = next
	}
}

// consume starts the consumer "billing".
func (s *system) consume(broker *memorybroker.Broker) {
	s.t.Helper()
	in, err := inbox.New(s.store)
	must(s.t, err)
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "billing", Topics: []string{"to-broker"}, Partitions: 2})
	must(s.t, err)
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: "billing", Observer: s.Consumer("main", "billing"), Logger: slog.New(slog.DiscardHandler),
	})
	must(s.t, err)
	must(s.t, c.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }))
	s.t.Cleanup(s.WatchConsumer("main", c))
	s.run(c.Run)
}
