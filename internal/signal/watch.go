package signal

import (
	"context"
	"time"
)

// The waits of Watch.
const (
	lookEvery  = 100 * time.Millisecond
	lookAgain  = time.Second // after an error, which may be a server that is down
	lookWithin = 5 * time.Second
)

// Watch wakes the subscribers when the number that look returns changes, until ctx ends. It is how a process finds what others publish
// without waking it, so look must be cheap, and the number must change with each publication. Errors are left to the subscribers,
// which poll less often in any case.
func (b *Broadcast) Watch(ctx context.Context, look func(context.Context) (int64, error)) {
	var last int64
	for {
		wait := lookEvery
		bounded, cancel := context.WithTimeout(ctx, lookWithin)
		n, err := look(bounded)
		cancel()
		switch {
		case err != nil:
			wait = lookAgain
		case n != last:
			last = n
			b.Wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Alone calls f, which runs until ctx ends, unless another call of Alone is running, whose end it waits for: a process with several
// relays on a store listens once.
func (b *Broadcast) Alone(ctx context.Context, f func()) {
	select {
	case b.turn() <- struct{}{}:
		defer func() { <-b.turn() }()
		f()
	case <-ctx.Done():
	}
}

// turn returns a channel that has space while nobody listens.
func (b *Broadcast) turn() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listening == nil {
		b.listening = make(chan struct{}, 1)
	}
	return b.listening
}
