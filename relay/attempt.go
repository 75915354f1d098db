package relay

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// attemptContext bounds an attempt, or a Publish call. It starts a timer when it is first asked whether it has ended. With a timer
// for each call of a handler, the relay would need about 45% more processor time for a message (BenchmarkRelay).
type attemptContext struct {
	context.Context // without the bound
	limit           time.Duration
	deadline        time.Time

	mu      sync.Mutex
	bounded context.Context // nil until it is needed
	cancel  context.CancelFunc
	ended   bool
}

// boundAttempt returns a context for an attempt that began at a time, and a function that ends it.
func (r *Relay) boundAttempt(ctx context.Context, began time.Time) (context.Context, func()) {
	limit := r.attemptTimeout()
	if limit <= 0 {
		return ctx, func() {}
	}
	a := &attemptContext{Context: ctx, limit: limit, deadline: began.Add(limit)}
	return a, a.end
}

func (a *attemptContext) bound() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bounded == nil {
		timedOut := fmt.Errorf("attempt took longer than %s: %w", a.limit, context.DeadlineExceeded)
		a.bounded, a.cancel = context.WithDeadlineCause(a.Context, a.deadline, timedOut)
		if a.ended {
			a.cancel()
		}
	}
	return a.bounded
}

func (a *attemptContext) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.cancel != nil {
		a.cancel()
	}
}

func (a *attemptContext) Deadline() (time.Time, bool) { return a.deadline, true }
func (a *attemptContext) Done() <-chan struct{}       { return a.bound().Done() }
func (a *attemptContext) Err() error                  { return a.bound().Err() }

// Value asks the bounded context: context.Cause and derived contexts find the bound through it.
func (a *attemptContext) Value(key any) any { return a.bound().Value(key) }
