package saga

import (
	"context"
	"errors"
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

// heldRead is a store whose first read of instances by ID comes back when the test says so.
type heldRead struct {
	*memory.Store
	read, back chan struct{}
	once       sync.Once
}

func (s *heldRead) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	found, err := s.Store.SagasByID(ctx, ids)
	s.once.Do(func() {
		close(s.read)
		<-s.back
	})
	return found, err
}

// TestWaitForWhatStartsMeanwhile: while a caller of Wait asks for an instance that does not exist, it is started. A wait that begins after
// the start does not end with what was read before it.
func TestWaitForWhatStartsMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &heldRead{Store: memory.New(memory.Config{}), read: make(chan struct{}), back: make(chan struct{})}
		box, err := outbox.New(s.Store, outbox.Config{Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		orders := reviewed(t, s, box)
		wait := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := orders.Wait(ctx, "42")
				done <- err
			}()
			return done
		}
		early := wait(t.Context())
		<-s.read
		if _, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := orders.Start(ctx, tx, keyed{}, ID("42"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := wait(ctx)
		synctest.Wait()
		close(s.back)
		if err := <-early; !errors.Is(err, ErrNotFound) {
			t.Errorf("the wait from before the start: %v, want %v", err, ErrNotFound)
		}
		synctest.Wait()
		cancel()
		if err := <-late; !errors.Is(err, ErrPending) {
			t.Errorf("the wait from after the start: %v, want %v", err, ErrPending)
		}
	})
}

// goneOn is a store whose first read of instances by ID finds them ended, although they have been reopened since.
type goneOn struct {
	*memory.Store
	once sync.Once
}

func (s *goneOn) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	found, err := s.Store.SagasByID(ctx, ids)
	s.once.Do(func() {
		for i := range found {
			found[i].Status = store.SagaCompensated
		}
	})
	return found, err
}

// TestWaitForWhatContinues: an instance that continues between the two reads of Wait has not ended.
func TestWaitForWhatContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &goneOn{Store: memory.New(memory.Config{})}
		box, err := outbox.New(s.Store, outbox.Config{Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		orders := reviewed(t, s, box)
		if _, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := orders.Start(ctx, tx, keyed{}, ID("42"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := orders.Wait(ctx, "42"); !errors.Is(err, ErrPending) {
			t.Errorf("got %+v, %v; want %v", got, err, ErrPending)
		}
	})
}

// reviewed returns a saga of an engine on a store: it waits for a signal.
func reviewed(t *testing.T, s Store[*memory.Tx], box *outbox.Outbox[*memory.Tx]) *Saga[*memory.Tx, keyed] {
	t.Helper()
	e, err := New(s, box, Config{Name: "shop", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := Register(e, Definition[keyed]{Name: "orders", Version: 1, Steps: []Step[keyed]{
		Await[keyed, int]{Name: "review", Signal: postrider.Define[int]("reviewed"), Timeout: time.Minute, TimedOut: func(*keyed) {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return orders
}
