package inspect

import (
	"context"
	"errors"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Store is what explanations need of a store. All stores implement it.
type Store interface {
	store.StatusReader
	store.Records
	// Partitions and Fetch read the log, as in store.Relay.
	Partitions(ctx context.Context) (int, error)
	Fetch(ctx context.Context, relay string, req store.FetchRequest) ([]store.Batch, error)
	// Attempts returns the recorded attempts of a message, oldest first, as in postrider.AttemptLog.
	Attempts(ctx context.Context, messageID string) ([]postrider.DeliveryAttempt, error)
}

// ErrNotFound: the message is neither in the log nor parked nor dead-lettered.
var ErrNotFound = errors.New("no message with this ID")
