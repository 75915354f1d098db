package scenariotest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

func callerWaits[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), reviewStep(time.Hour)))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
	defer cancel()
	if r, err := s.Wait(ctx, "42"); !errors.Is(err, saga.ErrPending) || r.Status != saga.Running {
		w.Errorf("wait: %s, %v; want %s, %v", r.Status, err, saga.Running, saga.ErrPending)
	}
	if _, err := s.Wait(w.Context(), "none"); !errors.Is(err, saga.ErrNotFound) {
		w.Errorf("wait for an instance that does not exist: %v, want %v", err, saga.ErrNotFound)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.Context(), patience)
			defer cancel()
			if r, err := s.Wait(ctx, "42"); err != nil || r.Status != saga.Completed {
				w.Errorf("wait: %s, %v; want %s", r.Status, err, saga.Completed)
			}
		})
	}
	w.signal("42", "s1")
	all.Wait()
}

// asking is a store that counts how often waiters ask it.
type asking[Tx any] struct {
	Store[Tx]
	times atomic.Int64
}

func (a *asking[Tx]) ShowSaga(ctx context.Context, id string) (store.SagaInstance, error) {
	a.times.Add(1)
	return a.Store.ShowSaga(ctx, id)
}

func (a *asking[Tx]) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	a.times.Add(1)
	return a.Store.SagasByID(ctx, ids)
}

// manyCallersWait: callers in a process that does not run the engine hear of the end, with at most four statements a second for all of them.
func manyCallersWait[Tx any](w *world[Tx]) {
	const callers = 1000
	d := define(reviewStep(time.Hour))
	s := w.register(d)
	w.runEngine()
	asked, own, engine := &asking[Tx]{Store: w.store}, w.store, w.engine
	w.store = asked
	w.engine = w.newEngine()
	elsewhere := w.register(d)
	w.store, w.engine = own, engine
	w.start(s, order{ID: "42"})
	begun := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.Context(), patience)
			defer cancel()
			if r, err := elsewhere.Wait(ctx, "42"); err != nil || r.Status != saga.Completed {
				w.Errorf("wait: %s, %v; want %s", r.Status, err, saga.Completed)
			}
		})
	}
	w.await("statements for seconds", func() bool { return asked.times.Load() > 10 })
	w.signal("42", "s1")
	all.Wait()
	if n, took := asked.times.Load(), time.Since(begun); n > 3+int64(took/(250*time.Millisecond)) {
		w.Errorf("%d callers asked the database %d times in %s", callers, n, took)
	}
}
