package held

import (
	"context"

	"github.com/postrider/postrider/store"
)

// Records is what a store implements for New: reading and changing held keys, parked messages and decisions. Messages are
// moved inside the database; their payloads are read only to be shown.
type Records interface {
	// View calls f, which reads what is committed.
	View(ctx context.Context, op store.Operation, f func(store.HeldReader) error) error
	// Change calls f in a durable transaction, and commits it if f succeeds. It calls f again, in a new transaction, after a
	// conflict with another one.
	Change(ctx context.Context, op store.Operation, f func(store.HeldWriter) error) error
	// Wake signals to the relays of this process that messages may be due.
	Wake()
}
