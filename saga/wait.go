package saga

import (
	"context"
	"fmt"
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
	// soon gets a value when an instance that is waited for has ended in this process, or is about to.
	soon chan struct{}

	mu   sync.Mutex
	byID map[string]map[chan error]struct{}
}

func (w *waiters) init(reader store.SagaReader, interval time.Duration) {
	w.reader, w.interval, w.byID = reader, interval, make(map[string]map[chan error]struct{})
	w.turn, w.soon = make(chan struct{}, 1), make(chan struct{}, 1)
	w.turn <- struct{}{}
}

// wait returns when an instance has ended. Errors: that of ctx; ErrNotFound; those of the store.
func (w *waiters) wait(ctx context.Context, id string) error {
	ended := w.add(id)
	defer w.remove(id, ended)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.turn:
	}
	defer func() { w.turn <- struct{}{} }()
	for wait := w.interval; ; wait = min(2*wait, w.interval) {
		if err := w.ask(ctx); err != nil {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-w.soon:
			wait = time.Millisecond / 2 // its commit may take a moment
		case <-time.After(wait):
		}
	}
}

// ask asks for all instances that are waited for, and ends the wait for those that have ended or do not exist.
func (w *waiters) ask(ctx context.Context) error {
	w.mu.Lock()
	ids := make([]string, 0, len(w.byID))
	for id := range w.byID {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	found, err := w.reader.SagasByID(ctx, ids)
	if err != nil {
		return fmt.Errorf("ask for %d instances: %w", len(ids), err)
	}
	exists := make(map[string]bool, len(found))
	for _, in := range found {
		exists[in.ID] = true
		if in.Status.Ended() {
			w.tell(in.ID, nil)
		}
	}
	for _, id := range ids {
		if !exists[id] {
			w.tell(id, fmt.Errorf("instance %s: %w", id, ErrNotFound))
		}
	}
	return nil
}

func (w *waiters) add(id string) chan error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan error, 1)
	if w.byID[id] == nil {
		w.byID[id] = make(map[chan error]struct{})
	}
	w.byID[id][c] = struct{}{}
	return c
}

func (w *waiters) remove(id string, c chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID[id], c)
	if len(w.byID[id]) == 0 {
		delete(w.byID, id)
	}
}

func (w *waiters) tell(id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.byID[id] {
		select {
		case c <- err:
		default: // told already
		}
	}
}

// ending says that an instance ends if the transaction of ctx commits.
func (w *waiters) ending(ctx context.Context, id string) {
	w.mu.Lock()
	waited := len(w.byID[id]) > 0
	w.mu.Unlock()
	switch after := signal.AfterOf(ctx); {
	case !waited:
	case after != nil:
		after.Add(w)
	default:
		w.Wake()
	}
}

// Wake implements signal.Waker: it has the database asked.
func (w *waiters) Wake(...string) {
	select {
	case w.soon <- struct{}{}:
	default:
	}
}
