package inbox

import (
	"context"
	"fmt"
)

// Background adds a function that Run runs in a goroutine of its own, e.g. to remove what handlers no longer need. Its context
// ends when the consumer stops, and Run waits until the function has returned. Call Background before Run. Errors:
// relay.ErrStarted.
func (c *Consumer[Tx]) Background(f func(ctx context.Context)) error { return c.retries.Background(f) }

// Prepare adds a function that Run calls before the consumer takes its first message, e.g. to check what the handlers depend on. Its
// error ends Run. Its context ends when all have returned. Call Prepare before Run. Errors: ErrStarted.
func (c *Consumer[Tx]) Prepare(f func(ctx context.Context) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return fmt.Errorf("consumer %s: add a function to prepare: %w", c.cfg.Name, ErrStarted)
	}
	c.prepare = append(c.prepare, f)
	return nil
}

// prepared calls the functions of Prepare.
func (c *Consumer[Tx]) prepared(ctx context.Context) error {
	for _, f := range c.prepare {
		if err := f(ctx); err != nil {
			return fmt.Errorf("consumer %s: %w", c.cfg.Name, err)
		}
	}
	return nil
}
