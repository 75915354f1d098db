package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Drain must not mistake a partition that another, dead process still holds for an empty one.
func TestDrainWaitsForTheLeasesOfADeadProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		dead := store.Owner{ID: "dead"}
		if _, err := b.store.Heartbeat(t.Context(), "r", dead, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Acquire(t.Context(), "r", dead, store.AcquireRequest{Claims: claims(0, 1, 2, 3), TTL: time.Minute}); err != nil {
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
