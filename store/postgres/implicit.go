package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readCommittedSQL goes before the statements of an implicit transaction, of which each is to see what was committed while
// the one before waited, whatever default_transaction_isolation is. It holds for the transaction alone, as the server
// takes the default anew for each. (SET LOCAL and SET TRANSACTION do the same but warn outside of a BEGIN.)
const readCommittedSQL = `set transaction_isolation = 'read committed'`

// formatSQL makes times and payloads come as they are read here, where the pool asks for results as text: a database may
// have other settings. It is a part of a select, and holds for the transaction.
const formatSQL = `set_config('datestyle', 'ISO', true), set_config('bytea_output', 'hex', true)`

// implicit runs statements in one round trip and as one transaction, READ COMMITTED, without BEGIN and COMMIT: it is
// committed when the results are closed. plan holds settings and stands before the statements; their results come next.
func implicit(ctx context.Context, pool *pgxpool.Pool, plan string, queue func(b *pgx.Batch)) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	b.Queue(readCommittedSQL)
	b.Queue(plan)
	queue(b)
	results := pool.SendBatch(ctx, b)
	for range 2 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // err is the cause of what this one reports
			return nil, err
		}
	}
	return results, nil
}

// read runs a query whose result has times or payloads, and hands over the rows, which it closes.
func (s *Store) read(ctx context.Context, sql string, args []any, rows func(rows pgx.Rows) error) error {
	results, err := implicit(ctx, s.pool, "select "+formatSQL, func(b *pgx.Batch) { b.Queue(sql, args...) })
	if err != nil {
		return err
	}
	r, err := results.Query()
	if err == nil {
		err = rows(r)
		r.Close()
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}
