package saga

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// slowCommits is a store on which commits of handlers take five seconds. It counts what asks for instances.
type slowCommits struct {
	*memory.Store
	committed time.Time // when the last one ended
	asked     atomic.Int64
}

func (s *slowCommits) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	s.asked.Add(1)
	return s.Store.SagasByID(ctx, ids)
}

func (s *slowCommits) ShowSaga(ctx context.Context, id string) (store.SagaInstance, error) {
	s.asked.Add(1)
	return s.Store.ShowSaga(ctx, id)
}

func (s *slowCommits) CommitSettled(ctx context.Context, tx *memory.Tx, relay string, st store.Settlement) ([]string, error) {
	time.Sleep(5 * time.Second)
	released, err := s.Store.CommitSettled(ctx, tx, relay, st)
	s.committed = time.Now()
	return released, err
}

// TestWaitEndsWithTheCommit: Wait returns when the transaction commits that ends the instance, neither before it nor at the next poll, and
// with the instance as it is in the database, which it does not ask again: once, when the first caller begins to wait.
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
		var all sync.WaitGroup
		results := make([]Result[keyed], 10)
		for i := range results {
			all.Go(func() {
				ended, err := orders.Wait(ctx, "42")
				if late := time.Since(s.committed); err != nil || ended.Status != Completed || late > 0 {
					t.Errorf("Wait returned %s after the commit: %+v, %v", late, ended, err)
				}
				results[i] = ended
			})
		}
		all.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("%d callers asked the database %d times, want once", len(results), n)
		}
		now, err := orders.Get(ctx, "42")
		must(err)
		for _, r := range results {
			if !reflect.DeepEqual(r, now) {
				t.Errorf("Wait returned %+v, and the database has %+v", r, now)
			}
		}
		cancel()
		must(<-done)
	})
}
