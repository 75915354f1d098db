package inbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/store"
)

// watchedStore is the store of the consumer's relay. It tells the source of a log which leases the relay gets and gives back.
type watchedStore[Tx any] struct {
	parkedStore
	src  *logSource[Tx]
	last *atomic.Pointer[heartbeat]
}

// heartbeat is what the relay sent last.
type heartbeat struct {
	owner store.Owner
	ttl   time.Duration
}

func watched[Tx any](s store.Relay, src *logSource[Tx]) watchedStore[Tx] {
	return watchedStore[Tx]{parkedStore{s}, src, new(atomic.Pointer[heartbeat])}
}

// Wraps implements store.Wrapper.
func (s watchedStore[Tx]) Wraps() any { return s.parkedStore }

// Heartbeat implements store.Leases.
func (s watchedStore[Tx]) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	s.last.Store(&heartbeat{owner, ttl})
	view, err := s.parkedStore.Heartbeat(ctx, name, owner, ttl)
	if err == nil {
		tokens := make(map[int]string)
		for _, p := range view.Partitions {
			if p.Owner == owner.ID {
				tokens[p.Partition] = p.Token
			}
		}
		s.src.hold(tokens)
	}
	return view, err
}

// Acquire implements store.Leases.
func (s watchedStore[Tx]) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	leases, err := s.parkedStore.Acquire(ctx, name, owner, req)
	s.src.gain(leases)
	return leases, err
}

// Release implements store.Leases. What is under way is finished first.
func (s watchedStore[Tx]) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	half, cancel := withHalf(ctx)
	defer cancel()
	s.src.release(half, leases)
	return s.parkedStore.Release(ctx, name, leases)
}

// Leave implements store.Leases. It waits for the consumer's transactions, which takes up to its StopTimeout. A relay that cannot go on
// leaves by itself, and ends the consumer.
func (s watchedStore[Tx]) Leave(ctx context.Context, name string, owner store.Owner) error {
	s.src.c.endLife()
	ctx = context.WithoutCancel(ctx)
	s.keepLeases(ctx, name)
	stopping, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	s.src.leave(stopping)
	ctx, leave := context.WithTimeout(ctx, closeTimeout)
	defer leave()
	return s.parkedStore.Leave(ctx, name, owner)
}

// keepLeases renews the leases, which the relay does no longer, until the consumer waits for no transaction any more: without a lease, none
// could commit.
func (s watchedStore[Tx]) keepLeases(ctx context.Context, name string) {
	last := s.last.Load()
	if last == nil {
		<-s.src.finished
		return
	}
	renew := time.NewTimer(0)
	defer renew.Stop()
	for {
		select {
		case <-s.src.finished:
			return
		case <-renew.C:
			bounded, cancel := context.WithTimeout(ctx, last.ttl/3)
			_, _ = s.Heartbeat(bounded, name, last.owner, last.ttl) // it is tried again
			cancel()
			renew.Reset(last.ttl / 3)
		}
	}
}

// withHalf returns a context that ends after half of the time that ctx has left.
func withHalf(ctx context.Context) (context.Context, context.CancelFunc) {
	if until, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(until)/2)
	}
	return context.WithCancel(ctx)
}
