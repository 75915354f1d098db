package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestCrashAfterAMessageThatIsNotSettled: a message holds back the cursor while later ones are delivered, one of them
// redriven from the dead letters. Then the database crashes. Redelivered messages are in order, without gaps, and count once.
func TestCrashAfterAMessageThatIsNotSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 2)
		msgs := b.msgs(keys[0], keys[1], keys[1], keys[1])
		r := b.relay(relay.Config{OnDead: relay.HoldKey, ParkAfter: time.Hour, AttemptTimeout: time.Hour})
		var done journal
		proceed, failed := make(chan struct{}), false
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			switch m.ID {
			case msgs[0].ID:
				select {
				case <-proceed:
				case <-ctx.Done():
					return ctx.Err()
				}
			case msgs[2].ID:
				if !failed {
					failed = true
					return postrider.Dead("bad", nil)
				}
			}
			return done.take(ctx, m)
		})
		b.start(r)
		b.publish(msgs...)
		pass(time.Minute)
		if n, err := deadletter.New(b.store).RedriveDead(t.Context(), store.DeadFilter{}, "op", 0); n != 1 || err != nil {
			t.Fatalf("%d messages redriven: %v", n, err)
		}
		pass(time.Minute)
		b.store.Crash()
		pass(time.Minute)
		close(proceed)
		pass(time.Minute)
		last := ""
		next := map[string]string{"": msgs[1].ID, msgs[1].ID: msgs[2].ID, msgs[2].ID: msgs[3].ID}
		for _, id := range done.of(keys[1]) {
			if id != msgs[1].ID && id != next[last] {
				t.Errorf("message %s is delivered after %s: %v", id, last, done.of(keys[1]))
			}
			last = id
		}
		if last != msgs[3].ID {
			t.Errorf("delivered: %v", done.of(keys[1]))
		}
		if n := b.status().Delivered; n != int64(len(msgs)) {
			t.Errorf("%d messages count as delivered, want %d", n, len(msgs))
		}
		b.wantNothingLeft(r)
	})
}

// TestCallThatOutlivesItsLeaseDoesNotHoldBackOthers: a handler hangs, and the database crashes. The key of the message waits
// for the call; a message of another key that must be retried does not.
func TestCallThatOutlivesItsLeaseDoesNotHoldBackOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 2)
		msgs := b.msgs(keys[0], keys[0], keys[1])
		r := b.relay(relay.Config{})
		var done journal
		hangs := make(chan struct{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == msgs[0].ID {
				<-hangs
			}
			if m.ID == msgs[2].ID && m.Attempt == 1 {
				return postrider.Retry(time.Second, errBoom)
			}
			return done.take(ctx, m)
		})
		b.start(r)
		b.publish(msgs[:2]...)
		pass(time.Second)
		b.store.Crash()
		b.publish(msgs[2])
		pass(time.Minute)
		want(t, "other key", done.of(keys[1]), []string{msgs[2].ID})
		want(t, "key of the call", done.of(keys[0]), nil)
		close(hangs)
		pass(10 * time.Minute)
		got := done.of(keys[0])
		if len(got) < 2 || got[len(got)-1] != msgs[1].ID {
			t.Errorf("key of the call: %v", got)
		}
		b.wantNothingLeft(r)
	})
}

// TestMessageWithoutAKeyComesBackAfterACallThatOutlivedItsLease: as before, with a message without a key.
func TestMessageWithoutAKeyComesBackAfterACallThatOutlivedItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		m := b.keyless(0)
		r := b.relay(relay.Config{})
		var done journal
		hangs, calls := make(chan struct{}), 0
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if calls++; calls == 1 {
				<-hangs
			}
			return done.take(ctx, m)
		})
		b.start(r)
		b.publish(m)
		pass(time.Second)
		b.store.Crash()
		pass(time.Minute)
		if st := b.status(); st.Backlog.N != 0 || st.Parked.N != 1 {
			t.Errorf("while the call is out: backlog %d, parked %d, want 0 and 1", st.Backlog.N, st.Parked.N)
		}
		close(hangs)
		pass(time.Minute)
		want(t, "delivered, by the call that hung and again", done.of(""), []string{m.ID, m.ID})
		b.wantNothingLeft(r)
	})
}

// rewound is a store whose cursors were restored to the beginning of the log, from which retention had dropped what was
// delivered or parked.
type rewound struct {
	store.Relay
	parked *int64
}

func (s rewound) Acquire(ctx context.Context, name string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	leases, err := s.Relay.Acquire(ctx, name, o, req)
	for i := range leases {
		if *s.parked != 0 {
			leases[i].Parked.Sequences = []int64{*s.parked}
		}
	}
	return leases, err
}

// TestParkedMessageThatTheLogDoesNotHaveAnyMore: the stored cursor is before a parked message that is no longer in the log.
// It is delivered when it is due, though it is never read again.
func TestParkedMessageThatTheLogDoesNotHaveAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		var parked int64
		r := b.relayOn(rewound{b.store, &parked}, relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.Attempt == 1 {
				parked = m.Sequence
				return postrider.Retry(10*time.Second, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		b.publish(b.msg("k"))
		pass(5 * time.Second)
		b.store.Crash()
		pass(time.Minute)
		want(t, "delivered", j.of("k"), []string{"m001"})
		b.wantNothingLeft(r)
	})
}

// TestEffectOfAParkedMessageBeyondTheCursor: a relay without transactions stops in an orderly way and continues with
// HandleTx. The side effect of a message that it had parked is committed, and the database crashes. The message is not read
// from the log, and its side effect does not run again.
func TestEffectOfAParkedMessageBeyondTheCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bundle{t: t, store: memory.New(memory.Config{Partitions: 4, Unsynced: 20})}
		slow, parked := keysIn(0, 1)[0], b.keyless(0)
		b.publish(append(b.many(2, slow), parked)...)
		one := b.relay(relay.Config{})
		handle(t, one, func(_ context.Context, m *postrider.Message) error {
			if m.Key == "" {
				return postrider.Retry(3*time.Second, errBoom)
			}
			time.Sleep(2 * time.Second)
			return nil
		})
		stop := b.start(one)
		pass(time.Second)
		stop()
		if n := b.status().Backlog.N; n == 0 {
			t.Fatal("the cursor has passed all messages; the test shows nothing")
		}
		var effects atomic.Int64
		two := b.relay(relay.Config{MaxInFlight: 2}) // one message from the log at a time
		err := relay.HandleTxFunc(two, "t", func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
			if m.Key == "" {
				effects.Add(1)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.start(two)
		for effects.Load() == 0 {
			pass(time.Millisecond)
		}
		b.store.CrashLosing(20)
		pass(10 * time.Minute)
		if n := effects.Load(); n != 1 {
			t.Errorf("the message has had %d effects, want 1", n)
		}
		b.wantNothingLeft(two)
	})
}
