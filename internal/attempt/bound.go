package attempt

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// bound is the context of an attempt, or of a Publish call. It starts a timer when it is first asked whether it has ended. With a timer
// for each call of a handler, a relay would need about 45% more processor time for a message (relay.BenchmarkRelay).
type bound struct {
	context.Context // without the bound
	limit           time.Duration
	deadline        time.Time

	mu      sync.Mutex
	bounded context.Context // nil until it is needed
	cancel  context.CancelFunc
	ended   bool
}

// timeoutError is why an attempt ended that took longer. Few do, so its text is made when somebody reads it.
type timeoutError time.Duration

func (limit timeoutError) Error() string {
	return fmt.Sprintf("attempt took longer than %s: %s", time.Duration(limit), context.DeadlineExceeded)
}

func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

// Bound returns a context for an attempt that began at a time and may take limit (0: any time), and a function that ends it.
func Bound(ctx context.Context, began time.Time, limit time.Duration) (context.Context, func()) {
	if limit <= 0 {
		return ctx, func() {}
	}
	a := &bound{Context: ctx, limit: limit, deadline: began.Add(limit)}
	return a, a.end
}

func (a *bound) timed() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bounded == nil {
		a.bounded, a.cancel = context.WithDeadlineCause(a.Context, a.deadline, timeoutError(a.limit))
		if a.ended {
			a.cancel()
		}
	}
	return a.bounded
}

func (a *bound) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.cancel != nil {
		a.cancel()
	}
}

// Deadline starts no timer.
func (a *bound) Deadline() (time.Time, bool) {
	if at, ok := a.Context.Deadline(); ok && at.Before(a.deadline) {
		return at, true
	}
	return a.deadline, true
}

func (a *bound) Done() <-chan struct{} { return a.timed().Done() }
func (a *bound) Err() error            { return a.timed().Err() }

// Value asks the bounded context: context.Cause and derived contexts find the bound through it.
func (a *bound) Value(key any) any { return a.timed().Value(key) }
