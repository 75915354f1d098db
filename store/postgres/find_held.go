package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// findHeldSQL uses the primary key: $1 relay, $2 keys.
const findHeldSQL = `select key from {held} where relay = $1::text and key = any($2::text[])`

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, leases []store.LeaseRef, keys []string) (found store.FoundHeld, err error) {
	if _, err := s.open(ctx); err != nil {
		return found, err
	}
	partitions, tokens := leaseArgs(leases)
	results, err := implicit(ctx, s.pool, planSQL, func(b *pgx.Batch) {
		b.Queue(s.sql.findHeld, name, keys)
		b.Queue(s.sql.holding, name, partitions, tokens)
	})
	if err != nil {
		return found, translate("find held keys", err)
	}
	var holding map[int]bool
	rows, err := results.Query()
	if err == nil {
		found.Keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err == nil {
		holding, err = readHolding(results)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	found.Lost = lost(leases, holding)
	return found, translate("find held keys", err)
}
