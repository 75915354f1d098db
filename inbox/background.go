package inbox

import "context"

// Background adds a function that Run runs in a goroutine of its own, e.g. to remove what handlers no longer need. Its context
// ends when the consumer stops, and Run waits until the function has returned. Call Background before Run. Errors:
// relay.ErrStarted.
func (c *Consumer[Tx]) Background(f func(ctx context.Context)) error { return c.retries.Background(f) }
