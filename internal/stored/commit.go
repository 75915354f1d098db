package stored

import (
	"context"
	"time"
)

// commitGrace is how long a COMMIT may go on after the caller's context has ended.
const commitGrace = 10 * time.Second

// WithGrace returns a context for a COMMIT, which ends some time after ctx. A COMMIT that is cut off leaves open whether it took effect.
func WithGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(commitGrace):
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}
