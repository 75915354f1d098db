package inbox

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// closed reports whether nothing may be started now.
func (c *Consumer[Tx]) closed() bool {
	n, _ := c.retries.Allow(1)
	return n == 0
}

// mayStart returns how many messages may be started now, up to what one transaction has time for. Messages in transactions may not
// have reached the gate yet, except those that counts no longer waits for.
func (c *Consumer[Tx]) mayStart() int {
	free, _ := c.retries.Allow(min(c.cfg.Batch, c.size.limit()) + c.running)
	return max(free-c.running, 0)
}

// counts returns a function that ends the count of n messages as running. If a gate limits those, a transaction whose handler does not
// return stops counting when its time is over, so that it keeps no others back for longer.
func (c *Consumer[Tx]) counts(n int) (end func()) {
	returned := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running -= n
	}
	if c.cfg.Gate == nil {
		return returned
	}
	once := sync.OnceFunc(returned)
	late := time.AfterFunc(c.cfg.batchTime()+cmp.Or(c.cfg.AttemptTimeout, relay.DefaultAttemptTimeout), func() {
		once()
		c.wakeWaiters()
	})
	return func() {
		late.Stop()
		once()
	}
}

// gateLoop wakes what waits for the gate, which is that of the relay for parked messages.
func (c *Consumer[Tx]) gateLoop(ctx context.Context) {
	for {
		changed := c.retries.Changed()
		c.wakeWaiters()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// wakeWaiters wakes all waiting goroutines.
func (c *Consumer[Tx]) wakeWaiters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work.Broadcast()
	c.room.Broadcast()
	c.changed.Broadcast()
}
