package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// readCommittedSQL precedes the statements of an implicit transaction, so that each sees what was committed while the previous
// one waited, whatever default_transaction_isolation is. It applies to this transaction only, as the server resets the level to
// the default for each transaction. (SET LOCAL and SET TRANSACTION do the same but warn outside a BEGIN.)
const readCommittedSQL = `set transaction_isolation = 'read committed'`

// formatSQL makes the server return times and payloads in the format that this package reads, for pools that request results as
// text: a database may have other settings. It is part of a select and applies to the transaction.
const formatSQL = `pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('bytea_output', 'hex', true)`

// hexSQL is true, and makes the server return bytes in the format that this package and pgx read, for results as text. It is a condition
// of a select in a transaction of somebody else, where a statement of its own would cost database/sql a round trip. It applies to the
// transaction, and changes nothing where the format is the default.
const hexSQL = `(select case current_setting('bytea_output') when 'hex' then true else set_config('bytea_output', 'hex', true) = 'hex' end)`

// implicit runs statements in one round trip and as one transaction, READ COMMITTED, without BEGIN and COMMIT: it commits when
// the results are closed. plan holds settings and precedes the statements; the results of the statements come next.
func implicit(ctx context.Context, pool pool, plan string, queue func(b *pgx.Batch)) (pgx.BatchResults, error) {
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

// filterPlanSQL makes the server plan statements for their parameters each time, instead of for any after some calls: a filter that
// is not set is a constant in the plan then, and one that is set finds its index. It is part of a select and applies to the transaction.
const filterPlanSQL = `pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true)`

// read runs a query whose result has times or payloads, after settings, passes the rows to a function, and closes them.
func (s *Store) read(ctx context.Context, settings, sql string, args []any, rows func(rows pgx.Rows) error) error {
	results, err := implicit(ctx, s.pool, "select "+settings, func(b *pgx.Batch) { b.Queue(sql, args...) })
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
