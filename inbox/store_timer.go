package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// A connection that dies without a word answers when TCP gives up, after many minutes. Until then, whoever waits for it would do
// nothing, while the heartbeats, over another connection, keep the leases.

// storeTimer ends the context of a transaction when one of the store's calls takes too long. It does not run while handlers do, which
// have AttemptTimeout. There is one for all calls of a transaction: a context with a timeout for each would cost more.
type storeTimer struct {
	ctx   context.Context
	limit time.Duration
	timer *time.Timer
	stop  context.CancelCauseFunc
}

var errNoAnswer = errors.New("the database did not answer")

// storeTime is how long a call of the store may take.
func (c *ConsumerConfig) storeTime() time.Duration { return cmp.Or(c.LeaseTTL, defaultLeaseTTL) }

// timed returns the timer, which runs, and the context for a transaction.
func (c *Consumer[Tx]) timed(ctx context.Context) (*storeTimer, context.Context) {
	ctx, stop := context.WithCancelCause(ctx)
	limit := c.cfg.storeTime()
	t := time.AfterFunc(limit, func() { stop(fmt.Errorf("%w for %s", errNoAnswer, limit)) })
	return &storeTimer{ctx, limit, t, stop}, ctx
}

// pause and resume surround what is no call of the store.
func (t *storeTimer) pause()  { t.timer.Stop() }
func (t *storeTimer) resume() { t.timer.Reset(t.limit) }

func (t *storeTimer) end() {
	t.timer.Stop()
	t.stop(nil)
}

// cause is why the context of the transaction has ended, if the timer ended it.
func (t *storeTimer) cause() error {
	if err := context.Cause(t.ctx); errors.Is(err, errNoAnswer) {
		return err
	}
	return nil
}

// storeContext returns a context for calls of the store without a handler.
func (c *Consumer[Tx]) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.storeTime())
}
