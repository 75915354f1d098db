package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// isPositionSQL: $2 kind, $3 beginning of the ID.
	isPositionSQL = `kind = $2::text and left(id, length($3::text)) = $3::text`
	countKeptSQL  = `
select (select count(*) from {dead} where relay = $1::text), (select count(*) from {attempts} where relay = $1::text),
	(select count(*) from {claims} where consumer = $1::text) + (select count(*) from {versions} where consumer = $1::text),
	(select count(*) from {watermarks} where consumer = $1::text) + (select count(*) from {records} where ` + isPositionSQL + `)`

	registeredSQL = `select exists (select 1 from {relay_partitions} where relay = $1::text) or exists (select 1 from {relays} where relay = $1::text)`
)

// removeKeptSQLs remove what is kept about relay $1, up to $2 rows each.
var removeKeptSQLs = []string{
	`delete from {dead_edits} where number = any(array(select number from {dead} where relay = $1::text order by number limit $2::int8))`,
	`delete from {dead} where number = any(array(select number from {dead} where relay = $1::text order by number limit $2::int8))`,
	`delete from {attempts} where ctid = any(array(select ctid from {attempts} where relay = $1::text limit $2::int8))`,
	`delete from {claims} where ctid = any(array(select ctid from {claims} where consumer = $1::text limit $2::int8))`,
	`delete from {versions} where ctid = any(array(select ctid from {versions} where consumer = $1::text limit $2::int8))`,
	`delete from {watermark_moves} where ctid = any(array(select ctid from {watermark_moves} where consumer = $1::text limit $2::int8))`,
	`delete from {watermarks} where ctid = any(array(select ctid from {watermarks} where consumer = $1::text limit $2::int8))`,
}

// removePositionsSQL has the parameters of isPositionSQL.
const removePositionsSQL = `delete from {records} where $1::text <> '' and ` + isPositionSQL

// CountKept implements store.HeldReader.
func (r records) CountKept(ctx context.Context, name string) (k store.KeptRecords, err error) {
	err = r.query(ctx, countKeptSQL, []any{name, stored.KindPosition, stored.PositionsOf(name)}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&k.DeadLetters, &k.Attempts, &k.Processed, &k.Positions}, func() error { return nil })
		return err
	})
	return k, err
}

// RemoveKept implements store.HeldWriter.
func (r records) RemoveKept(ctx context.Context, name string, limit int) (n int, err error) {
	if err := r.exec(ctx, keepRelaysSQL); err != nil {
		return 0, err
	}
	registered, err := onlyOf[bool](ctx, r, registeredSQL, name)
	if err != nil {
		return 0, err
	}
	if registered {
		return 0, store.ErrRegistered
	}
	for _, sql := range removeKeptSQLs {
		removed, err := r.count(ctx, sql, name, int64(limit))
		if err != nil {
			return 0, err
		}
		n += removed
	}
	removed, err := r.count(ctx, removePositionsSQL, name, stored.KindPosition, stored.PositionsOf(name))
	return n + removed, err
}
