package saga_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

// tracked runs a contract, and the handlers that it is given, on one relay. It returns the engine and what publishes an event of a
// business process that its header identifies. At the end, nothing may be dead-lettered.
func tracked(
	t *testing.T, c saga.Contract, handle func(r *relay.Relay, p *saga.Participant[*memory.Tx]) error, interceptors ...relay.Interceptor,
) (
	*saga.Engine[*memory.Tx], func(process string, event postrider.Definition[Order]),
) {
	t.Helper()
	return trackedAll(t, []saga.Contract{c}, handle, interceptors...)
}

// trackedAll is tracked for several contracts.
func trackedAll(
	t *testing.T, all []saga.Contract, handle func(r *relay.Relay, p *saga.Participant[*memory.Tx]) error, interceptors ...relay.Interceptor,
) (
	*saga.Engine[*memory.Tx], func(process string, event postrider.Definition[Order]),
) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	must(err)
	engine, err := saga.New(store, box, saga.Config{Name: "shop"})
	must(err)
	for _, c := range all {
		must(saga.Track(engine, c))
	}
	p, err := saga.NewParticipant(store, box, saga.ParticipantConfig{Name: "shop"})
	must(err)
	r, err := relay.New(store, relay.Config{Name: "all", Interceptors: interceptors})
	must(err)
	must(errors.Join(engine.Relay(r), handle(r, p)))
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(<-done)
		status, err := store.Status(context.Background())
		must(err)
		if n := status.Relays[0].Dead.N; n > 0 {
			t.Errorf("%d dead letters", n)
		}
	})
	return engine, func(process string, event postrider.Definition[Order]) {
		m, err := event.New(Order{})
		must(err)
		m.Headers = map[string]string{"postrider-saga": process}
		_, err = box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := box.Publish(ctx, tx, m)
			return err
		})
		must(err)
	}
}

// TestCancelWithinIsKept: a contract does not promise to cancel what the engine has removed.
func TestCancelWithinIsKept(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	for _, tt := range []struct {
		keep, cancel time.Duration
		refused      bool
	}{
		{0, week, false}, {0, week + 1, true}, {time.Hour, 2 * time.Hour, true}, {-1, 100 * week, false}, {time.Hour, 0, false},
	} {
		store := memory.New(memory.Config{})
		box, err := outbox.New(store, outbox.Config{Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		engine, err := saga.New(store, box, saga.Config{Name: "shop", KeepEnded: tt.keep})
		if err != nil {
			t.Fatal(err)
		}
		c := FulfilmentByEvents
		c.Events = slices.Clone(c.Events)
		c.Events[3].NoUndo, c.CancelWithin = true, tt.cancel
		if err := saga.Track(engine, c); (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), "KeepEnded") {
			t.Errorf("KeepEnded %s and CancelWithin %s: %v", tt.keep, tt.cancel, err)
		}
	}
}

// TestIdentityThatNoStoreTakes: an event whose Instance is not text is tracked under a stand-in, and is no dead letter: other contracts
// may know it.
func TestIdentityThatNoStoreTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := saga.Contract{
			Name: "orders", Version: 1, Instance: func(*postrider.Message) string { return "order\xff\x00" },
			Events: []saga.Event{
				{On: OrderCreated, Service: "orders", Start: true, NoUndo: true},
				{On: OrderConfirmed, Service: "orders", After: saga.Defs{OrderCreated}, End: true, NoUndo: true},
			},
		}
		engine, publish := tracked(t, c, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil })
		publish("p-1", OrderCreated)
		publish("p-1", OrderConfirmed)
		synctest.Wait()
		id := stored.StandIn("order\xff\x00", postrider.MaxIDBytes)
		if got, err := engine.Get(t.Context(), id); err != nil || got.Status != saga.Completed {
			t.Errorf("instance %s is %s (%v), want it completed", id, got.Status, err)
		}
	})
}

// TestTimedOutNamesTheProcess: services that hear "saga.timed-out" undo their steps of the business process, also if a header
// identifies it.
func TestTimedOutNamesTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := saga.Contract{Name: "orders", Version: 1, Deadline: time.Minute, Compensate: saga.Observe, Events: []saga.Event{
			{On: OrderCreated, Service: "orders", Start: true, Undone: OrderCancelled},
			{On: OrderConfirmed, Service: "orders", After: saga.Defs{OrderCreated}, End: true, NoUndo: true},
		}}
		engine, publish := tracked(t, c, func(r *relay.Relay, p *saga.Participant[*memory.Tx]) error {
			return relay.HandleTx(r, postrider.Define[saga.Report]("saga.timed-out"), func(ctx context.Context, tx *memory.Tx, m postrider.Typed[saga.Report]) error {
				return p.Undo(ctx, tx, "create", func(context.Context, *postrider.Message) (*postrider.Message, error) {
					return OrderCancelled.New(Order{})
				})
			})
		})
		publish("p-1", OrderCreated)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, err := engine.Get(t.Context(), "p-1"); err != nil || got.Status != saga.Compensated {
			t.Errorf("the instance is %s (%v), and waits for %q; want it compensated", got.Status, err, got.Waiting)
		}
	})
}

// TestEventOfNoInstance: an event that belongs to no instance begins none, and is no dead letter.
func TestEventOfNoInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := FulfilmentByEvents
		c.Instance = func(m *postrider.Message) string {
			if m.Headers["postrider-saga"] == "subscription" {
				return ""
			}
			return m.Headers["postrider-saga"]
		}
		engine, publish := tracked(t, c, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil })
		publish("subscription", CardCharged)
		publish("p-1", OrderCreated)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, err := engine.Get(t.Context(), "p-1"); err != nil || got.Status != saga.Running {
			t.Errorf("the instance is %s (%v)", got.Status, err)
		}
		if _, err := engine.Get(t.Context(), "subscription"); !errors.Is(err, saga.ErrNotFound) {
			t.Errorf("an event of no instance: %v, want %v", err, saga.ErrNotFound)
		}
	})
}

// TestLateTimerWaitsBriefly: a timer that is handled minutes too late, since the tracker was away, waits only as long as its sources take.
func TestLateTimerWaitsBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := FulfilmentByEvents
		c.Deadline = time.Minute
		var away atomic.Bool
		engine, publish := tracked(t, c, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil }, func(next postrider.Handler) postrider.Handler {
			return func(ctx context.Context, m *postrider.Message) error {
				if m.Type == "postrider.saga.timer" && away.CompareAndSwap(false, true) {
					return postrider.Snooze(10 * time.Minute)
				}
				return next(ctx, m)
			}
		})
		publish("p-1", OrderCreated)
		time.Sleep(11*time.Minute + 2*time.Second)
		synctest.Wait()
		if got, err := engine.Get(t.Context(), "p-1"); err != nil || got.Status != saga.Compensating {
			t.Errorf("seconds after its late timer, the instance is %s (%v), want that it turned back", got.Status, err)
		}
	})
}

// TestTimersWaitForSources: while the events of a contract cannot be read, its timers wait, and cost little.
func TestTimersWaitForSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := FulfilmentByEvents
		c.Deadline = time.Minute
		var postponed atomic.Int64
		engine, publish := tracked(t, c, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil }, func(next postrider.Handler) postrider.Handler {
			return func(ctx context.Context, m *postrider.Message) error {
				err := next(ctx, m)
				if postrider.OutcomeOf(err).Kind == postrider.Snoozed {
					postponed.Add(1)
				}
				return err
			}
		})
		broker, err := memorybroker.New(memorybroker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Topics: engine.Topics()})
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New[*memory.Tx](memory.New(memory.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		events, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "events"}) // it never runs
		if err := errors.Join(err, engine.Consume(events)); err != nil {
			t.Fatal(err)
		}
		publish("p-1", OrderCreated)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, err := engine.Get(t.Context(), "p-1"); err != nil || got.Status != saga.Running {
			t.Errorf("the instance is %s (%v), want it running", got.Status, err)
		}
		if n := postponed.Load(); n < 20 || n > 100 {
			t.Errorf("its timer was postponed %d times in an hour", n)
		}
	})
}
