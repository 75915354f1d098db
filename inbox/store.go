package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Store is what an inbox needs of the database in which the effects of messages happen. Everything that takes a
// transaction happens in it, commits with it and is undone with it.
//
// A consumer's failed messages stand among the parked messages, held keys and dead letters of the same tables that relays
// use, under the consumer's name, so that whatever operates on them there operates on them here; the embedded relay.Store
// works on them.
type Store[Tx any] interface {
	relay.Store
	Transactor[Tx]
	Ledger[Tx]
	Aside[Tx]
}

// Transactor makes transactions.
type Transactor[Tx any] interface {
	// Begin starts a transaction. Commit and Rollback end it; Rollback after Commit is harmless.
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Savepoint runs f; when f fails, what was done in tx since is undone, tx can go on, and f's error is returned.
	Savepoint(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
}

// Ledger remembers what has been consumed.
type Ledger[Tx any] interface {
	// Claim notes that consumer has taken each of the message IDs, and says for each whether that is new. An ID that
	// another open transaction claims is waited for: it is new if that one rolls back. IDs may repeat; the first counts.
	Claim(ctx context.Context, tx Tx, consumer string, ids []string) (fresh []bool, err error)
	// Watermark returns how far consumer has consumed a source partition, zero if it never did, and locks it until the end
	// of the transaction.
	Watermark(ctx context.Context, tx Tx, consumer, partition string) (Watermark, error)
	// SetWatermark moves it.
	SetWatermark(ctx context.Context, tx Tx, consumer, partition string, w Watermark) error
	// Forget removes up to limit claims older than age, in a transaction of its own, and returns how many it removed.
	Forget(ctx context.Context, consumer string, age time.Duration, limit int) (int, error)
}

// Watermark is how far a source partition was consumed: everything up to Offset, in the log that Epoch names.
type Watermark struct {
	Epoch  string
	Offset int64
	// Known says that there is one.
	Known bool
}

// Aside keeps what cannot be processed now.
type Aside[Tx any] interface {
	// HeldAmong returns those of the keys that are held for consumer.
	HeldAmong(ctx context.Context, tx Tx, consumer string, keys []string) ([]string, error)
	// Park puts messages aside, in the order given, behind those of the same key that are there. A message with a key holds
	// its key: if it is not held yet, it is from now on, and due After from now. Without a key, the message itself is due
	// then.
	Park(ctx context.Context, tx Tx, consumer string, parked []Parked) error
	// Bury writes messages to the dead letters. With hold, their keys are held until an operator decides.
	Bury(ctx context.Context, tx Tx, consumer string, dead []Dead, hold bool) error
	// Take removes a parked message, and says whether it was still there. Its effect belongs in the same transaction.
	Take(ctx context.Context, tx Tx, consumer string, m *postrider.Message) (bool, error)
}

// Parked is a message to put aside.
type Parked struct {
	Message *postrider.Message
	// Position is where it came from; zero if the source has no positions.
	Position postrider.Position
	Reason   relay.ParkReason
	After    time.Duration
	// Attempts were made so far, Cause is what happened in the last one.
	Attempts int
	Cause    string
}

// Dead is a message given up.
type Dead struct {
	Message  *postrider.Message
	Position postrider.Position
	// Reason is short and the same for like cases, Cause what happened in the last attempt, up to 4,000 bytes.
	Reason, Cause string
	Attempts      int
}
