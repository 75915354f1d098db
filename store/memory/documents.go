package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/store"
)

// document finds a document; -1 if there is none.
func (db *database) document(kind, id string) int {
	return slices.IndexFunc(db.documents, func(d store.Document) bool { return d.Kind == kind && d.ID == id })
}

// Document implements store.DocumentReader.
func (r records) Document(_ context.Context, kind, id string) (store.Document, error) {
	i := r.db.document(kind, id)
	if i < 0 {
		return store.Document{}, fmt.Errorf("%s %s: %w", kind, id, store.ErrNoDocument)
	}
	d := r.db.documents[i]
	d.Body = bytes.Clone(d.Body)
	return d, nil
}

// Documents implements store.DocumentReader.
func (r records) Documents(_ context.Context, kind, before string, limit int) (out []store.Document, _ error) {
	for _, d := range r.db.documents {
		if d.Kind == kind && (before == "" || d.ID < before) {
			d.Body = bytes.Clone(d.Body)
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b store.Document) int { return cmp.Compare(b.ID, a.ID) })
	return out[:min(len(out), limit)], nil
}

// AddDocument implements store.DocumentWriter.
func (r records) AddDocument(_ context.Context, d store.Document) error {
	d.At, d.Body = now(), bytes.Clone(d.Body)
	r.db.documents = append(r.db.documents, d)
	return nil
}

// LockDocument implements store.DocumentWriter.
func (r records) LockDocument(ctx context.Context, kind, id string) (store.Document, error) {
	return r.Document(ctx, kind, id)
}

// SaveDocument implements store.DocumentWriter.
func (r records) SaveDocument(_ context.Context, d store.Document) error {
	if i := r.db.document(d.Kind, d.ID); i >= 0 {
		d.At, d.Body = now(), bytes.Clone(d.Body)
		r.db.documents[i] = d
	}
	return nil
}

// RemoveDocument implements store.DocumentWriter.
func (r records) RemoveDocument(_ context.Context, kind, id string) error {
	r.db.documents = slices.DeleteFunc(r.db.documents, func(d store.Document) bool { return d.Kind == kind && d.ID == id })
	return nil
}
