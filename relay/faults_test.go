package relay_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// silent is a store in which one call of one operation, once armed, never answers, as on a connection that was silently cut.
type silent struct {
	*memory.Store
	op    string
	armed atomic.Bool
}

// hear waits for the end of the context if the call is the one that is not answered.
func (s *silent) hear(ctx context.Context, op string) error {
	if s.op != op || !s.armed.CompareAndSwap(true, false) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *silent) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	if err := s.hear(ctx, "Fetch"); err != nil {
		return nil, err
	}
	return s.Store.Fetch(ctx, name, req)
}

func (s *silent) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	if err := s.hear(ctx, "Due"); err != nil {
		return store.DueResult{}, err
	}
	return s.Store.Due(ctx, name, req)
}

func (s *silent) Settle(ctx context.Context, name string, all []store.Settlement) (store.Settled, error) {
	if err := s.hear(ctx, "Settle"); err != nil {
		return store.Settled{}, err
	}
	return s.Store.Settle(ctx, name, all)
}

func (s *silent) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	if err := s.hear(ctx, "Release"); err != nil {
		return err
	}
	return s.Store.Release(ctx, name, leases)
}

// TestUnansweredStoreCallDoesNotStopTheRelay: one call never answers, and no later one would. The relay abandons the call and
// continues, with fresh messages, with parked ones, and with partitions that it handed over and got back.
func TestUnansweredStoreCallDoesNotStopTheRelay(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"Fetch", "Settle", "Due", "Release"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				s := &silent{Store: b.store, op: op}
				r := b.relayOn(s, relay.Config{})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					if m.ID == "m001" && m.Attempt == 1 {
						return errBoom // it is parked, for Due to bring back
					}
					return j.take(ctx, m)
				})
				b.start(r)
				pass(2 * time.Second)
				s.armed.Store(true)
				if op == "Release" {
					two := b.relay(relay.Config{})
					handle(t, two, j.take)
					stop := b.start(two)
					pass(10 * time.Second)
					stop()
				}
				b.publish(b.msg("k"))
				pass(2 * time.Minute)
				for p := range 4 {
					b.publish(b.msgs(keysIn(p, 1)...)...)
				}
				pass(2 * time.Minute)
				if s.armed.Load() {
					t.Fatalf("%s was not called; the test shows nothing", op)
				}
				b.wantNothingLeft(r)
				if j.len() != 5 {
					t.Errorf("delivered %d messages of 5", j.len())
				}
			})
		})
	}
}

// TestParkedMessageIsDueOnceItIsKnownToBeParked: a message without a key, or a delayed one, is parked, or dead-lettered and
// redriven, and is due before the answer to the settlement has arrived. It is delivered once, however long that takes.
func TestParkedMessageIsDueOnceItIsKnownToBeParked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, key string
		delay     time.Duration
		first     error // the result of the first call
	}{
		{"retried", "", 0, postrider.Retry(100*time.Millisecond, errBoom)},
		{"delayed", "", 100 * time.Millisecond, nil},
		{"delayed with a key", "k", 100 * time.Millisecond, nil},
		{"redriven", "", 0, postrider.Dead("bad", nil)},
		{"redriven with a key", "k", 0, postrider.Dead("bad", nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var b *bundle
				slow := &trap{op: "Settle", done: true, spring: func() error {
					if _, err := deadletter.New(b.store).RedriveDead(context.Background(), store.DeadFilter{}, "op", 0); err != nil {
						t.Errorf("redrive: %v", err)
					}
					time.Sleep(3 * time.Second)
					return nil
				}}
				b = faulty(t, slow.fault)
				j, called := &journal{}, atomic.Bool{}
				r := b.relay(relay.Config{})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					if c.first != nil && called.CompareAndSwap(false, true) {
						return c.first
					}
					defer time.Sleep(4 * time.Second)
					return j.take(ctx, m)
				})
				b.start(r)
				pass(time.Second)
				slow.armed.Store(true)
				m := b.msg(c.key)
				m.DeliverAfter = c.delay
				b.publish(m)
				pass(time.Minute)
				want(t, "delivered", j.of(c.key), []string{"m001"})
				if slow.armed.Load() {
					t.Error("nothing was settled; the test shows nothing")
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestSettlementIsTriedAgainSoon: a failed settlement is repeated within seconds, however long a failed message waits for its
// next attempt.
func TestSettlementIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := &trap{op: "Settle", spring: func() error { return errBoom }}
		b, j := faulty(t, broken.fault), &journal{}
		r := b.relay(relay.Config{BackoffBase: time.Hour, BackoffMax: 12 * time.Hour})
		handle(t, r, j.take)
		b.start(r)
		pass(time.Second)
		broken.armed.Store(true)
		b.publish(b.msg("k"))
		pass(5 * time.Second)
		if st := b.status(); st.Delivered != 1 || broken.armed.Load() {
			t.Errorf("5 seconds after a settlement failed (%v), %d deliveries are recorded, want 1: %+v", !broken.armed.Load(), st.Delivered, r.Counters())
		}
	})
}

// TestSettlementIsRepeatedAfterItsMessagesWereDropped: the answer to a settlement is lost, and before it is repeated
// retention drops the messages that the cursor has passed. The repetition is accepted, and nothing is delivered twice.
func TestSettlementIsRepeatedAfterItsMessagesWereDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bundle
		lost := &trap{op: "Settle", done: true, spring: func() error {
			if _, err := b.store.Maintain(context.Background(), store.Retention{}); err != nil {
				t.Errorf("Maintain: %v", err)
			}
			return errBoom
		}}
		b = faulty(t, lost.fault)
		j := &journal{}
		r := b.relay(relay.Config{KeepDelivered: -1})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" && m.Attempt == 1 {
				return errBoom
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(time.Second)
		lost.armed.Store(true)
		b.publish(b.msg("k"))
		pass(time.Minute)
		b.publish(b.msg("l"))
		pass(time.Minute)
		want(t, "delivered", append(j.of("k"), j.of("l")...), []string{"m001", "m002"})
		if st := b.status(); st.Delivered != 2 || lost.armed.Load() {
			t.Errorf("%d deliveries are recorded, want 2 (answer lost: %v): %+v", st.Delivered, !lost.armed.Load(), r.Counters())
		}
		b.wantNothingLeft(r)
	})
}

// TestOperatorDecidesBeforeASettlementIsRepeated: the answer to the settlement that holds a key is lost, and before it is
// repeated an operator dead-letters the whole key. The repetition brings nothing back.
func TestOperatorDecidesBeforeASettlementIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bundle
		var lost *trap
		lost = &trap{op: "Settle", done: true, spring: func() error {
			if _, _, err := held.New(b.store).ShowHeld(context.Background(), "r", "k", 1); err != nil {
				lost.armed.Store(true) // not yet held
				return nil
			}
			d := store.Decision{ID: "d", Relay: "r", Key: "k", Verb: store.VerbDeadAll, By: "op", Reason: "given up"}
			if err := held.New(b.store).RecordDecision(context.Background(), d); err != nil {
				t.Errorf("record a decision: %v", err)
			}
			return errBoom
		}}
		b = faulty(t, lost.fault)
		j := &journal{}
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" && m.Attempt == 1 {
				return errBoom
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(time.Second)
		lost.armed.Store(true)
		both := b.msgs("k", "k")
		b.transact(func(tx *memory.Tx) error { return b.store.Insert(t.Context(), tx, both) })
		pass(time.Minute)
		want(t, "delivered after the operator gave them up", j.of("k"), nil)
		if st := b.status(); st.Dead.N != 2 || lost.armed.Load() {
			t.Errorf("%d dead letters, want 2 (answer lost: %v)", st.Dead.N, !lost.armed.Load())
		}
		b.wantNothingLeft(r)
	})
}

// TestQueuedMessagesWaitUntilADeadLetterIsRecorded: a process that dies after a final failure, before the dead letter is written, has
// delivered none of the messages queued after it.
func TestQueuedMessagesWaitUntilADeadLetterIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cutOff atomic.Bool
		b, j := faulty(t, func(op string, _ bool) error {
			if op == "Settle" && cutOff.Load() {
				return errBoom
			}
			return nil
		}), &journal{}
		b.publish(b.msgs("k", "k", "other")...)
		cutOff.Store(true)
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" {
				return postrider.Dead("bad", nil)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(10 * time.Second)
		want(t, "followers before it is recorded", j.of("k"), nil)
		want(t, "others", j.of("other"), []string{"m003"})
		cutOff.Store(false)
		pass(10 * time.Second)
		want(t, "followers", j.of("k"), []string{"m002"})
	})
}

// TestReadyOnlyWhileTheStoreAnswers: a process that has not heard from the store for the lifetime of a lease is not ready,
// until it hears from it again.
func TestReadyOnlyWhileTheStoreAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cutOff atomic.Bool
		b := faulty(t, func(string, bool) error {
			if cutOff.Load() {
				return errBoom
			}
			return nil
		})
		r := b.relay(relay.Config{Publisher: &broker{}})
		b.start(r)
		pass(time.Second)
		if err := r.Ready(); err != nil {
			t.Errorf("with a store that answers: %v", err)
		}
		cutOff.Store(true)
		pass(20 * time.Second)
		if err := r.Ready(); err == nil {
			t.Error("ready, 20 seconds after the store answered last")
		}
		cutOff.Store(false)
		pass(5 * time.Second)
		if err := r.Ready(); err != nil {
			t.Errorf("after the store is back: %v", err)
		}
	})
}

// TestNothingOvertakesWhatALateRenewalFinds: heartbeats fail for most of a lease, and the next one is answered at the very
// moment at which the lease ends here and a handler returns. In whichever order the three are processed, the messages queued
// after the handler's are delivered, and before later ones.
func TestNothingOvertakesWhatALateRenewalFinds(t *testing.T) {
	t.Parallel()
	for range 50 { // the order is up to the scheduler
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			b, j := faulty(t, func(op string, done bool) error {
				switch at := time.Since(start); {
				case op != "Heartbeat":
				case !done && at > time.Second && at < 11*time.Second:
					return errBoom
				case done && at == 11*time.Second:
					time.Sleep(time.Second)
				}
				return nil
			}), &journal{}
			b.publish(b.many(3, "k")...)
			r := b.relay(relay.Config{ParkAfter: time.Minute})
			handle(t, r, func(ctx context.Context, m *postrider.Message) error {
				if m.ID == "m001" {
					time.Sleep(time.Until(start.Add(12 * time.Second))) // ignores the end of its lease
				}
				return j.take(ctx, m)
			})
			b.start(r)
			pass(20 * time.Second)
			b.publish(b.msg("k"))
			pass(20 * time.Second)
			if got := slices.Compact(j.of("k")); !slices.Equal(got, []string{"m001", "m002", "m003", "m004"}) {
				t.Errorf("delivered %v, want m001 to m004 in order; %+v", got, r.Counters())
			}
		})
		if t.Failed() {
			return
		}
	}
}
