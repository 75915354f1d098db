package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Store is what explanations need of a store. All stores implement it.
type Store interface {
	store.StatusReader
	LogReader
	store.Records
	// Attempts returns the recorded attempts of a message, oldest first, as in postrider.AttemptLog.
	Attempts(ctx context.Context, messageID string) ([]postrider.DeliveryAttempt, error)
}

// LogReader is the part of store.Relay that reads the log.
type LogReader interface {
	Partitions(ctx context.Context) (int, error)
	Fetch(ctx context.Context, relay string, req store.FetchRequest) ([]store.Batch, error)
}

// ErrNotFound: the message is in no place that is searched.
var ErrNotFound = errors.New("no such message")

// NotFoundError says which message was not found. It is an ErrNotFound.
type NotFoundError struct{ ID string }

// Error says what that can mean.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no message %q in the log, the parked messages or the dead letters: it was rolled back or never published here, "+
		"or it was delivered and is past its retention", e.ID)
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }
