package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

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
