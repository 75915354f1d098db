package stored

import (
	"context"
	"database/sql"
	"errors"
)

// Query runs a statement that returns rows, in a transaction or connection of a store.
type Query func(ctx context.Context, text string, args ...any) (*sql.Rows, error)

// Get scans the first row; sql.ErrNoRows if there is none.
func (q Query) Get(ctx context.Context, text string, args []any, dest ...any) error {
	rows, err := q(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// Each calls scan for every row.
func (q Query) Each(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Column returns the values of a result with one column.
func Column[T any](ctx context.Context, q Query, text string, args ...any) ([]T, error) {
	var out []T
	err := q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var value T
		err := rows.Scan(&value)
		out = append(out, value)
		return err
	})
	return out, err
}

// OrNone is the error of a Get whose destinations keep their values if there is no row.
func OrNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// BeyondSize returns the sequence up to which messages exceed a size of the log, counted from the newest; 0 if none do. bounds is a
// statement for the first and the last sequence, sample one for about n messages, newest first: sequence and size of each step-th
// message from the last to the first.
func BeyondSize(ctx context.Context, q Query, bounds, sample string, n, limit int64) (upTo int64, err error) {
	var first, last int64
	if err := q.Get(ctx, bounds, nil, &first, &last); err != nil || last == 0 {
		return 0, err
	}
	step, size := (last-first)/n+1, int64(0)
	err = q.Each(ctx, sample, []any{first, last, step}, func(rows *sql.Rows) error {
		var seq, bytes int64
		err := rows.Scan(&seq, &bytes)
		// Each sample represents the messages down to the next older sample.
		if size += bytes * step; size > limit && upTo == 0 {
			upTo = seq
		}
		return err
	})
	return upTo, err
}
