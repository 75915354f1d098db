package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// A process's view of a store that it cannot always reach.
var (
	errCrashed    = errors.New("the process has crashed: nothing it does has an effect")
	errNotReached = errors.New("the store was not reached")
	errAnswerLost = errors.New("the store's answer was lost")
)

// connection is how one process reaches the store. It is slow, fails before and after an operation takes effect, and is cut
// when the process crashes.
type connection struct {
	*memory.Store
	h       *history
	crashed atomic.Bool
}

// through runs an operation over the connection.
func through[T any](l *connection, op func() (T, error)) (T, error) {
	var none T
	there, back := l.h.delays()
	if l.crashed.Load() {
		return none, errCrashed
	}
	time.Sleep(there)
	switch {
	case l.crashed.Load():
		return none, errCrashed
	case l.h.fault():
		return none, errNotReached
	}
	out, err := op()
	if err != nil {
		return none, err
	}
	time.Sleep(back)
	switch {
	case l.crashed.Load():
		return none, errCrashed
	case l.h.fault():
		return none, errAnswerLost
	}
	return out, nil
}

// delays are the times that an operation takes there and back: mostly short, sometimes a large part of a lease.
func (h *history) delays() (there, back time.Duration) {
	if h.calm || h.quiet.Load() {
		return 0, 0
	}
	longest := 10 * time.Millisecond
	if h.storeChance.oneIn(50) {
		longest = 1500 * time.Millisecond
	}
	return h.storeChance.upTo(longest), h.storeChance.upTo(longest)
}

// fault reports whether the store fails now; h.faults is how often it does in the two moments of an operation together.
func (h *history) fault() bool {
	return !h.calm && !h.quiet.Load() && h.storeChance.happens(h.faults/2)
}

// nothing is for operations that answer with an error only.
func nothing(op func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, op() }
}

func (l *connection) Heartbeat(ctx context.Context, name string, o store.Owner, ttl time.Duration) (store.View, error) {
	return through(l, func() (store.View, error) { return l.Store.Heartbeat(ctx, name, o, ttl) })
}

func (l *connection) Acquire(ctx context.Context, name string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	return through(l, func() ([]store.Lease, error) { return l.Store.Acquire(ctx, name, o, req) })
}

func (l *connection) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	_, err := through(l, nothing(func() error { return l.Store.Change(ctx, op, f) }))
	return err
}

func (l *connection) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	_, err := through(l, nothing(func() error { return l.Store.Release(ctx, name, leases) }))
	return err
}

func (l *connection) Leave(ctx context.Context, name string, o store.Owner) error {
	_, err := through(l, nothing(func() error { return l.Store.Leave(ctx, name, o) }))
	return err
}

func (l *connection) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	return through(l, func() ([]store.Batch, error) {
		batches, err := l.Store.Fetch(ctx, name, req)
		for i := range batches {
			if b := &batches[i]; len(b.Entries) > 0 {
				l.h.note("fetched in partition %d, %d of them late:%s", b.Partition, b.Late, recordIDs(b.Entries))
			}
		}
		return batches, err
	})
}

func (l *connection) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	return through(l, func() (store.DueResult, error) {
		res, err := l.Store.Due(ctx, name, req)
		for i := range res.Runs {
			run := &res.Runs[i]
			l.h.note("due in partition %d, key %q:%s", run.Partition, run.Key, recordIDs(run.Entries))
		}
		return res, err
	})
}

func (l *connection) Settle(ctx context.Context, name string, all []store.Settlement) (store.Settled, error) {
	return through(l, func() (store.Settled, error) {
		res, err := l.Store.Settle(ctx, name, all)
		for i := range all {
			s := &all[i]
			l.h.note("settlement %d of partition %d up to %d: delivered %v, removed %v, parked %+v, dead %+v, held %+v, release %v: %+v, %v",
				s.Number, s.Partition, s.Cursor.Position, s.Delivered, s.Removed, s.Parked, s.Dead, s.Held, s.Release, res, err)
		}
		return res, err
	})
}

func (l *connection) CommitSettled(ctx context.Context, tx *memory.Tx, name string, s store.Settlement) ([]string, error) {
	released, err := through(l, func() ([]string, error) {
		released, err := l.Store.CommitSettled(ctx, tx, name, s)
		l.h.note("transaction with settlement %d of partition %d up to %d: delivered %v, removed %v: %v",
			s.Number, s.Partition, s.Cursor.Position, s.Delivered, s.Removed, err)
		return released, err
	})
	return released, errors.Join(err, l.Rollback(context.WithoutCancel(ctx), tx)) // after a commit, Rollback does nothing
}

func recordIDs(records []store.Entry) string {
	var out strings.Builder
	for _, r := range records {
		out.WriteString(" " + r.Message.ID)
	}
	return out.String()
}
