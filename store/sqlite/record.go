package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// These are of the table {table}.
const (
	// listRecordsSQL: ?1 kind, ?2 ID or '', ?3 before or '', ?4 now, ?5 rows.
	listRecordsSQL = `SELECT id, rev, at, expires_at, body FROM {table} WHERE kind = ?1 AND (?2 = '' OR id = ?2) AND (?3 = '' OR id < ?3)
		AND (expires_at IS NULL OR expires_at > ?4) ORDER BY id DESC LIMIT ?5`
	// replaceRecordSQL adds a record, also in the place of one that has expired.
	replaceRecordSQL = `INSERT INTO {table} AS r (kind, id, at, expires_at, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, id) DO UPDATE
		SET rev = 1, at = excluded.at, expires_at = excluded.expires_at, body = excluded.body WHERE r.expires_at <= excluded.at`
	changeRecordSQL = `UPDATE {table} SET rev = rev + 1, at = ?3, expires_at = ?4, body = ?5 WHERE kind = ?1 AND id = ?2 AND rev = ?6
		AND (expires_at IS NULL OR expires_at > ?3)`
	removeExpiredSQL = `DELETE FROM {table} WHERE kind = ? AND expires_at <= ?`
	removeRecordSQL  = `DELETE FROM {table} WHERE kind = ? AND id = ?`
)

func inTable(text string, table store.RecordTable) string {
	return strings.Replace(text, "{table}", "{prefix}"+string(table), 1)
}

// ListRecords implements store.Reader.
func (r records) ListRecords(ctx context.Context, q store.RecordQuery) ([]store.Record, error) {
	return stored.Records(ctx, r.txn.query, q, inTable(listRecordsSQL, q.Table), q.Kind, q.ID, q.Before, r.now, q.Limit)
}

// LockRecord implements store.Writer: the transaction has locked the database.
func (r records) LockRecord(ctx context.Context, table store.RecordTable, kind, id string) (store.Record, error) {
	found, err := r.ListRecords(ctx, store.RecordQuery{Table: table, Kind: kind, ID: id, Limit: 1})
	return stored.OneRecord(kind, id, found, err)
}

// PutRecord implements store.Writer.
func (r records) PutRecord(ctx context.Context, rec store.Record) error {
	expires := sql.Null[int64]{V: micro(rec.Expires), Valid: !rec.Expires.IsZero()}
	text, args := replaceRecordSQL, []any{rec.Kind, rec.ID, r.now, expires, rec.Body}
	switch {
	case rec.Rev > 0:
		text, args = changeRecordSQL, append(args, rec.Rev)
	case expires.Valid:
		if _, err := r.exec(ctx, inTable(removeExpiredSQL, rec.Table), rec.Kind, r.now); err != nil {
			return err
		}
	}
	n, err := r.exec(ctx, inTable(text, rec.Table), args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	return err
}

// RemoveRecord implements store.Writer.
func (r records) RemoveRecord(ctx context.Context, table store.RecordTable, kind, id string) error {
	_, err := r.exec(ctx, inTable(removeRecordSQL, table), kind, id)
	return err
}
