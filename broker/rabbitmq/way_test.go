package rabbitmqbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// way is the whole path of messages: published in one database, relayed to RabbitMQ, and read by two processes of a
// consumer. Their side effect is a message in another database, which a relay delivers to effects.
type way struct {
	publisher, consumers *proxy
	source, target       *memory.Store
	effects              *memorybroker.Broker
}

type placed struct {
	Number int64 `json:"number"`
}

var orderPlaced = postrider.Define[placed]("order.placed").WithTopic("orders.placed")

func newWay(t *testing.T, address, queueType string) *way {
	t.Helper()
	w := &way{
		publisher: newProxy(t, hostOf(t, address)), consumers: newProxy(t, hostOf(t, address)),
		source: memory.New(memory.Config{}), target: memory.New(memory.Config{}),
	}
	var err error
	if w.effects, err = memorybroker.New(memorybroker.Config{}); err != nil {
		t.Fatal(err)
	}
	exchange, queue := unique("exchange"), unique("queue")
	p, err := rabbitmqbroker.Open(t.Context(), through(t, address, w.publisher), rabbitmqbroker.Config{Exchange: exchange})
	if err != nil {
		t.Fatal(err)
	}
	w.removeAfter(t, address, exchange, queue)
	w.relay(t, w.source, p)
	w.relay(t, w.target, w.effects)
	box, err := outbox.New(w.target, outbox.Config{Source: "/shipping"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.consume(t, address, box, rabbitmqbroker.SubscriberConfig{Queue: queue, Exchange: exchange, Ordered: true, QueueType: queueType})
	}
	t.Cleanup(func() { _ = p.Close() }) // it returns nil
	return w
}

func (w *way) removeAfter(t *testing.T, address, exchange, queue string) {
	t.Cleanup(func() {
		ch := dial(t, address)
		deleteQueue(t, ch, queue)
		deleteExchange(t, ch, exchange)
	})
}

// run runs something until the test ends.
func run(t *testing.T, what func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := what(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (w *way) relay(t *testing.T, from *memory.Store, to postrider.Publisher) {
	t.Helper()
	r, err := relay.New(from, relay.Config{
		Name: "test", Publisher: to, MaxAttempts: 1_000, BackoffMax: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
}

func (w *way) consume(t *testing.T, address string, box *outbox.Outbox[*memory.Tx], cfg rabbitmqbroker.SubscriberConfig) {
	t.Helper()
	s, err := rabbitmqbroker.OpenSubscriber(t.Context(), through(t, address, w.consumers), cfg)
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New(w.target)
	if err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, s, inbox.ConsumerConfig{
		Name: "shipping", RequireOrder: cfg.Ordered, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = inbox.Handle(c, orderPlaced, func(ctx context.Context, tx *memory.Tx, m postrider.Typed[placed]) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{
			ID: "effect of " + m.ID, Type: "order.shipped", Key: m.Key, AggregateVersion: m.AggregateVersion,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, c.Run)
}

// travel publishes messages and causes trouble whenever some of them have had their side effect. In the end every
// message must have had it once, and in the order of its key.
func (w *way) travel(t *testing.T, rounds, perRound int, trouble func(round int)) {
	t.Helper()
	box, err := outbox.New(w.source, outbox.Config{Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	effects := w.effects.Subscribe(ctx, "order.shipped")
	version := make(map[string]int64)
	sent := 0
	publish := func() {
		for range perRound {
			m, err := orderPlaced.New(placed{Number: int64(sent)})
			if err != nil {
				t.Fatal(err)
			}
			m.Key = fmt.Sprintf("order/%d", sent%7)
			version[m.Key]++
			m.AggregateVersion = version[m.Key]
			sent++
			if _, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
				_, err := box.Publish(ctx, tx, m)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	last, seen, round := make(map[string]int64), 0, 0
	for m := range effects {
		if seen++; m.AggregateVersion != last[m.Key]+1 {
			t.Errorf("number %d of %s has its effect after number %d", m.AggregateVersion, m.Key, last[m.Key])
		}
		last[m.Key] = m.AggregateVersion
		if seen == sent-perRound/2 && round < rounds {
			publish()
			trouble(round)
			round++
		}
		if seen == sent {
			break
		}
	}
	if seen != sent {
		t.Fatalf("%d of %d messages had their effect: %v", seen, sent, ctx.Err())
	}
	if n := len(w.effects.Messages("order.shipped")); n != sent {
		t.Errorf("%d messages had %d effects", sent, n)
	}
}

// TestWayThroughCuts repeatedly cuts the connections of relay and consumers.
func TestWayThroughCuts(t *testing.T) {
	t.Parallel()
	w := newWay(t, running(t), rabbitmqbroker.QuorumQueue)
	w.travel(t, 12, 60, func(round int) {
		if round%2 == 0 {
			w.publisher.Drop()
		}
		w.consumers.Drop()
	})
}
