package mysqlstore

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
	// listRecordsSQL: ?1 kind, ?2 ID or '', ?3 before or '', ?4 rows.
	listRecordsSQL = `SELECT id, rev, at, expires_at, body FROM {table} WHERE kind = ?1 AND (?2 = '' OR id = ?2) AND (?3 = '' OR id < ?3)
		AND (expires_at IS NULL OR expires_at > {now}) ORDER BY id DESC LIMIT ?4`
	lockRecordSQL = `SELECT id, rev, at, expires_at, body FROM {table} WHERE kind = ? AND id = ? AND (expires_at IS NULL OR expires_at > {now})
		FOR UPDATE`
	addRecordSQL    = `INSERT INTO {table} (kind, id, at, expires_at, body) VALUES (?1, ?2, {now}, ?3, ?4)`
	changeRecordSQL = `UPDATE {table} SET rev = rev + 1, at = {now}, expires_at = ?3, body = ?4 WHERE kind = ?1 AND id = ?2 AND rev = ?5
		AND (expires_at IS NULL OR expires_at > {now})`
	hasExpiredSQL    = `SELECT EXISTS (SELECT 1 FROM {table} WHERE kind = ? AND id = ? AND expires_at <= {now})`
	removeExpiredSQL = `DELETE FROM {table} WHERE kind = ? AND expires_at <= {now}`
	removeRecordSQL  = `DELETE FROM {table} WHERE kind = ? AND id = ?`
)

func inTable(text string, table store.RecordTable) string {
	return strings.ReplaceAll(text, "{table}", "{prefix}"+string(table))
}

// ListRecords implements store.Reader.
func (r records) ListRecords(ctx context.Context, q store.RecordQuery) ([]store.Record, error) {
	return stored.Records(ctx, r.txn.query, q, inTable(listRecordsSQL, q.Table), q.Kind, q.ID, q.Before, q.Limit)
}

// LockRecord implements store.Writer.
func (r records) LockRecord(ctx context.Context, table store.RecordTable, kind, id string) (store.Record, error) {
	q := store.RecordQuery{Table: table, Kind: kind}
	found, err := stored.Records(ctx, r.txn.query, q, inTable(lockRecordSQL, table), kind, id)
	return stored.OneRecord(kind, id, found, err)
}

// PutRecord implements store.Writer.
func (r records) PutRecord(ctx context.Context, rec store.Record) error {
	expires := sql.Null[int64]{V: rec.Expires.UnixMicro(), Valid: !rec.Expires.IsZero()}
	text, args := addRecordSQL, []any{rec.Kind, rec.ID, expires, rec.Body}
	switch {
	case rec.Rev > 0:
		text, args = changeRecordSQL, append(args, rec.Rev)
	case expires.Valid:
		if _, err := r.exec(ctx, inTable(removeExpiredSQL, rec.Table), rec.Kind); err != nil {
			return err
		}
	}
	n, err := r.exec(ctx, inTable(text, rec.Table), args...)
	if r.txn.s.cfg.ErrorCode(err) == codeDuplicate {
		return r.replaceExpired(ctx, rec, text, args)
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	return err
}

// replaceExpired adds a record in the place of one that has expired. It reads first: those who add the same record, and of whom one
// succeeds, would otherwise lock it against each other.
func (r records) replaceExpired(ctx context.Context, rec store.Record, text string, args []any) error {
	var expired bool
	if err := r.get(ctx, inTable(hasExpiredSQL, rec.Table), []any{rec.Kind, rec.ID}, &expired); err != nil {
		return err
	}
	if !expired {
		return fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	if _, err := r.exec(ctx, inTable(removeExpiredSQL, rec.Table), rec.Kind); err != nil {
		return err
	}
	_, err := r.exec(ctx, inTable(text, rec.Table), args...)
	if r.txn.s.cfg.ErrorCode(err) == codeDuplicate {
		err = fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	return err
}

// RemoveRecord implements store.Writer.
func (r records) RemoveRecord(ctx context.Context, table store.RecordTable, kind, id string) error {
	_, err := r.exec(ctx, inTable(removeRecordSQL, table), kind, id)
	return err
}
