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
