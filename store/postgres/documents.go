package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	documentSQL = `select kind, id, at, body from {records} where kind = $1::text and id = $2::text`
	// listDocumentsSQL: $1 kind, $2 before, $3 rows.
	listDocumentsSQL = `select kind, id, at, body from {records}
where kind = $1::text and ($2::text = '' or id < $2::text) order by id desc limit $3::int8`
	addDocumentSQL    = `insert into {records} (kind, id, body) values ($1::text, $2::text, $3::bytea)`
	saveDocumentSQL   = `update {records} set rev = rev + 1, at = clock_timestamp(), body = $3::bytea where kind = $1::text and id = $2::text`
	removeDocumentSQL = `delete from {records} where kind = $1::text and id = $2::text`
)

func (r records) documents(ctx context.Context, sql string, args ...any) (out []store.Document, err error) {
	err = r.query(ctx, sql, args, func(rows pgx.Rows) error {
		var d store.Document
		_, err := pgx.ForEachRow(rows, []any{&d.Kind, &d.ID, &d.At, &d.Body}, func() error {
			d.At = d.At.UTC()
			out = append(out, d)
			d.Body = nil // the next row gets memory of its own
			return nil
		})
		return err
	})
	return out, err
}

// document reads one document; lock is "" or " for update".
func (r records) document(ctx context.Context, kind, id, lock string) (store.Document, error) {
	found, err := r.documents(ctx, documentSQL+lock, kind, id)
	return stored.OneDocument(kind, id, found, err)
}

// Document implements store.DocumentReader.
func (r records) Document(ctx context.Context, kind, id string) (store.Document, error) {
	return r.document(ctx, kind, id, "")
}

// Documents implements store.DocumentReader.
func (r records) Documents(ctx context.Context, kind, before string, limit int) ([]store.Document, error) {
	return r.documents(ctx, listDocumentsSQL, kind, before, int64(limit))
}

// AddDocument implements store.DocumentWriter.
func (r records) AddDocument(ctx context.Context, d store.Document) error {
	return r.exec(ctx, addDocumentSQL, d.Kind, d.ID, d.Body)
}

// LockDocument implements store.DocumentWriter.
func (r records) LockDocument(ctx context.Context, kind, id string) (store.Document, error) {
	return r.document(ctx, kind, id, " for update")
}

// SaveDocument implements store.DocumentWriter.
func (r records) SaveDocument(ctx context.Context, d store.Document) error {
	return r.exec(ctx, saveDocumentSQL, d.Kind, d.ID, d.Body)
}

// RemoveDocument implements store.DocumentWriter.
func (r records) RemoveDocument(ctx context.Context, kind, id string) error {
	return r.exec(ctx, removeDocumentSQL, kind, id)
}
