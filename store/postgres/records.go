package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// records implements store.Records. In a transaction it implements store.Writer; without one, each statement of the
// store.Reader is a transaction of its own.
type records struct {
	s  *Store
	tx pgx.Tx
	// importing is set once the transaction holds the lock of imports.
	importing *bool
}

// View implements store.Records.
func (s *Store) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	return translate(op.Doing, f(records{s: s}))
}

// Change implements store.Records.
func (s *Store) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	return s.change(ctx, op.Doing, func(tx pgx.Tx) error {
		in := records{s: s, tx: tx, importing: new(bool)}
		if err := in.exec(ctx, keepPartitionsSQL); err != nil {
			return err
		}
		return f(in)
	})
}

// change runs f in a transaction, and again after a conflict with others.
func (s *Store) change(ctx context.Context, doing string, f func(tx pgx.Tx) error) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.decision(ctx, f)
	})
	return translate(doing, err)
}

// Now implements store.Writer.
func (r records) Now(ctx context.Context) (time.Time, error) {
	now, err := onlyOf[time.Time](ctx, r, nowSQL)
	return now.UTC(), err
}

// query passes the rows of a statement to a function, and closes them.
func (r records) query(ctx context.Context, sql string, args []any, f func(rows pgx.Rows) error) error {
	sql = r.s.names.expand(sql)
	if r.tx == nil {
		return r.s.read(ctx, formatSQL+", "+filterPlanSQL, sql, args, f)
	}
	rows, err := r.tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return f(rows)
}

func (r records) exec(ctx context.Context, sql string, args ...any) error {
	_, err := r.tx.Exec(ctx, r.s.names.expand(sql), args...)
	return err
}

// count is exec and returns the number of rows.
func (r records) count(ctx context.Context, sql string, args ...any) (int, error) {
	tag, err := r.tx.Exec(ctx, r.s.names.expand(sql), args...)
	return int(tag.RowsAffected()), err
}

// onlyOf returns the only column of the only row.
func onlyOf[T any](ctx context.Context, r records, sql string, args ...any) (v T, err error) {
	err = r.query(ctx, sql, args, func(rows pgx.Rows) error {
		v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		return err
	})
	return v, err
}
