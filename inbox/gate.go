package inbox

import "context"

// closed reports whether nothing may be started now.
func (c *Consumer[Tx]) closed() bool {
	n, _ := c.retries.Allow(1)
	return n == 0
}

// mayStart returns how many messages may be started now, up to what one transaction has time for. Messages in transactions may not
// have reached the gate yet.
func (c *Consumer[Tx]) mayStart() int {
	free, _ := c.retries.Allow(min(c.cfg.Batch, c.size.limit()) + c.running)
	return max(free-c.running, 0)
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
