package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/store"
)

// errCut is the error of a database that a process cannot reach.
var errCut = errors.New("storetest: the database cannot be reached")

// line is a process's connection to the database: it can be cut, lose responses, and counts operations.
type line struct {
	database
	// cut makes every operation fail before it has an effect.
	cut atomic.Bool
	// fault, if set before the first operation, is called before an operation (done false) and after it took effect (done true).
	fault func(op string, done bool) error

	settles    atomic.Int64 // calls
	maintained atomic.Int64 // calls that have returned
	// unsettledBytes is the size of what was fetched minus what was delivered; peakBytes is its highest value.
	unsettledBytes, peakBytes atomic.Int64
}

// through runs an operation over the connection.
func through[T any](l *line, op string, f func() (T, error)) (T, error) {
	var none T
	if err := l.passes(op, false); err != nil {
		return none, err
	}
	out, err := f()
	if err != nil {
		return none, err
	}
	if err := l.passes(op, true); err != nil {
		return none, err
	}
	return out, nil
}

func (l *line) passes(op string, done bool) error {
	if l.cut.Load() {
		return errCut
	}
	if l.fault != nil {
		return l.fault(op, done)
	}
	return nil
}

// nothing adapts operations that return only an error.
func nothing(f func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, f() }
}

func (l *line) Partitions(ctx context.Context) (int, error) {
	return through(l, "Partitions", func() (int, error) { return l.database.Partitions(ctx) })
}

func (l *line) Heartbeat(ctx context.Context, name string, o store.Owner, ttl time.Duration) (store.View, error) {
	return through(l, "Heartbeat", func() (store.View, error) { return l.database.Heartbeat(ctx, name, o, ttl) })
}

func (l *line) Acquire(ctx context.Context, name string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	return through(l, "Acquire", func() ([]store.Lease, error) { return l.database.Acquire(ctx, name, o, req) })
}

func (l *line) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	_, err := through(l, "Release", nothing(func() error { return l.database.Release(ctx, name, leases) }))
	return err
}

func (l *line) Leave(ctx context.Context, name string, o store.Owner) error {
	_, err := through(l, "Leave", nothing(func() error { return l.database.Leave(ctx, name, o) }))
	return err
}

func (l *line) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	batches, err := through(l, "Fetch", func() ([]store.Batch, error) { return l.database.Fetch(ctx, name, req) })
	size := int64(0)
	for _, b := range batches {
		for _, r := range b.Entries {
			size += int64(r.Message.Size())
		}
	}
	if held := l.unsettledBytes.Add(size); held > l.peakBytes.Load() {
		l.peakBytes.Store(held)
	}
	return batches, err
}

func (l *line) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	return through(l, "Due", func() (store.DueResult, error) { return l.database.Due(ctx, name, req) })
}

func (l *line) FindHeld(ctx context.Context, name string, leases []store.LeaseRef, keys []string) (store.FoundHeld, error) {
	return through(l, "FindHeld", func() (store.FoundHeld, error) { return l.database.FindHeld(ctx, name, leases, keys) })
}

func (l *line) Settle(ctx context.Context, name string, s []store.Settlement) (store.Settled, error) {
	l.settles.Add(1)
	return through(l, "Settle", func() (store.Settled, error) { return l.database.Settle(ctx, name, s) })
}

func (l *line) Maintain(ctx context.Context, keep store.Retention) (store.Maintained, error) {
	defer l.maintained.Add(1)
	return through(l, "Maintain", func() (store.Maintained, error) { return l.database.Maintain(ctx, keep) })
}

func (l *line) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	_, err := through(l, op.Method, nothing(func() error { return l.database.Change(ctx, op, f) }))
	return err
}
