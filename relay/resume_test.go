package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// TestReleasedPartitionIsNotResumed: a process loses its leases in a crash of the database and is granted them again, but the
// answer does not reach it. By then others share the partitions, so it releases them. After the next crash it must not claim
// to have held what another process has leased since and is working on.
func TestReleasedPartitionIsNotResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		lost, released := &trap{op: "Acquire", done: true}, &trap{op: "Release", done: true}
		b := faulty(t, func(op string, done bool) error { return errors.Join(lost.fault(op, done), released.fault(op, done)) })
		other := store.Owner{ID: "b"}
		heartbeat := func() error {
			_, err := b.store.Heartbeat(ctx, "r", other, 15*time.Second)
			for _, id := range []string{"c", "d"} {
				_, more := b.store.Heartbeat(ctx, "r", store.Owner{ID: id}, 15*time.Second)
				err = errors.Join(err, more)
			}
			return err
		}
		r := b.relay(relay.Config{})
		handle(t, r, new(journal).take)
		b.start(r)
		pass(time.Second)

		lost.spring = func() error { return errors.Join(heartbeat(), errAnswerLost) }
		lost.armed.Store(true)
		var leases []store.Lease
		released.spring = func() (err error) {
			leases, err = b.store.Acquire(ctx, "r", other, store.AcquireRequest{Claims: claims(0), TTL: 15 * time.Second})
			return err
		}
		released.armed.Store(true)
		b.store.Crash()
		b.publish(b.keyless(0)) // the fetch notices
		pass(500 * time.Millisecond)
		if lost.armed.Load() {
			t.Fatal("the process did not lease its partitions again; the test shows nothing")
		}
		pass(3 * time.Second)
		if len(leases) != 1 {
			t.Fatalf("another process leases a partition that was released: got %d leases, want 1", len(leases))
		}

		b.store.Crash()
		pass(3 * time.Second)
		view, err := b.store.Heartbeat(ctx, "r", other, 15*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range view.Partitions {
			if p.Partition == 0 && p.Owner != other.ID {
				t.Errorf("partition 0 was granted to %s while its last owner may be at work", p.Owner)
			}
		}
		if err := heartbeat(); err != nil {
			t.Error(err)
		}
	})
}

// TestDecisionIsAppliedAfterTheLinesTransaction: an operator decides about a key while a transaction of the transaction queue
// is in progress, which includes what is pending. Nothing else happens in the partition after it.
func TestDecisionIsAppliedAfterTheLinesTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 3)
		underWay, proceed := make(chan struct{}), make(chan struct{})
		r := b.relay(relay.Config{AttemptTimeout: -1, LeaseTTL: 15 * time.Minute})
		var done journal
		again := false
		handleTx(t, r, func(m *postrider.Message) error {
			switch {
			case m.Key == keys[0]:
				return postrider.Snooze(time.Hour)
			case m.Key == keys[1]:
				close(underWay)
				<-proceed
			case m.Key == keys[2] && !again:
				again = true
				return postrider.Snooze(10 * time.Second)
			}
			done.note(m)
			return nil
		})
		b.start(r)
		b.publish(b.msg(keys[0]))
		b.publish(b.msg(keys[2]))
		pass(5 * time.Second)
		b.publish(b.msg(keys[1]))
		<-underWay
		pass(30 * time.Second) // the second attempt of another message is recorded with the transaction
		decided := make(chan error, 1)
		go func() { decided <- decideWithin(b, keys[0], 4*time.Minute) }()
		pass(5 * time.Second)
		close(proceed)
		pass(3 * time.Minute)
		select {
		case err := <-decided:
			if err != nil {
				t.Errorf("decide: %v", err)
			}
		default:
			t.Errorf("the decision is not applied, three minutes after the transaction")
			<-decided
		}
	})
}

func decideWithin(b *bundle, key string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := held.Decide(ctx, b.store, store.Decision{Relay: "r", Key: key, Verb: store.VerbDead, By: "op", Reason: "decided"})
	return err
}

// TestRefusedCommitKeepsCounts: a transaction includes the delivery of another message, and is refused.
func TestRefusedCommitKeepsCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 2)
		refused, again := false, false
		underWay, proceed := make(chan struct{}), make(chan struct{})
		store := &commits{Store: b.store, ask: func(s store.Settlement) error {
			if s.Number > 0 && len(s.Removed) > 0 && !refused {
				refused = true
				return store.ErrNotParked
			}
			return nil
		}}
		r := b.relayOn(store, relay.Config{AttemptTimeout: -1, LeaseTTL: 15 * time.Minute})
		handleTx(t, r, func(m *postrider.Message) error {
			switch {
			case m.Key == keys[0] && !again:
				again = true
				return postrider.Snooze(20 * time.Second)
			case m.Key == keys[1] && !refused:
				close(underWay)
				<-proceed
			}
			return nil
		})
		b.start(r)
		delayed := b.msg(keys[1])
		delayed.DeliverAfter = 10 * time.Second
		b.publish(b.msg(keys[0]), delayed)
		<-underWay
		pass(time.Minute) // the other is delivered
		close(proceed)
		pass(time.Minute)
		if !refused {
			t.Fatal("no commit was refused; the test shows nothing")
		}
		if st := b.status(); st.Delivered != 2 {
			t.Errorf("%d delivered, want 2", st.Delivered)
		}
		b.wantNothingLeft(r)
	})
}
