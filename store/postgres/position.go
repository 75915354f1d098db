package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// The statements of positions: $1 kind, $2 ID, $3 body, $4 number. The first position is inserted, and every later one must
// follow its predecessor.
const (
	positionColumns  = `id, rev, body, (extract(epoch from clock_timestamp() - at) operator(pg_catalog.*) 1000000)::int8`
	positionSQL      = `select ` + positionColumns + ` from {records} where kind = $1::text and id = $2::text and ` + hexSQL
	positionsSQL     = `select ` + positionColumns + ` from {records} where kind = $1::text and left(id, length($2::text)) = $2::text and ` + hexSQL + ` order by id collate "C"`
	firstPositionSQL = `insert into {records} (kind, id, body) values ($1::text, $2::text, $3::bytea) on conflict do nothing returning 1`
	nextPositionSQL  = `update {records} set rev = rev + 1, at = clock_timestamp(), body = $3::bytea
where kind = $1::text and id = $2::text and rev = $4::int8 - 1 returning 1`
)

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, tx pgx.Tx, consumer, partition string) (*store.LogPosition, error) {
	return s.position(ctx, pgxCaller{tx}, consumer, partition)
}

// MovePosition implements store.Positions.
func (s *Store) MovePosition(ctx context.Context, tx pgx.Tx, consumer string, p store.LogPosition) error {
	return s.movePosition(ctx, pgxCaller{tx}, consumer, p)
}

// Position implements store.Positions.
func (s *SQLStore) Position(ctx context.Context, tx *sql.Tx, consumer, partition string) (*store.LogPosition, error) {
	return s.position(ctx, sqlCaller{tx}, consumer, partition)
}

// MovePosition implements store.Positions.
func (s *SQLStore) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p store.LogPosition) error {
	return s.movePosition(ctx, sqlCaller{tx}, consumer, p)
}

func (s *Store) position(ctx context.Context, c caller, consumer, partition string) (*store.LogPosition, error) {
	var found []store.LogPosition
	err := c.call(ctx, query{
		sql: s.sql.position, args: []any{stored.KindPosition, stored.PositionID(consumer, partition)}, row: readPosition(consumer, &found),
	})
	if err != nil || len(found) == 0 {
		return nil, translate("read a position", err)
	}
	return &found[0], nil
}

func (s *Store) movePosition(ctx context.Context, c caller, consumer string, p store.LogPosition) error {
	body, err := stored.PositionBody(p)
	if err != nil {
		return err
	}
	moved := false
	q := query{
		sql: s.sql.firstPosition, args: []any{stored.KindPosition, stored.PositionID(consumer, p.Partition), body},
		row: func(func(...any) error) error { moved = true; return nil },
	}
	if p.Number > 1 {
		q.sql, q.args = s.sql.nextPosition, append(q.args, p.Number)
	}
	if err := s.callLocking(ctx, c, consumer, q); err != nil {
		return translate("move a position", err)
	}
	if !moved {
		return store.ErrPositionMoved
	}
	return nil
}

// LogPositions implements store.Positions.
func (s *Store) LogPositions(ctx context.Context, consumer string) ([]store.LogPosition, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	var found []store.LogPosition
	err := s.runQueries(ctx, query{
		sql: s.names.expand(positionsSQL), args: []any{stored.KindPosition, stored.PositionsOf(consumer)}, row: readPosition(consumer, &found),
	})
	return found, translate("read positions", err)
}

// readPosition reads a row of positionColumns.
func readPosition(consumer string, into *[]store.LogPosition) func(scan func(dest ...any) error) error {
	return func(scan func(dest ...any) error) error {
		var id string
		var rev, ago int64
		var body []byte
		if err := scan(&id, &rev, &body, &ago); err != nil {
			return err
		}
		p, err := stored.Position(consumer, id, rev, body, time.Duration(ago)*time.Microsecond)
		*into = append(*into, p)
		return err
	}
}
