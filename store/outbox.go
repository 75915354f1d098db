package store

import (
	"context"

	"github.com/postrider/postrider"
)

// Outbox writes messages in a transaction of type Tx: pgx.Tx with store/postgres, *sql.Tx with its SQL method, store/mysql and
// store/sqlite, *memory.Tx with store/memory.
type Outbox[Tx any] interface {
	// Begin, Commit and Rollback serve outbox.Outbox.InTx. Rollback after Commit is harmless. When Commit returns an error, nothing was
	// committed, unless the error is ErrUncertain. Once COMMIT was sent, it goes on for some seconds if ctx ends.
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Insert writes valid messages (every default filled in) in the order given. It takes one round trip for up to 1,000
	// messages or 4 MiB, whichever comes first, and at most one per further 1,000 messages or 4 MiB. Errors:
	// ErrNoTransaction for a nil or finished transaction.
	Insert(ctx context.Context, tx Tx, msgs []*postrider.Message) error
	// Written returns those of the given message IDs that this transaction has written and not undone by rolling back to
	// a savepoint.
	Written(ctx context.Context, tx Tx, ids []string) ([]string, error)
	// Published returns the messages that this transaction has written and not undone, in the order of writing. Errors:
	// ErrNoTransaction for a nil or finished transaction.
	Published(ctx context.Context, tx Tx) ([]*postrider.Message, error)
	// Wake tells relays that messages were committed: those in this process at once, those in other processes if the
	// store is configured for it. Relays of this process that take none of the topics need not be told; without topics, all are. It never
	// blocks.
	Wake(topics ...string)
}

// TxPipeliner is a store that saves InTx round trips.
type TxPipeliner[Tx any] interface {
	// BeginPipelined is Begin for a transaction that is begun with its first statement. Insert may keep messages until the
	// transaction's next statement, which it precedes, or its commit, and copies what it keeps. An error of theirs is that of the
	// statement or of Commit; nothing is committed then.
	BeginPipelined(ctx context.Context) (Tx, error)
	// Pipeline calls f with a value of the transaction tx in which Insert keeps messages as in one of BeginPipelined, at most
	// until f returns. If it fails, the transaction must be rolled back.
	Pipeline(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
}
