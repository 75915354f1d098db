package inbox

import (
	"context"
	"time"
)

// forgetEvery is the interval between removals of expired claims.
const forgetEvery = time.Minute

// forgetLoop removes the IDs of messages that can no longer be redelivered, in small batches.
func (c *Consumer[Tx]) forgetLoop(ctx context.Context) {
	if c.cfg.Dedup != ByID {
		return
	}
	for wait := time.Second; sleep(ctx, wait); {
		n, err := c.forget(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("consumer cannot forget old messages and will try again", "consumer", c.cfg.Name, "error", err)
		}
		wait = forgetEvery
		if n == forgetBatch {
			wait = 10 * time.Millisecond // let others write in between
		}
	}
}

// forget removes IDs that are no longer needed. The IDs of messages beyond the position in a log are.
func (c *Consumer[Tx]) forget(ctx context.Context) (n int, err error) {
	age := c.cfg.KeepIDs
	if c.log != nil {
		longer, err := c.log.keptLonger(ctx)
		if err != nil {
			return 0, err
		}
		age += longer
	}
	return c.store.Forget(ctx, c.cfg.Name, age, forgetBatch)
}
