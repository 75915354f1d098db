package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// These are of the table {table}.
const (
	// listRecordsSQL: $1 kind, $2 ID or '', $3 before or '', $4 rows. IDs are compared byte by byte, as the other stores do.
	listRecordsSQL = `select id, rev, at, expires_at, body from {table}
where kind = $1::text and ($2::text = '' or id = $2::text) and ($3::text = '' or id < $3::text collate "C")
	and (expires_at is null or expires_at > clock_timestamp()) order by id collate "C" desc limit $4::int8`
	lockRecordSQL = `select id, rev, at, expires_at, body from {table}
where kind = $1::text and id = $2::text and (expires_at is null or expires_at > clock_timestamp()) for update`
	addRecordSQL = `insert into {table} (kind, id, expires_at, body)
values ($1::text, $2::text, $3::timestamptz, $4::bytea) on conflict do nothing`
	// replaceRecordSQL adds a record, also in the place of one that has expired.
	replaceRecordSQL = `insert into {table} as r (kind, id, expires_at, body)
values ($1::text, $2::text, $3::timestamptz, $4::bytea) on conflict (kind, id) do update
set rev = 1, at = clock_timestamp(), expires_at = excluded.expires_at, body = excluded.body where r.expires_at <= clock_timestamp()`
	changeRecordSQL = `update {table} set rev = rev + 1, at = clock_timestamp(), expires_at = $3::timestamptz, body = $4::bytea
where kind = $1::text and id = $2::text and rev = $5::int8 and (expires_at is null or expires_at > clock_timestamp())`
	removeExpiredSQL = `delete from {table} where kind = $1::text and expires_at <= clock_timestamp()`
	removeRecordSQL  = `delete from {table} where kind = $1::text and id = $2::text`
)

func inTable(text string, table store.RecordTable) string {
	return strings.Replace(text, "{table}", "{"+string(table)+"}", 1)
}

// ListRecords implements store.Reader.
func (r records) ListRecords(ctx context.Context, q store.RecordQuery) ([]store.Record, error) {
	return r.read(ctx, q, listRecordsSQL, q.Kind, q.ID, q.Before, int64(q.Limit))
}

// LockRecord implements store.Writer.
func (r records) LockRecord(ctx context.Context, table store.RecordTable, kind, id string) (store.Record, error) {
	found, err := r.read(ctx, store.RecordQuery{Table: table, Kind: kind}, lockRecordSQL, kind, id)
	return stored.OneRecord(kind, id, found, err)
}

// read returns the records that a statement selects.
func (r records) read(ctx context.Context, q store.RecordQuery, text string, args ...any) (out []store.Record, err error) {
	err = r.query(ctx, inTable(text, q.Table), args, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Record, error) {
			rec := store.Record{Table: q.Table, Kind: q.Kind}
			var expires *time.Time
			err := row.Scan(&rec.ID, &rec.Rev, &rec.At, &expires, &rec.Body)
			rec.At, rec.Expires = rec.At.UTC(), utc(expires)
			return rec, err
		})
		return err
	})
	return out, err
}

// PutRecord implements store.Writer.
func (r records) PutRecord(ctx context.Context, rec store.Record) error {
	text, args := replaceRecordSQL, []any{rec.Kind, rec.ID, orNull(rec.Expires), rec.Body}
	switch {
	case rec.Rev > 0:
		text, args = changeRecordSQL, append(args, rec.Rev)
	case rec.Table == store.AuditRecords: // nobody may change the audit
		text = addRecordSQL
	case !rec.Expires.IsZero():
		if err := r.exec(ctx, inTable(removeExpiredSQL, rec.Table), rec.Kind); err != nil {
			return err
		}
	}
	n, err := r.count(ctx, inTable(text, rec.Table), args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	return err
}

// RemoveRecord implements store.Writer.
func (r records) RemoveRecord(ctx context.Context, table store.RecordTable, kind, id string) error {
	return r.exec(ctx, inTable(removeRecordSQL, table), kind, id)
}
