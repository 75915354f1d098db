package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	documentSQL      = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ? AND id = ?`
	listDocumentsSQL = `SELECT kind, id, at, body FROM {prefix}records WHERE kind = ?1 AND (?2 = '' OR id < ?2) ORDER BY id DESC LIMIT +?3`
	addDocumentSQL   = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, ?, ?)`
	saveDocumentSQL  = `UPDATE {prefix}records SET rev = rev + 1, at = ?3, body = ?4 WHERE kind = ?1 AND id = ?2`
)

func (r records) documents(ctx context.Context, text string, args ...any) (out []store.Document, err error) {
	err = r.each(ctx, text, args, func(rows *sql.Rows) error {
		var d store.Document
		var at int64
		err := rows.Scan(&d.Kind, &d.ID, &at, &d.Body)
		d.At = stored.Time(at)
		out = append(out, d)
		return err
	})
	return out, err
}

// Document implements store.DocumentReader.
func (r records) Document(ctx context.Context, kind, id string) (store.Document, error) {
	found, err := r.documents(ctx, documentSQL, kind, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s %s: %w", kind, id, store.ErrNoDocument)
	}
	if err != nil {
		return store.Document{}, err
	}
	return found[0], nil
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
