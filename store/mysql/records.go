package mysqlstore

import (
	"context"
	"database/sql"
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
		txn: t, chosen: make(map[int64]chosenDead), HeldReader: stored.NewHeldReader(t.query, t.s.held),
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
	return s.write(ctx, op.Doing, func(t txn) error { return f(&writer{t.records()}) })
}

// MarkCauses implements store.Records: dead letters are stored with their fingerprints.
func (s *Store) MarkCauses(context.Context) (bool, error) { return false, nil }

// writer is records whose time moves on.
type writer struct{ records }

// Now implements store.Writer.
func (w *writer) Now(ctx context.Context) (time.Time, error) {
	err := w.look(ctx)
	return stored.Time(w.now), err
}

// eachOf calls scan for every row of a query whose values are inlined.
func (t txn) eachOf(ctx context.Context, text string, scan func(*sql.Rows) error) error {
	return stored.Query(t.on.QueryContext).Each(ctx, text, nil, scan)
}
