// Package signal wakes goroutines that wait for new messages in the same process. Signals coalesce: any number of them
// before a waiter wakes count as one. Watch finds messages of other processes.
package signal

import "sync"

// Broadcast is a wake-up for any number of waiters. The zero value is ready for use.
type Broadcast struct {
	mu        sync.Mutex
	waiters   map[chan struct{}]struct{}
	listening chan struct{} // see turn
}

// Subscribe returns a channel that receives after each Wake (coalesced), and a function that ends the subscription.
func (b *Broadcast) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters == nil {
		b.waiters = make(map[chan struct{}]struct{})
	}
	b.waiters[c] = struct{}{}
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiters, c)
	}
}

// Wake signals every subscriber and never blocks.
func (b *Broadcast) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
