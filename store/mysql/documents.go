package mysqlstore

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	documentSQL      = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ? AND id = ?`
	listDocumentsSQL = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ?1 AND (?2 = '' OR id < ?2) ORDER BY id DESC LIMIT ?3`
	addDocumentSQL   = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, {now}, ?)`
	saveDocumentSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = {now}, body = ?3 WHERE kind = ?1 AND id = ?2`
)

func (r records) documents(ctx context.Context, text string, args ...any) ([]store.Document, error) {
	return stored.Documents(ctx, r.txn.query, text, args...)
}

// document reads one document; lock is an optional locking clause.
func (r records) document(ctx context.Context, kind, id, lock string) (store.Document, error) {
	found, err := r.documents(ctx, documentSQL+lock, kind, id)
	return stored.OneDocument(kind, id, found, err)
}

// Document implements store.DocumentReader.
func (r records) Document(ctx context.Context, kind, id string) (store.Document, error) {
	return r.document(ctx, kind, id, ``)
}

// Documents implements store.DocumentReader.
func (r records) Documents(ctx context.Context, kind, before string, limit int) ([]store.Document, error) {
	return r.documents(ctx, listDocumentsSQL, kind, before, limit)
}

// AddDocument implements store.DocumentWriter.
func (r records) AddDocument(ctx context.Context, d store.Document) error {
	_, err := r.exec(ctx, addDocumentSQL, d.Kind, d.ID, d.Body)
	return err
}

// LockDocument implements store.DocumentWriter.
func (r records) LockDocument(ctx context.Context, kind, id string) (store.Document, error) {
	return r.document(ctx, kind, id, ` FOR UPDATE`)
}

// SaveDocument implements store.DocumentWriter.
func (r records) SaveDocument(ctx context.Context, d store.Document) error {
	_, err := r.exec(ctx, saveDocumentSQL, d.Kind, d.ID, d.Body)
	return err
}

// RemoveDocument implements store.DocumentWriter.
func (r records) RemoveDocument(ctx context.Context, kind, id string) error {
	_, err := r.exec(ctx, removeRecordSQL, kind, id)
	return err
}
