package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// findHeldSQL uses the primary key: $1 relay, $2 keys.
const findHeldSQL = `select key from {held} where relay = $1::text and key = any($2::text[])`

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, keys []string) ([]string, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	var found []string
	err := s.read(ctx, formatSQL, s.names.expand(findHeldSQL), []any{name, keys}, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return found, translate("find held keys", err)
}
