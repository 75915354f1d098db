package relay

import (
	"context"
	"fmt"
)

// Background adds a function that Run runs in a goroutine of its own, e.g. to remove what handlers no longer need. Its context
// ends once the relay has settled its last message, and Run waits until the function has returned. Call Background before Run.
// Errors: ErrStarted.
func (r *Relay) Background(f func(ctx context.Context)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return fmt.Errorf("relay %s: add a background function: %w", r.cfg.Name, ErrStarted)
	}
	r.background = append(r.background, f)
	return nil
}

// Prepare adds a function that Run calls before the relay takes its first message, e.g. to check what the handlers depend on. Its
// error ends Run. Its context ends when all have returned. Call Prepare before Run. Errors: ErrStarted.
func (r *Relay) Prepare(f func(ctx context.Context) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return fmt.Errorf("relay %s: add a function to prepare: %w", r.cfg.Name, ErrStarted)
	}
	r.prepare = append(r.prepare, f)
	return nil
}

// prepared calls the functions of Prepare.
func (r *Relay) prepared(ctx context.Context) error {
	for _, f := range r.prepare {
		if err := f(ctx); err != nil {
			return fmt.Errorf("relay %s: %w", r.cfg.Name, err)
		}
	}
	return nil
}
