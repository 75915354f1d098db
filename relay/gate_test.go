package relay_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// gate is a relay.Gate that tests open and close.
type gate struct {
	mu      sync.Mutex
	free    int
	changed chan struct{}
}

func newGate(free int) *gate { return &gate{free: free, changed: make(chan struct{})} }

func (g *gate) set(free int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = free
	close(g.changed)
	g.changed = make(chan struct{})
}

// Allow implements relay.Gate.
func (g *gate) Allow(limit int) (int, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(g.free, limit), 0
}

// Name is what the status says that the relay waits for.
func (g *gate) Name() string { return "payment.charge" }

// Changed implements relay.Gate.
func (g *gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// TestClosedGate: behind a closed gate, nothing is read, parked or started; what is in memory waits there. When it opens, all is
// delivered, in order.
func TestClosedGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j, g := setup(t), &journal{}, newGate(1<<20)
		r := b.relay(relay.Config{Gate: g, Concurrency: 2})
		if err := r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
			time.Sleep(100 * time.Millisecond)
			j.note(m)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.start(r)
		b.publish(b.many(20, "a")...)
		pass(550 * time.Millisecond)
		g.set(0)
		pass(time.Second)
		done := j.len()
		b.publish(b.many(20, "a")...)
		b.publish(b.many(20, "b")...)
		pass(time.Hour)
		if st, u := b.status(), r.Usage(); j.len() != done || done == 0 || done > 8 || st.Parked.N != 0 || !u.Closed || u.Messages > 20 || u.Leases != 4 {
			t.Errorf("%d of %d deliveries in an hour behind a closed gate, %d parked, %+v", j.len()-done, done, st.Parked.N, u)
		}
		st := b.status()
		if gate := st.GateOf(); !gate.Closed || gate.On != "payment.charge" || gate.For < 59*time.Minute || gate.For > 61*time.Minute {
			t.Errorf("the gate is shown as %+v", gate)
		}
		g.set(1)
		pass(time.Minute)
		if st := b.status(); st.GateOf().Closed {
			t.Error("the gate is shown as closed after it has opened")
		}
		b.wantNothingLeft(r)
		if j.len() != 60 {
			t.Errorf("%d of 60 delivered", j.len())
		}
		want(t, "delivered of a", j.of("a"), slices.Sorted(slices.Values(j.of("a"))))
		want(t, "delivered of b", j.of("b"), slices.Sorted(slices.Values(j.of("b"))))
	})
}

// TestParkedMessageAndAGate: a message that is due while the gate is closed is started when it opens.
func TestParkedMessageAndAGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j, g := setup(t), &journal{}, newGate(1)
		r := b.relay(relay.Config{Gate: g})
		failed := false
		if err := r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
			if !failed {
				failed = true
				g.set(0)
				return postrider.Retry(time.Second, errBoom)
			}
			j.note(m)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.start(r)
		b.publish(b.msg("a"))
		pass(time.Hour)
		if j.len() != 0 {
			t.Fatal("delivered behind a closed gate")
		}
		g.set(1)
		pass(time.Second)
		if st := b.status(); j.len() != 1 || st.Failed != 1 {
			t.Errorf("%d delivered, %+v", j.len(), st)
		}
	})
}

// TestCallsThatHangAndAGate: as many calls hang as the gate lets through. Others go out all the same, no more than it lets through.
func TestCallsThatHangAndAGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j, g := setup(t), &journal{}, newGate(1<<20)
		h, hanging, release := j.hang()
		r := b.relay(relay.Config{Gate: g})
		var out, most atomic.Int32
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if !strings.HasPrefix(m.Key, "hang/") {
				most.Store(max(most.Load(), out.Add(1)))
				defer out.Add(-1)
				time.Sleep(time.Second)
			}
			return h(ctx, m)
		})
		b.publish(b.msgs("hang/1", "hang/2", "hang/3")...)
		b.start(r)
		t.Cleanup(release)
		pass(time.Minute)
		if hanging.Load() != 3 {
			t.Fatalf("%d handlers hang, want 3", hanging.Load())
		}
		g.set(3)
		b.publish(b.msgs("a", "b", "c", "d", "e", "f", "g", "h")...)
		pass(4 * time.Second)
		if n := j.len(); n != 8 || most.Load() > 3 {
			t.Errorf("%d of 8 messages of other keys are delivered, %d at a time; want 3: %+v", n, most.Load(), r.Counters())
		}
	})
}

// ofUser is an error of another package that says what becomes of its message.
type ofUser struct{ after time.Duration }

func (e ofUser) Error() string { return "dependency is down" }
func (e ofUser) Outcome() postrider.Outcome {
	return postrider.Outcome{Kind: postrider.BrokerUnavailable, After: e.after, Err: e}
}

// TestUnavailableForAWhile: a message whose handler says for how long something is unavailable is tried again after this time, and
// the attempt does not count.
func TestUnavailableForAWhile(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"UnavailableFor": postrider.UnavailableFor(time.Hour, errBoom), "an error of the user": ofUser{time.Hour},
		"wrapped": errors.Join(errors.New("charge"), ofUser{time.Hour}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, calls := setup(t), atomic.Int32{}
				r := b.relay(relay.Config{MaxAttempts: 1})
				if err := r.HandleFunc("t", func(context.Context, *postrider.Message) error {
					if calls.Add(1) == 1 {
						return err
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				b.start(r)
				b.publish(b.msg("a"))
				pass(59 * time.Minute)
				if calls.Load() != 1 {
					t.Fatalf("%d calls", calls.Load())
				}
				pass(2 * time.Minute)
				if st := b.status(); calls.Load() != 2 || st.Failed != 0 || st.Dead.N != 0 {
					t.Errorf("%d calls, %+v", calls.Load(), st)
				}
			})
		})
	}
}
