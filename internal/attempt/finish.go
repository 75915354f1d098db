package attempt

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// grace is how long a call may take to return after it was cancelled. One that ignores its context cannot be waited for.
const grace = time.Second

// Finish waits for workers until the context of their calls ends, or for a time, after which it cancels the calls. what names them in the
// error, which says that calls were cut short.
func Finish(calls context.Context, cancel func(), workers *sync.WaitGroup, what string, limit time.Duration) (cut error) {
	idle := make(chan struct{})
	go func() { defer close(idle); workers.Wait() }()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-idle:
		return nil
	case <-calls.Done():
		cut = fmt.Errorf("%s under way were cancelled; their messages will be delivered again", what)
	case <-timeout.C:
		cut = fmt.Errorf("%s under way did not end within %s and were cancelled; their messages will be delivered again", what, limit)
	}
	cancel()
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case <-idle:
	case <-last.C:
	}
	return cut
}
