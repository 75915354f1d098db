package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// recordID identifies a record.
type recordID struct {
	table    store.RecordTable
	kind, id string
}

// ListRecords implements store.Reader.
func (r records) ListRecords(_ context.Context, q store.RecordQuery) (out []store.Record, _ error) {
	at := now()
	for id, rec := range r.db.records {
		if id.table != q.Table || id.kind != q.Kind || q.ID != "" && id.id != q.ID || q.Before != "" && id.id >= q.Before {
			continue
		}
		if rec.Expires.IsZero() || rec.Expires.After(at) {
			rec.Body = bytes.Clone(rec.Body)
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b store.Record) int { return cmp.Compare(b.ID, a.ID) })
	return out[:min(len(out), q.Limit)], nil
}

// LockRecord implements store.Writer: a transaction has the database to itself.
func (r records) LockRecord(ctx context.Context, table store.RecordTable, kind, id string) (store.Record, error) {
	found, err := r.ListRecords(ctx, store.RecordQuery{Table: table, Kind: kind, ID: id, Limit: 1})
	return stored.OneRecord(kind, id, found, err)
}

// PutRecord implements store.Writer.
func (r records) PutRecord(_ context.Context, rec store.Record) error {
	at := now()
	for id, old := range r.db.records {
		if id.table == rec.Table && id.kind == rec.Kind && !old.Expires.IsZero() && !old.Expires.After(at) {
			delete(r.db.records, id)
		}
	}
	id := recordID{rec.Table, rec.Kind, rec.ID}
	if r.db.records[id].Rev != rec.Rev {
		return fmt.Errorf("%s %s: %w", rec.Kind, rec.ID, store.ErrRecordChanged)
	}
	rec.Rev++
	rec.At, rec.Expires, rec.Body = at, stamp(rec.Expires), bytes.Clone(rec.Body)
	r.db.records[id] = rec
	return nil
}

// RemoveRecord implements store.Writer.
func (r records) RemoveRecord(_ context.Context, table store.RecordTable, kind, id string) error {
	delete(r.db.records, recordID{table, kind, id})
	return nil
}

// underLegalHold reports whether a legal hold is active.
func (db *database) underLegalHold() bool {
	for id := range db.records {
		if id.kind == store.KindLegalHold && id.table == store.WorkRecords {
			return true
		}
	}
	return false
}
