package relay_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

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
		info, parked, err := held.New(b.store).ShowHeld(t.Context(), "r", "bad", 10)
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
		want(t, "bad on the way from the log again", j.of("bad")[4:], []string{"m008"})
	})
}

func TestManyQueuedMessagesKeepTheirOrder(t *testing.T) {
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
					var dead []store.DeadLetter
					for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
						if err != nil {
							t.Fatal(err)
						}
						dead = append(dead, l)
					}
					if len(dead) != 1 || dead[0].Reason != c.dead || dead[0].Attempts != int(c.attempts) {
						t.Fatalf("dead letters: %+v", dead)
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
					_, err = deadletter.New(b.store).RedriveDead(t.Context(), store.DeadFilter{}, "op", 0)
					expect = []string{"m001", "m002"}
				case "discard":
					_, err = deadletter.New(b.store).DiscardDead(t.Context(), store.DeadFilter{}, "op", "obsolete", 0)
				case "skip":
					err = decide(b.store, "k", store.VerbSkip)
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

func TestMessagesOfABatchWaitForTheirFailedPredecessor(t *testing.T) {
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
