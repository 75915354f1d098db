package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	positionSQL  = `SELECT id, rev, body, ?3 - at FROM {prefix}records WHERE kind = ?1 AND id = ?2`
	positionsSQL = `SELECT id, rev, body, ?3 - at FROM {prefix}records WHERE kind = ?1 AND substr(id, 1, length(?2)) = ?2 ORDER BY id`
	// The first position is inserted, and every later one must follow its predecessor.
	firstPositionSQL = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	nextPositionSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = ?3, body = ?4 WHERE kind = ?1 AND id = ?2 AND rev = ?5`
)

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, tx *sql.Tx, consumer, partition string) (*store.LogPosition, error) {
	return find(s, "read a position", tx, func(t txn) (*store.LogPosition, error) {
		return stored.FirstPosition(ctx, t.query, consumer, positionSQL, stored.KindPosition, stored.PositionID(consumer, partition), t.now)
	})
}

// MovePosition implements store.Positions.
func (s *Store) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p store.LogPosition) error {
	return s.within("move a position", tx, func(t txn) error {
		return t.asTx().MovePosition(ctx, firstPositionSQL, nextPositionSQL, consumer, p, t.now)
	})
}

// LogPositions implements store.Positions.
func (s *Store) LogPositions(ctx context.Context, consumer string) (out []store.LogPosition, err error) {
	err = s.read(ctx, "read positions", func(t txn) error {
		out, err = t.positions(ctx, consumer)
		return err
	})
	return out, err
}

func (t txn) positions(ctx context.Context, consumer string) ([]store.LogPosition, error) {
	return stored.Positions(ctx, t.query, consumer, positionsSQL, stored.KindPosition, stored.PositionsOf(consumer), t.now)
}
