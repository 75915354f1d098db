package saga

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/store"
)

// waiters are the callers of Wait. One of them at a time asks the database for the instances of all of them.
type waiters struct {
	reader   store.SagaReader
	interval time.Duration
	// turn holds one value: whoever takes it asks until its own wait is over, and puts it back.
	turn chan struct{}

	mu   sync.Mutex
	byID map[string]map[chan ended]struct{}
}

// ended is how a wait ends: with the instance or an error.
type ended struct {
	in  *store.SagaInstance
	err error
}

func (w *waiters) init(reader store.SagaReader, interval time.Duration) {
	w.reader, w.interval, w.byID = reader, interval, make(map[string]map[chan ended]struct{})
	w.turn = make(chan struct{}, 1)
	w.turn <- struct{}{}
}

// wait returns an instance that has ended. Errors: that of ctx; ErrNotFound; those of the store.
func (w *waiters) wait(ctx context.Context, id string) (*store.SagaInstance, error) {
	told := w.add(id)
	defer w.remove(id, told)
	select {
	case e := <-told:
		return e.in, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.turn:
	}
	defer func() { w.turn <- struct{}{} }()
	for {
		if err := w.ask(ctx); err != nil {
			return nil, err
		}
		select {
		case e := <-told:
			return e.in, e.err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(w.interval):
		}
	}
}

// ask asks for all instances that are waited for, and ends the wait for those that have ended or do not exist. It reads an instance that has
// ended once, for all who wait for it. What it has read ends no wait that began later: the instance may have been started in between.
func (w *waiters) ask(ctx context.Context) error {
	waiting := w.waiting()
	found, err := w.reader.SagasByID(ctx, slices.Collect(maps.Keys(waiting)))
	if err != nil {
		return fmt.Errorf("ask for %d instances: %w", len(waiting), err)
	}
	for _, in := range found {
		callers := waiting[in.ID]
		delete(waiting, in.ID)
		if !in.Status.Ended() {
			continue
		}
		switch whole, err := show(ctx, w.reader, in.ID); {
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		case err == nil && !whole.Status.Ended(): // an operator had it go on, or it was purged and its ID started again
		default:
			tell(slices.Values(callers), ended{&whole, err})
		}
	}
	for id, callers := range waiting {
		tell(slices.Values(callers), ended{err: fmt.Errorf("instance %s: %w", id, ErrNotFound)})
	}
	return nil
}

// waiting returns who waits now, by instance.
func (w *waiters) waiting() map[string][]chan ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[string][]chan ended, len(w.byID))
	for id, callers := range w.byID {
		now[id] = slices.Collect(maps.Keys(callers))
	}
	return now
}

func (w *waiters) add(id string) chan ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan ended, 1)
	if w.byID[id] == nil {
		w.byID[id] = make(map[chan ended]struct{})
	}
	w.byID[id][c] = struct{}{}
	return c
}

func (w *waiters) remove(id string, c chan ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID[id], c)
	if len(w.byID[id]) == 0 {
		delete(w.byID, id)
	}
}

func tell(callers iter.Seq[chan ended], e ended) {
	for c := range callers {
		select {
		case c <- e:
		default: // told already
		}
	}
}

// ending has those who wait for an instance told that it has ended, and how, once the transaction of ctx has committed.
func (w *waiters) ending(ctx context.Context, in *store.SagaInstance) {
	if after := signal.AfterOf(ctx); after != nil { // without, they find it by asking
		after.Add(ending{w, in})
	}
}

// ending is an instance that has ended if its transaction has committed.
type ending struct {
	waiters *waiters
	in      *store.SagaInstance
}

// Wake implements signal.Waker.
func (e ending) Wake(...string) {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	tell(maps.Keys(e.waiters.byID[e.in.ID]), ended{in: e.in})
}
