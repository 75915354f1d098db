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
