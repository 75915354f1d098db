package resilience_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/resilience"
	"github.com/postrider/postrider/store"
	memorystore "github.com/postrider/postrider/store/memory"
)

// dependency is another system that can be down.
type dependency struct {
	mu        sync.Mutex
	down      bool
	calls     int
	delivered map[string][]string // IDs by key
}

func (d *dependency) set(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.calls = down, 0
}

func (d *dependency) called() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func (d *dependency) handle(_ context.Context, m *postrider.Message) error {
	time.Sleep(10 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.down {
		return errDown
	}
	if d.delivered == nil {
		d.delivered = make(map[string][]string)
	}
	d.delivered[m.Key] = append(d.delivered[m.Key], m.ID)
	return nil
}

// wantInOrder checks that n messages were delivered once, in the order of each key.
func (d *dependency) wantInOrder(t *testing.T, n int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, ids := range d.delivered {
		for i, id := range ids {
			if i > 0 && id <= ids[i-1] {
				t.Errorf("key %s: %s after %s", key, id, ids[i-1])
			}
		}
		n -= len(ids)
	}
	if n != 0 {
		t.Errorf("%d messages are not delivered", n)
	}
}

// messages returns n messages of 500 keys.
func messages(from, n int) (out []*postrider.Message) {
	for i := from; i < from+n; i++ {
		out = append(out, &postrider.Message{ID: fmt.Sprintf("m%06d", i), Type: "t", Topic: "t", Key: fmt.Sprint(i % 500), Time: time.Now(), Payload: []byte("{}")})
	}
	return out
}

func commit(t *testing.T, s *memorystore.Store, msgs []*postrider.Message) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err == nil {
		err = s.Insert(t.Context(), tx, msgs)
	}
	if err == nil {
		err = s.Commit(t.Context(), tx)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Wake()
}

// run runs until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func relayStatus(t *testing.T, s *memorystore.Store) store.RelayStatus {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil || len(st.Relays) != 1 {
		t.Fatal(err, st.Relays)
	}
	return st.Relays[0]
}

// TestRelayWithGate: for a minute, what all handlers need is down, and 10,000 messages wait. With the breaker as the gate, a few
// calls are made, no other keys are held than those of the messages that failed, and all is delivered in order afterwards.
func TestRelayWithGate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := &dependency{down: true}
		o := newSet(t, resilience.Config{}).Operation("payment")
		s := memorystore.New(memorystore.Config{Partitions: 4})
		r, err := relay.New(s, relay.Config{Name: "r", Gate: o, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.HandleFunc("t", resilience.Handler(o, d.handle)); err != nil {
			t.Fatal(err)
		}
		commit(t, s, messages(0, 10_000))
		run(t, r.Run)
		pass(5 * time.Second)
		if n := d.called(); n > 21 || !isOpen(o) { // those of 16 workers at the start
			t.Fatalf("%d calls until the breaker opened", n)
		}
		pass(55 * time.Second)
		st := relayStatus(t, s)
		if n, u := d.called(), r.Usage(); n > 21+4*3 || st.Parked.N > int64(20*n) || !u.Closed { // the keys of failed messages are held
			t.Errorf("%d calls in a minute, %d messages parked, %+v", n, st.Parked.N, u)
		}
		d.set(false)
		pass(5 * time.Minute)
		d.wantInOrder(t, 10_000)
		if st := relayStatus(t, s); st.Failed > 21+5*3 || st.Dead.N > 0 {
			t.Errorf("%d failed attempts, %d dead letters", st.Failed, st.Dead.N)
		}
	})
}

// TestHalfOpenGate: exactly as many messages are started as the half-open breaker lets through.
func TestHalfOpenGate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := &dependency{}
		set := newSet(t, resilience.Config{Default: resilience.Policy{Breaker: resilience.Breaker{OpenFor: 10 * time.Second, MinCalls: 1, Probes: 2}}})
		o := set.Operation("payment")
		end(t, o, 1, resilience.Decline(nil))
		s := memorystore.New(memorystore.Config{Partitions: 4})
		r, err := relay.New(s, relay.Config{Name: "r", Gate: o, Concurrency: 16, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		if err := r.HandleFunc("t", resilience.Handler(o, func(ctx context.Context, m *postrider.Message) error {
			d.mu.Lock()
			d.calls++
			d.mu.Unlock()
			<-release
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		end(t, o, 1, errDown) // takes three attempts
		commit(t, s, messages(0, 100))
		run(t, r.Run)
		pass(5 * time.Second)
		if n := d.called(); n != 0 {
			t.Fatalf("%d messages are started while the breaker is open", n)
		}
		pass(10 * time.Second)
		if n := d.called(); n < 1 || n > 2 {
			t.Errorf("%d messages are started while the breaker is half-open", n)
		}
		if st := relayStatus(t, s); st.Parked.N > 2 { // the slow ones
			t.Errorf("%d messages are parked", st.Parked.N)
		}
		close(release)
		pass(10 * time.Second)
		if n := d.called(); n != 100 {
			t.Errorf("%d messages are handled", n)
		}
	})
}

// TestRelayWithoutGate: without the gate, keys are held meanwhile, and calls that are not made count as no attempt. The
// database is written to no more often than the breaker opens: once and a half for each key.
func TestRelayWithoutGate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := &dependency{down: true}
		o := newSet(t, resilience.Config{}).Operation("payment")
		s := memorystore.New(memorystore.Config{Partitions: 4})
		var written atomic.Int64
		settled := func(s observe.Settled) {
			for _, one := range s.Settlements {
				written.Add(int64(len(one.Parked) + len(one.Held) + len(one.Dead)))
			}
		}
		r, err := relay.New(s, relay.Config{
			Name: "r", MaxAttempts: 30, Logger: slog.New(slog.DiscardHandler), Observer: &observe.Relay{Settled: settled},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.HandleFunc("t", resilience.Handler(o, d.handle)); err != nil {
			t.Fatal(err)
		}
		commit(t, s, messages(0, 2000))
		run(t, r.Run)
		pass(5 * time.Second)
		before := written.Load()
		pass(time.Minute)
		if rows, most := written.Load()-before, int64(500*60/10*3/2); rows > most {
			t.Errorf("%d rows were written in a minute, want %d at most", rows, most)
		}
		if st := relayStatus(t, s); st.Held.N != 500 || st.Failed > 21+4*3 || int(st.Failed) != d.called() {
			t.Errorf("%d keys are held, %d attempts failed, %d calls", st.Held.N, st.Failed, d.called())
		}
		d.set(false)
		pass(5 * time.Minute)
		d.wantInOrder(t, 2000)
	})
}

// TestConsumerWithGate: a consumer whose gate is closed reads nothing more, and parks nothing.
func TestConsumerWithGate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := &dependency{down: true}
		o := newSet(t, resilience.Config{}).Operation("payment")
		s := memorystore.New(memorystore.Config{Partitions: 4})
		broker, err := memorybroker.New(memorybroker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(s)
		if err != nil {
			t.Fatal(err)
		}
		sub, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "g", Topics: []string{"t"}, Partitions: 4})
		if err != nil {
			t.Fatal(err)
		}
		c, err := inbox.NewConsumer(in, sub, inbox.ConsumerConfig{Name: "c", Gate: o, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleFunc("t", func(ctx context.Context, _ *memorystore.Tx, m *postrider.Message) error {
			return resilience.Handler(o, d.handle)(ctx, m)
		}); err != nil {
			t.Fatal(err)
		}
		if errs := broker.Publish(t.Context(), messages(0, 1000)); errs != nil {
			t.Fatal(errs)
		}
		run(t, c.Run)
		pass(time.Minute)
		if st := c.Stats(); st.Parked > 40 || d.called() > 40 {
			t.Errorf("%d calls in a minute, %+v", d.called(), st)
		}
		d.set(false)
		pass(5 * time.Minute)
		d.wantInOrder(t, 1000)
	})
}
