package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/relay"
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

func (l *line) Heartbeat(ctx context.Context, name string, o relay.Owner, ttl time.Duration) (relay.View, error) {
	return through(l, "Heartbeat", func() (relay.View, error) { return l.database.Heartbeat(ctx, name, o, ttl) })
}

func (l *line) Acquire(ctx context.Context, name string, o relay.Owner, req relay.AcquireRequest) ([]relay.Lease, error) {
	return through(l, "Acquire", func() ([]relay.Lease, error) { return l.database.Acquire(ctx, name, o, req) })
}

func (l *line) Release(ctx context.Context, name string, leases []relay.LeaseRef) error {
	_, err := through(l, "Release", nothing(func() error { return l.database.Release(ctx, name, leases) }))
	return err
}

func (l *line) Leave(ctx context.Context, name string, o relay.Owner) error {
	_, err := through(l, "Leave", nothing(func() error { return l.database.Leave(ctx, name, o) }))
	return err
}

func (l *line) Fetch(ctx context.Context, name string, req relay.FetchRequest) ([]relay.Batch, error) {
	batches, err := through(l, "Fetch", func() ([]relay.Batch, error) { return l.database.Fetch(ctx, name, req) })
	size := int64(0)
	for _, b := range batches {
		for _, r := range b.Records {
			size += int64(r.Message.Size())
		}
	}
	if held := l.unsettledBytes.Add(size); held > l.peakBytes.Load() {
		l.peakBytes.Store(held)
	}
	return batches, err
}

func (l *line) Due(ctx context.Context, name string, req relay.DueRequest) (relay.DueResult, error) {
	return through(l, "Due", func() (relay.DueResult, error) { return l.database.Due(ctx, name, req) })
}

func (l *line) LoadParked(ctx context.Context, name string, partition int, position int64) (relay.ParkedState, error) {
	return through(l, "LoadParked", func() (relay.ParkedState, error) { return l.database.LoadParked(ctx, name, partition, position) })
}

func (l *line) Settle(ctx context.Context, name string, s []relay.Settlement) (relay.Settled, error) {
	l.settles.Add(1)
	return through(l, "Settle", func() (relay.Settled, error) { return l.database.Settle(ctx, name, s) })
}

func (l *line) Maintain(ctx context.Context, keep relay.Retention) (relay.Maintained, error) {
	defer l.maintained.Add(1)
	return through(l, "Maintain", func() (relay.Maintained, error) { return l.database.Maintain(ctx, keep) })
}

func (l *line) Decide(ctx context.Context, name string, lease relay.LeaseRef, id string) error {
	_, err := through(l, "Decide", nothing(func() error { return l.database.Decide(ctx, name, lease, id) }))
	return err
}
