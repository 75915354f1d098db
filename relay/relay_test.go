package relay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
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

func TestFailureHoldsItsKeyAndNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		b.publish(b.msgs("bad", "good", "bad", "good", "bad")...)
		r := b.relay(relay.Config{BackoffBase: time.Hour, BackoffMax: time.Hour})
		var broken atomic.Bool
		broken.Store(true)
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.Key == "bad" && broken.Load() {
				return errBoom
			}
			j.note(m)
			return nil
		})
		b.start(r)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.publish(b.msgs("bad", "good")...)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "good while bad is held", j.of("good"), []string{"m002", "m004", "m007"})
		want(t, "bad while held", j.of("bad"), nil)
		if st := b.status(); st.Held.N != 1 || st.Parked.N != 4 || st.Backlog.N != 0 {
			t.Errorf("held %d parked %d backlog %d, want 1, 4, 0", st.Held.N, st.Parked.N, st.Backlog.N)
		}
		info, parked, err := b.store.ShowHeld(t.Context(), "r", "bad", 10)
		if err != nil {
			t.Fatal(err)
		}
		if info.Attempts != 1 || !strings.Contains(info.Cause, "boom") || len(parked) != 4 {
			t.Errorf("held key: %+v with %d parked", info, len(parked))
		}
		broken.Store(false)
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		want(t, "bad after its release", j.of("bad"), []string{"m001", "m003", "m005", "m006"})
		if st := b.status(); st.Held.N != 0 || st.Parked.N != 0 {
			t.Errorf("held %d parked %d after release, want none", st.Held.N, st.Parked.N)
		}
		b.publish(b.msgs("bad")...)
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "bad on the main line again", j.of("bad")[4:], []string{"m008"})
	})
}

func TestManyParkedFollowersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		var ids []string
		for range 1000 { // many runs' worth
			m := b.msg("k")
			ids = append(ids, m.ID)
			b.publish(m)
		}
		r := b.relay(relay.Config{MaxInFlight: 64})
		var calls int
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if calls++; calls%7 == 1 && m.Attempt < 3 {
				return errBoom
			}
			j.note(m)
			return nil
		})
		b.start(r)
		go func() {
			for range 200 {
				time.Sleep(50 * time.Millisecond)
				m := b.msg("k")
				ids = append(ids, m.ID)
				b.publish(m)
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want(t, "key", j.of("k"), ids)
		if st := b.status(); st.Held.N+st.Parked.N+st.Dead.N+st.Backlog.N != 0 {
			t.Errorf("left over: %+v", st)
		}
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		handler  func(m *postrider.Message) error
		attempts int32 // calls
		dead     string
		within   time.Duration
	}{
		{"dead", func(*postrider.Message) error { return postrider.Dead("no such account", nil) }, 1, "no such account", time.Second},
		{"exhausted", func(*postrider.Message) error { return errBoom }, 10, "attempts exhausted", 20 * time.Minute},
		{"panic", func(*postrider.Message) error { panic("at the disco") }, 10, "attempts exhausted", 20 * time.Minute},
		{"goexit", func(*postrider.Message) error { runtime.Goexit(); return nil }, 10, "attempts exhausted", 20 * time.Minute},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(c.name+" key "+key, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := setup(t)
					b.publish(b.msg(key))
					r := b.relay(relay.Config{Concurrency: 2})
					var calls atomic.Int32
					handle(t, r, func(_ context.Context, m *postrider.Message) error {
						if n := calls.Add(1); m.Attempt != int(n) {
							t.Errorf("attempt %d says it is %d", n, m.Attempt)
						}
						return c.handler(m)
					})
					b.start(r)
					time.Sleep(c.within)
					synctest.Wait()
					if calls.Load() != c.attempts {
						t.Errorf("%d calls, want %d", calls.Load(), c.attempts)
					}
					var letters []deadletter.Record
					for l, err := range b.store.ListDead(t.Context(), deadletter.Filter{}, 0, 0) {
						if err != nil {
							t.Fatal(err)
						}
						letters = append(letters, l)
					}
					if len(letters) != 1 || letters[0].Reason != c.dead || letters[0].Attempts != int(c.attempts) {
						t.Fatalf("dead letters: %+v", letters)
					}
					if st := b.status(); st.Held.N+st.Parked.N+st.Backlog.N != 0 {
						t.Errorf("left over: %+v", st)
					}
				})
			})
		}
	}
}

func TestSnoozeCountsNoAttemptAndKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		b.publish(b.msgs("k", "k")...)
		r := b.relay(relay.Config{MaxAttempts: 1})
		snoozes := 0
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.ID == "m001" && snoozes < 20 {
				snoozes++
				return postrider.Snooze(time.Minute)
			}
			if m.Attempt != 1 {
				t.Errorf("attempt %d", m.Attempt)
			}
			j.note(m)
			return nil
		})
		b.start(r)
		time.Sleep(21 * time.Minute)
		synctest.Wait()
		want(t, "key", j.of("k"), []string{"m001", "m002"})
	})
}

func TestHoldKeyAfterDeadWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	for _, act := range []string{"redrive", "discard", "skip"} {
		t.Run(act, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				b.publish(b.msgs("k", "k")...)
				r := b.relay(relay.Config{OnDead: relay.HoldKey})
				fixed := false
				handle(t, r, func(_ context.Context, m *postrider.Message) error {
					if m.ID == "m001" && !fixed {
						return postrider.Dead("bad", errBoom)
					}
					j.note(m)
					return nil
				})
				b.start(r)
				time.Sleep(time.Hour)
				synctest.Wait()
				want(t, "key while held", j.of("k"), nil)
				fixed = true
				var err error
				expect := []string{"m002"}
				switch act {
				case "redrive":
					_, err = b.store.RedriveDead(t.Context(), deadletter.Filter{}, "op", 0)
					expect = []string{"m001", "m002"}
				case "discard":
					_, err = b.store.DiscardDead(t.Context(), deadletter.Filter{}, "op", "obsolete", 0)
				case "skip":
					err = decide(b.store, "k", relay.VerbSkip)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				want(t, "key after the decision", j.of("k"), expect)
				if st := b.status(); st.Held.N != 0 {
					t.Errorf("still held: %+v", st)
				}
			})
		})
	}
}

func TestUnhandledTypeIsHeldNotDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		m := b.msg("k")
		m.Type = "new"
		b.publish(m, b.msg("k"), b.msg("other"))
		old := b.relay(relay.Config{})
		handle(t, old, func(_ context.Context, m *postrider.Message) error { j.note(m); return nil })
		stop := b.start(old)
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, "other key", j.of("other"), []string{"m003"})
		want(t, "key of the unknown type", j.of("k"), nil)
		if st := b.status(); st.Dead.N != 0 || st.Held.N != 1 {
			t.Errorf("dead %d held %d, want 0 and 1", st.Dead.N, st.Held.N)
		}
		stop()

		both := b.relay(relay.Config{})
		handle(t, both, func(_ context.Context, m *postrider.Message) error { j.note(m); return nil })
		if err := both.HandleFunc("new", func(_ context.Context, m *postrider.Message) error { j.note(m); return nil }); err != nil {
			t.Fatal(err)
		}
		b.start(both)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		want(t, "key once a handler is there", j.of("k"), []string{"m001", "m002"})
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

func TestFollowersInABatchWaitForTheirFailedHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		b.publish(b.msgs("a", "b", "a", "b", "a")...)
		failed := false
		r := b.relay(relay.Config{Publisher: publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
			errs := make([]error, len(msgs))
			var head *postrider.Message
			for i, m := range msgs {
				switch {
				case m.ID == "m001" && !failed:
					head, failed, errs[i] = m, true, errBoom
				case head != nil && m.Key == head.Key:
					errs[i] = postrider.PredecessorFailed(head, errBoom)
				default:
					j.note(m)
				}
			}
			return errs
		})})
		b.start(r)
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "a", j.of("a"), []string{"m001", "m003", "m005"})
		want(t, "b", j.of("b"), []string{"m002", "m004"})
	})
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

func TestStopIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{MaxAttempts: 1})
		entered := make(chan struct{})
		handle(t, r, func(ctx context.Context, _ *postrider.Message) error {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		})
		done := make(chan error, 1)
		go func() { done <- r.Run(context.Background()) }()
		<-entered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != context.DeadlineExceeded {
			t.Errorf("Stop: %v", err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "delivered again") {
			t.Errorf("Run: %v", err)
		}
		st := b.status()
		if st.Dead.N != 0 || st.Failed != 0 || st.Backlog.N != 1 {
			t.Errorf("dead %d failed %d backlog %d, want 0, 0, 1", st.Dead.N, st.Failed, st.Backlog.N)
		}
		for _, p := range st.Partitions {
			if p.Owner != "" {
				t.Errorf("partition %d still held after Stop", p.Partition)
			}
		}
	})
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := relay.New(b.store, relay.Config{
		Concurrency: -1, LeaseTTL: -1, Topics: []string{""},
		Publisher: unordered{},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"Name", "Concurrency", "LeaseTTL", "Topics", "AcceptUnordered"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %s: %v", part, err)
		}
	}
}

type unordered struct{ publisherFunc }

func (unordered) Capabilities() postrider.Capabilities { return postrider.Capabilities{} }

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

// Drain must not mistake a partition that another, dead process still holds for an empty one.
func TestDrainWaitsForTheLeasesOfADeadProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		dead := relay.Owner{ID: "dead"}
		if _, err := b.store.Heartbeat(t.Context(), "r", dead, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Acquire(t.Context(), "r", dead, relay.AcquireRequest{Claims: claims(0, 1, 2, 3), TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		b.publish(b.msgs("a", "b", "c", "d", "e")...)
		r := b.relay(relay.Config{})
		handle(t, r, j.take)
		b.start(r)
		if err := r.Drain(t.Context()); err != nil || j.len() != 5 {
			t.Errorf("drained: %v, with %d of 5 delivered", err, j.len())
		}
	})
}

// Nor may it when a lease ends while it waits.
func TestDrainWaitsForALeaseThatWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away, stuck atomic.Bool
		b, j := faulty(t, func(string, bool) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}), &journal{}
		b.publish(b.msgs("a", "b", "c", "d", "e")...)
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if stuck.CompareAndSwap(false, true) {
				away.Store(true)
				<-ctx.Done() // its lease has ended
				return ctx.Err()
			}
			return j.take(ctx, m)
		})
		b.start(r)
		done := make(chan error, 1)
		go func() { done <- r.Drain(context.Background()) }()
		pass(5 * time.Minute)
		select {
		case err := <-done:
			t.Fatalf("drained with the store away: %v, with %d of 5 delivered", err, j.len())
		default:
		}
		away.Store(false)
		err := <-done
		slices.Sort(j.all)
		if got := slices.Compact(j.all); err != nil || len(got) != 5 {
			t.Errorf("drained: %v, with %v of 5 delivered", err, got)
		}
	})
}
