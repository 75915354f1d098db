package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	positionSQL  = `SELECT rev, body, at FROM {prefix}records WHERE kind = ? AND id = ?`
	positionsSQL = `SELECT id, rev, body, at FROM {prefix}records WHERE kind = ?1 AND substr(id, 1, length(?2)) = ?2 ORDER BY id`
	// The first position is inserted, and every later one must follow its predecessor.
	firstPositionSQL = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	nextPositionSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = ?3, body = ?4 WHERE kind = ?1 AND id = ?2 AND rev = ?5 - 1`
)

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, tx *sql.Tx, consumer, partition string) (p *store.LogPosition, err error) {
	err = s.consume("read a position", tx, func(t txn) error {
		id := stored.PositionID(consumer, partition)
		var rev, at int64
		var body []byte
		err := t.get(ctx, positionSQL, []any{stored.KindPosition, id}, &rev, &body, &at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found, err := stored.Position(consumer, id, rev, body, stored.Duration(t.now-at))
		p = &found
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
		text, args := firstPositionSQL, []any{stored.KindPosition, stored.PositionID(consumer, p.Partition), t.now, body}
		if p.Number > 1 {
			text, args = nextPositionSQL, append(args, p.Number)
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

func (t txn) positions(ctx context.Context, consumer string) (out []store.LogPosition, err error) {
	err = t.each(ctx, positionsSQL, []any{stored.KindPosition, stored.PositionsOf(consumer)}, func(rows *sql.Rows) error {
		var id string
		var rev, at int64
		var body []byte
		if err := rows.Scan(&id, &rev, &body, &at); err != nil {
			return err
		}
		p, err := stored.Position(consumer, id, rev, body, stored.Duration(t.now-at))
		out = append(out, p)
		return err
	})
	return out, err
}
