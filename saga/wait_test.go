package saga

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// slowCommits is a store on which commits of handlers take five seconds.
type slowCommits struct {
	*memory.Store
	committed time.Time // when the last one ended
}

func (s *slowCommits) CommitSettled(ctx context.Context, tx *memory.Tx, relay string, st store.Settlement) ([]string, error) {
	time.Sleep(5 * time.Second)
	released, err := s.Store.CommitSettled(ctx, tx, relay, st)
	s.committed = time.Now()
	return released, err
}

// TestWaitEndsWithTheCommit: Wait returns when the transaction commits that ends the instance. It neither waits for the next poll nor, woken
// before the commit, asks in vain until a later one.
func TestWaitEndsWithTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		s := &slowCommits{Store: memory.New(memory.Config{})}
		box, err := outbox.New(s.Store, outbox.Config{Source: "shop"})
		must(err)
		e, err := New[*memory.Tx](s, box, Config{Name: "shop", WaitInterval: time.Hour, Logger: quiet})
		must(err)
		orders, err := Register(e, Definition[keyed]{Name: "orders", Version: 1, Steps: []Step[keyed]{
			Await[keyed, int]{Name: "review", Signal: postrider.Define[int]("reviewed"), Timeout: time.Minute, TimedOut: func(*keyed) {}},
		}})
		must(err)
		r, err := relay.New(s, relay.Config{Name: "shop", Topics: []string{e.Topic()}})
		must(err)
		must(e.Relay(r))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			_, err := orders.Start(ctx, tx, keyed{}, ID("42"))
			return err
		})
		must(err)
		ended, err := orders.Wait(ctx, "42")
		if late := time.Since(s.committed); err != nil || ended.Status != Completed || late > 0 {
			t.Errorf("Wait returned %s after the commit: %+v, %v", late, ended, err)
		}
		cancel()
		must(<-done)
	})
}
