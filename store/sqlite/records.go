package sqlite

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Records = (*Store)(nil)

// records implements store.Reader and, in a transaction that writes, store.Writer.
type records struct {
	txn
	stored.HeldReader
	stored.LogReader
	chosen map[int64]chosenDead // by number, those of the last LockDead
}

func (t txn) records() records {
	return records{
		txn: t, chosen: make(map[int64]chosenDead), HeldReader: stored.NewHeldReader(t.query, &heldStatements),
		LogReader: stored.LogReader{
			Query: t.query, EndSQL: logEndSQL, PositionSQL: logPositionSQL, ParkedSQL: countAllParkedSQL, Filters: t.filters,
		},
	}
}

// View implements store.Records.
func (s *Store) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	return s.read(ctx, op.Doing, func(t txn) error { return f(t.records()) })
}

// Change implements store.Records.
func (s *Store) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	return s.write(ctx, op.Doing, durable, func(t txn) error {
		return f(t.records())
	})
}

// Now implements store.Writer: nobody else has written since the transaction began.
func (r records) Now(context.Context) (time.Time, error) { return stored.Time(r.now), nil }
