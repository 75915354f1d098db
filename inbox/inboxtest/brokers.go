package inboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

// Source is a real broker, or any other source of consumers.
type Source struct {
	// Publish publishes messages to the source. Their topic is Topic.
	Publish func(ctx context.Context, msgs []*postrider.Message) []error
	Topic   string
	// Join returns the subscriber of another process of the same group. It registers closing with t.Cleanup. Messages
	// that a killed process had not settled should be redelivered within seconds.
	Join func(t testing.TB) postrider.Subscriber
}

// Broker tests that consumers over a source and a store process every message exactly once, and in order per key if the
// source says that it keeps it: while messages are published twice, handlers fail, acknowledgements are lost or replaced
// by a nack, and processes are killed and stopped. It tries transactions of single messages and batches, each on a
// source returned by open.
func Broker[Tx any](t *testing.T, h Harness[Tx], open func(t testing.TB) Source) {
	for _, mode := range []struct {
		name string
		cfg  inbox.ConsumerConfig
	}{
		{"ByID", inbox.ConsumerConfig{}},
		{"ByIDBatched", inbox.ConsumerConfig{Batch: 7}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			source := open(t)
			caps := source.Join(t).Capabilities()
			(&brokerTest[Tx]{world: newWorld(t, h), source: source, cfg: mode.cfg, caps: caps}).run()
		})
	}
}

// ByID is Broker with deduplication by ID only.
func ByID[Tx any](t *testing.T, h Harness[Tx], source Source) {
	(&brokerTest[Tx]{world: newWorld(t, h), source: source, caps: source.Join(t).Capabilities()}).run()
}

// brokerTest is one test over a source.
type brokerTest[Tx any] struct {
	*world[Tx]
	source Source
	cfg    inbox.ConsumerConfig
	caps   postrider.SubscriberCapabilities
	calm   atomic.Bool // faults have stopped
	order  map[string][]string
}

const brokerRounds = 6

func (b *brokerTest[Tx]) run() {
	b.order = make(map[string][]string)
	var total int
	processes := []*process[Tx]{b.join(), b.join()}
	b.until("somebody reads", func() bool { return processes[0].Ready() == nil && processes[1].Ready() == nil })
	for round := range brokerRounds {
		total += b.publish()
		i := round % len(processes)
		b.until("something has its effect", func() bool { return len(b.effects()) >= total/2 })
		if round%3 == 2 {
			processes[i].kill()
			processes[i] = b.join()
		}
		if round == 4 {
			processes[i].stop()
			processes[i] = b.join()
		}
	}
	b.calm.Store(true)
	b.until("every message has its effect", func() bool { return len(b.effects()) >= total })
	b.until("nothing is parked", func() bool { st := b.status(); return st.Parked.N == 0 && st.Held.N == 0 })
	total += b.publish() // and settled messages do not block new ones
	b.until("the last messages have their effect", func() bool { return len(b.effects()) >= total })
	for _, p := range processes {
		p.stop()
	}
	b.outcome(total)
}

// publish publishes a few messages, some of them twice, and returns how many distinct ones.
func (b *brokerTest[Tx]) publish() int {
	b.t.Helper()
	n := 0
	for _, key := range []string{"a", "b", "a", "", "c", "a", "b", ""} {
		m := b.message(key)
		m.Topic = b.source.Topic
		b.order[key] = append(b.order[key], m.ID)
		n++
		again := 1
		if rand.IntN(4) == 0 {
			again = 2
		}
		for range again {
			for _, err := range b.source.Publish(b.ctx, []*postrider.Message{m}) {
				b.must(err, "publish")
			}
		}
	}
	return n
}

// join starts a process.
func (b *brokerTest[Tx]) join() *process[Tx] {
	b.t.Helper()
	cfg := b.cfg
	cfg.MaxAttempts, cfg.LocalAttempts = 1000, 2
	var p *process[Tx]
	p = b.build(setting[Tx]{
		cfg: cfg, reads: b.unreliable(b.source.Join(b.t)),
		handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := p.connection.using(tx, func() error { return b.effect(ctx, tx, m) }); err != nil {
				return err
			}
			if b.faulty(8) {
				return errBoom
			}
			return nil
		},
	})
	go func() { p.done <- p.Run(b.ctx) }()
	b.t.Cleanup(p.stop)
	return p
}

// faulty returns true in one of n cases, while there are faults.
func (b *brokerTest[Tx]) faulty(n int) bool { return !b.calm.Load() && rand.IntN(n) == 0 }

func (b *brokerTest[Tx]) outcome(total int) {
	b.t.Helper()
	got := b.effects()
	if distinct := len(slices.Compact(slices.Sorted(slices.Values(got)))); len(got) != total || distinct != total {
		b.t.Errorf("%d effects, of %d different messages, want %d of each", len(got), distinct, total)
	}
	if !b.caps.Ordered {
		return
	}
	for key, of := range b.order {
		if key != "" {
			b.want("order of key "+key, b.effectsOf(key), of)
		}
	}
}

// unreliable makes the settlements of a subscriber fail. A log has none.
func (b *brokerTest[Tx]) unreliable(s postrider.Subscriber) postrider.Subscriber {
	if b.caps.Log {
		return s
	}
	return unreliable{s, b.faulty}
}

// unreliable is a subscriber whose settlements fail: an acknowledgement is lost and the message is redelivered.
type unreliable struct {
	postrider.Subscriber
	fails func(n int) bool
}

func (u unreliable) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	s, err := u.Subscriber.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	return unreliableSubscription{s, u.fails}, nil
}

type unreliableSubscription struct {
	postrider.Subscription
	fails func(n int) bool
}

func (s unreliableSubscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	deliveries, err := s.Subscription.Receive(ctx, limit)
	for _, d := range deliveries {
		d.Settler = &unreliableSettler{Settler: d.Settler, fails: s.fails}
	}
	return deliveries, err
}

type unreliableSettler struct {
	postrider.Settler
	fails func(n int) bool
	once  sync.Once
}

var errLostAck = errors.New("inboxtest: the acknowledgement got lost")

func (s *unreliableSettler) Ack(ctx context.Context) (err error) {
	s.once.Do(func() {
		if s.fails(6) {
			err = errors.Join(errLostAck, s.Nack(ctx, 0))
			return
		}
		err = s.Settler.Ack(ctx)
	})
	return err
}
