package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// remote is a store in which other processes publish, which do not wake this one.
type remote struct {
	*memory.Store
	wake  *signal.Broadcast
	last  *atomic.Int64
	looks *atomic.Int64
}

func newRemote(s *memory.Store) remote {
	return remote{s, new(signal.Broadcast), new(atomic.Int64), new(atomic.Int64)}
}

func (r remote) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	return r.wake.Subscribe(takes)
}

func (r remote) Listen(ctx context.Context) error {
	r.wake.Alone(ctx, func() {
		r.wake.Watch(ctx, func(context.Context) (int64, error) {
			r.looks.Add(1)
			return r.last.Load(), nil
		})
	})
	return nil
}

// remoteRelays runs relays on a store in which other processes publish. The function returns how often they have read it since the last
// call, and how often they have polled for parked messages.
func remoteRelays(t *testing.T, names ...string) (b *bundle, s remote, arrived *atomic.Pointer[time.Time], counts func() (fetches, polls int)) {
	var fetches, polls atomic.Int64
	b = faulty(t, func(op string, done bool) error {
		switch {
		case done:
		case op == "Fetch":
			fetches.Add(1)
		case op == "Due":
			polls.Add(1)
		}
		return nil
	})
	s, arrived = newRemote(b.store), new(atomic.Pointer[time.Time])
	for _, name := range names {
		r, err := relay.New(s, relay.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		handler := func(context.Context, *postrider.Message) error {
			now := time.Now()
			arrived.Store(&now)
			return nil
		}
		if err := r.HandleFunc("order.placed", handler); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := r.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return b, s, arrived, func() (int, int) { return int(fetches.Swap(0)), int(polls.Swap(0)) }
}

func publishedElsewhere(b *bundle, s remote) {
	b.publish(&postrider.Message{ID: postrider.NewID(), Type: "order.placed", Topic: "orders", Source: "test", Time: time.Now(), Payload: []byte("{}")})
	s.last.Add(1)
}

// TestFirstMessageAfterAnIdleHour: with defaults, a relay that nobody wakes finds a message within 100 ms, by at most ten cheap
// looks, one fetch and one poll for parked messages in a second. Two relays of a process share the looks.
func TestFirstMessageAfterAnIdleHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s, arrived, counts := remoteRelays(t, "r", "q")
		counts()
		s.looks.Store(0)
		pass(time.Hour)
		fetches, polls := counts()
		if n := s.looks.Load(); n > 36_001 || fetches > 2*3_620 || polls > 2*3_620 {
			t.Errorf("in an idle hour, %d looks, %d fetches and %d polls for parked messages of two relays", n, fetches, polls)
		}
		for i := range 20 {
			pass(10*time.Second + time.Duration(i)*7*time.Millisecond)
			began := time.Now()
			publishedElsewhere(b, s)
			pass(time.Second)
			if took := arrived.Load().Sub(began); took < 0 || took > 100*time.Millisecond {
				t.Errorf("the message arrived after %s", took)
			}
		}
	})
}

// TestCommitsWithoutMessages: a relay that is woken without reason all the time does not read more often than it polls when busy, and
// still finds a message as fast.
func TestCommitsWithoutMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s, arrived, counts := remoteRelays(t, "r")
		pass(time.Second)
		counts()
		for i := range 1000 {
			if i%100 == 99 {
				began := time.Now()
				publishedElsewhere(b, s)
				for range 30 {
					s.wake.Wake()
					pass(time.Millisecond)
				}
				if took := arrived.Load().Sub(began); took < 0 || took > 26*time.Millisecond {
					t.Errorf("the message arrived after %s", took)
				}
			}
			s.wake.Wake()
			pass(time.Millisecond)
		}
		if fetches, _ := counts(); fetches > 200 {
			t.Errorf("%d fetches after 1,300 wake-ups in 1.3 s", fetches)
		}
	})
}
