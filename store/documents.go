package store

import (
	"context"
	"errors"
	"time"
)

// ErrNoDocument: no document of this kind has this ID.
var ErrNoDocument = errors.New("no such document")

// KindLegalHold is the kind of the documents of active legal holds (package legalhold). While there is one, Maintain drops no message.
const KindLegalHold = "legal hold"

// Document is a record of a kind that a package above the stores defines, e.g. a replay. Stores return the same body and never
// look inside.
type Document struct {
	// Kind is up to 64 bytes. ID is a UUIDv7 (postrider.NewID), because lists are in its order.
	Kind, ID string
	// At is when it was last written, on the database's clock. Stores set it.
	At   time.Time
	Body []byte
}

// DocumentReader reads documents.
type DocumentReader interface {
	// Document returns one. Errors: ErrNoDocument.
	Document(ctx context.Context, kind, id string) (Document, error)
	// Documents returns up to limit documents of a kind with an ID below before ("" for no bound), newest first.
	Documents(ctx context.Context, kind, before string, limit int) ([]Document, error)
}

// DocumentWriter changes documents in one transaction.
type DocumentWriter interface {
	DocumentReader
	// AddDocument stores a new document.
	AddDocument(ctx context.Context, d Document) error
	// LockDocument is Document, and makes further calls for the same document wait until the transaction ends.
	LockDocument(ctx context.Context, kind, id string) (Document, error)
	// SaveDocument replaces the body of a locked document.
	SaveDocument(ctx context.Context, d Document) error
	// RemoveDocument removes a document, if it exists.
	RemoveDocument(ctx context.Context, kind, id string) error
}
