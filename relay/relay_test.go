package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

func handle(t *testing.T, r *relay.Relay, h postrider.Handler) {
	t.Helper()
	if err := r.HandleFunc("t", h); err != nil {
		t.Fatal(err)
	}
}

func TestDeliversInOrderPerKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		var wantA, wantB []string
		for range 500 {
			a, c := b.msg("a"), b.msg("b")
			wantA, wantB = append(wantA, a.ID), append(wantB, c.ID)
			b.publish(a, c, b.msg(""))
		}
		r := b.relay(relay.Config{})
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			time.Sleep(time.Microsecond)
			j.note(m)
			return nil
		})
		b.start(r)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "key a", j.of("a"), wantA)
		want(t, "key b", j.of("b"), wantB)
		if n := len(j.of("")); n != 500 {
			t.Errorf("delivered %d messages without a key, want 500", n)
		}
		if st := b.status(); st.Backlog.N != 0 || st.Delivered != 1500 {
			t.Errorf("backlog %d delivered %d, want 0 and 1500", st.Backlog.N, st.Delivered)
		}
	})
}

func TestDelayedMessageWaitsForItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		late := b.msg("k")
		late.DeliverAfter = time.Hour
		b.publish(late, b.msg("k"))
		r := b.relay(relay.Config{})
		var at time.Time
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.ID == "m001" {
				at = time.Now()
			}
			j.note(m)
			return nil
		})
		start := time.Now()
		b.start(r)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "at once", j.of("k"), []string{"m002"})
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		want(t, "in the end", j.of("k"), []string{"m002", "m001"})
		if d := at.Sub(start); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("delivered after %s, want one hour", d)
		}
	})
}

func TestSlowMessageIsParkedAndDeliveredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		b.publish(b.msgs("k", "k", "", "k")...)
		r := b.relay(relay.Config{})
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.ID == "m001" || m.ID == "m003" {
				time.Sleep(10 * time.Minute) // much longer than a lease
			}
			j.note(m)
			return nil
		})
		b.start(r)
		time.Sleep(time.Minute)
		b.publish(b.msg("k"))
		time.Sleep(time.Second)
		if st := b.status(); st.Backlog.N != 0 || st.Held.N != 1 || st.Parked.N != 5 {
			t.Errorf("backlog %d held %d parked %d while slow, want 0, 1, 5", st.Backlog.N, st.Held.N, st.Parked.N)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		want(t, "key", j.of("k"), []string{"m001", "m002", "m004", "m005"})
		want(t, "no key", j.of(""), []string{"m003"})
		if st := b.status(); st.Held.N+st.Parked.N != 0 {
			t.Errorf("left over: %+v", st)
		}
	})
}

// TestBrokerDownCountsNoAttempt: neither when the publisher says so, nor when its calls end without an answer.
func TestBrokerDownCountsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(ctx context.Context) error{
		"unavailable": func(context.Context) error { return postrider.Unavailable(errBoom) },
		"no answer":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				var ids []string
				for range 3000 {
					m := b.msg("k")
					ids = append(ids, m.ID)
					b.publish(m, b.msg(fmt.Sprint(len(ids)%100)))
				}
				var down atomic.Bool
				var calls atomic.Int32
				down.Store(true)
				r := b.relay(relay.Config{MaxInFlight: 500, Publisher: publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
					calls.Add(1)
					if !down.Load() {
						for _, m := range msgs {
							if m.Attempt != 1 {
								t.Errorf("message %s at attempt %d", m.ID, m.Attempt)
							}
							j.note(m)
						}
						return nil
					}
					return slices.Repeat([]error{fails(ctx)}, len(msgs))
				})})
				b.start(r)
				pass(5 * time.Minute)
				if n := calls.Load(); n > 100 {
					t.Errorf("%d calls in five minutes of outage", n)
				}
				if st := b.status(); st.Failed != 0 || st.Dead.N != 0 {
					t.Errorf("in an outage %d attempts failed and %d messages are dead, want none", st.Failed, st.Dead.N)
				}
				down.Store(false)
				pass(3 * time.Minute)
				want(t, "key", j.of("k"), ids)
				if j.len() != 6000 {
					t.Errorf("delivered %d, want 6000", j.len())
				}
			})
		})
	}
}

func TestTwoProcessesShareAndHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		note := func(_ context.Context, m *postrider.Message) error { j.note(m); return nil }
		one, two := b.relay(relay.Config{}), b.relay(relay.Config{})
		handle(t, one, note)
		handle(t, two, note)
		b.start(one)
		time.Sleep(time.Second)
		owners := func() map[string]int {
			n := make(map[string]int)
			for _, p := range b.status().Partitions {
				n[p.Owner]++
			}
			return n
		}
		if n := owners()[one.Owner().ID]; n != 4 {
			t.Fatalf("alone, it holds %d of 4", n)
		}
		stop := b.start(two)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := owners(); n[one.Owner().ID] != 2 || n[two.Owner().ID] != 2 {
			t.Fatalf("two processes hold %v", n)
		}
		for i := range 100 {
			b.publish(b.msg(fmt.Sprint(i % 10)))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if j.len() != 100 {
			t.Errorf("delivered %d, want 100, each once", j.len())
		}
		stop()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := owners()[one.Owner().ID]; n != 4 {
			t.Errorf("alone again, it holds %d of 4", n)
		}
	})
}

func TestInterceptorsWrapInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg(""))
		var seen []string
		layer := func(name string) relay.Interceptor {
			return func(next postrider.Handler) postrider.Handler {
				return func(ctx context.Context, m *postrider.Message) error {
					seen = append(seen, "before "+name)
					defer func() { seen = append(seen, "after "+name) }()
					return next(ctx, m)
				}
			}
		}
		r := b.relay(relay.Config{Interceptors: []relay.Interceptor{layer("1"), layer("2")}})
		handle(t, r, func(context.Context, *postrider.Message) error { seen = append(seen, "handler"); return nil })
		b.start(r)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := []string{"before 1", "before 2", "handler", "after 2", "after 1"}; !slices.Equal(seen, w) {
			t.Errorf("got %v, want %v", seen, w)
		}
	})
}
