package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	positionSQL  = `SELECT id, rev, body, {now} - at FROM {prefix}records WHERE kind = ? AND id = ?`
	positionsSQL = `SELECT id, rev, body, {now} - at FROM {prefix}records WHERE kind = ?1 AND LEFT(id, LENGTH(?2)) = ?2 ORDER BY id`
	// The first position is inserted, and every later one must follow its predecessor.
	firstPositionSQL = `INSERT IGNORE INTO {prefix}records (kind, id, at, body) VALUES (?, ?, {now}, ?)`
	nextPositionSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = {now}, body = ?3 WHERE kind = ?1 AND id = ?2 AND rev = ?4`
)

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, tx *sql.Tx, consumer, partition string) (p *store.LogPosition, err error) {
	err = s.consume("read a position", tx, func(t txn) error {
		found, err := stored.Positions(ctx, t.query, consumer, positionSQL, stored.KindPosition, stored.PositionID(consumer, partition))
		if len(found) > 0 {
			p = &found[0]
		}
		return err
	})
	return p, err
}

// MovePosition implements store.Positions.
func (s *Store) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p store.LogPosition) error {
	body, err := stored.PositionBody(p)
	if err != nil {
		return err
	}
	return s.consume("move a position", tx, func(t txn) error {
		text, args := firstPositionSQL, []any{stored.KindPosition, stored.PositionID(consumer, p.Partition), body}
		if p.Number > 1 {
			text, args = nextPositionSQL, append(args, p.Number-1)
		}
		n, err := t.exec(ctx, text, args...)
		if err == nil && n == 0 {
			err = store.ErrPositionMoved
		}
		return err
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
	return stored.Positions(ctx, t.query, consumer, positionsSQL, stored.KindPosition, stored.PositionsOf(consumer))
}
