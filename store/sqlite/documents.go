package sqlite

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	documentSQL      = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ? AND id = ?`
	listDocumentsSQL = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ?1 AND (?2 = '' OR id < ?2) ORDER BY id DESC LIMIT +?3`
	addDocumentSQL   = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, ?, ?)`
	saveDocumentSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = ?3, body = ?4 WHERE kind = ?1 AND id = ?2`
)

func (r records) documents(ctx context.Context, text string, args ...any) ([]store.Document, error) {
	return stored.Documents(ctx, r.txn.query, text, args...)
}

// Document implements store.DocumentReader.
func (r records) Document(ctx context.Context, kind, id string) (store.Document, error) {
	found, err := r.documents(ctx, documentSQL, kind, id)
	return stored.OneDocument(kind, id, found, err)
}

// Documents implements store.DocumentReader.
func (r records) Documents(ctx context.Context, kind, before string, limit int) ([]store.Document, error) {
	return r.documents(ctx, listDocumentsSQL, kind, before, limit)
}

// AddDocument implements store.DocumentWriter.
func (r records) AddDocument(ctx context.Context, d store.Document) error {
	_, err := r.exec(ctx, addDocumentSQL, d.Kind, d.ID, r.now, d.Body)
	return err
}

// LockDocument implements store.DocumentWriter: the transaction has locked the database.
func (r records) LockDocument(ctx context.Context, kind, id string) (store.Document, error) {
	return r.Document(ctx, kind, id)
}

// SaveDocument implements store.DocumentWriter.
func (r records) SaveDocument(ctx context.Context, d store.Document) error {
	_, err := r.exec(ctx, saveDocumentSQL, d.Kind, d.ID, r.now, d.Body)
	return err
}

// RemoveDocument implements store.DocumentWriter.
func (r records) RemoveDocument(ctx context.Context, kind, id string) error {
	_, err := r.exec(ctx, removeRecordSQL, kind, id)
	return err
}
