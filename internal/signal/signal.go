// Package signal wakes goroutines that wait for new messages in the same process. Signals coalesce: any number of them
// before a waiter wakes count as one. Watch finds messages of other processes.
package signal

import (
	"slices"
	"sync"
)

// Broadcast is a wake-up for any number of waiters. The zero value is ready for use.
type Broadcast struct {
	mu        sync.Mutex
	waiters   map[chan struct{}]func(topic string) bool
	listening chan struct{} // see turn
}

// Subscribe returns a channel that receives after each Wake (coalesced) without topics, or with one that takes reports true for; nil takes
// all. The returned function ends the subscription. takes is called by Wake, so it must neither wait nor call Wake.
func (b *Broadcast) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters == nil {
		b.waiters = make(map[chan struct{}]func(topic string) bool)
	}
	b.waiters[c] = takes
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiters, c)
	}
}

// Wake signals the subscribers that take one of the topics, or every subscriber if none is given. It never blocks.
func (b *Broadcast) Wake(topics ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, takes := range b.waiters {
		if len(topics) > 0 && takes != nil && !slices.ContainsFunc(topics, takes) {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
