package sqlite

import (
	"context"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
)

// records implements deadletter.Records and, in a transaction, deadletter.Writer.
type records struct {
	txn
	chosen map[int64]chosenLetter // by number, those of the last LockDead
}

// View implements deadletter.Records.
func (r records) View(ctx context.Context, op deadletter.Operation, f func(deadletter.Reader) error) error {
	return r.s.read(ctx, op.Doing, func(t txn) error { return f(records{txn: t}) })
}

// Change implements deadletter.Records.
func (r records) Change(ctx context.Context, op deadletter.Operation, f func(deadletter.Writer) error) error {
	return r.s.write(ctx, op.Doing, durable, func(t txn) error {
		return f(records{txn: t, chosen: make(map[int64]chosenLetter)})
	})
}

// Wake implements deadletter.Records.
func (r records) Wake() { r.s.Wake() }

// Now implements deadletter.Writer: nobody else has written since the transaction began.
func (r records) Now(context.Context) (time.Time, error) { return stored.Time(r.now), nil }
