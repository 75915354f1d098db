package outbox

import (
	"context"

	"github.com/postrider/postrider"
)

// Store writes messages in a transaction of type Tx. The implementations are store/postgres (pgx.Tx, and *sql.Tx through
// its SQL method), store/sqlite (*sql.Tx) and store/memory (*memory.Tx).
type Store[Tx any] interface {
	// Begin, Commit and Rollback serve InTx. Rollback after Commit is harmless.
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Insert writes valid messages (every default filled in) in the order given. Any number of them is at most one round
	// trip per 1,000 messages or 4 MiB, whichever comes first, and exactly one up to there. Errors: ErrNoTransaction for a
	// nil or finished transaction.
	Insert(ctx context.Context, tx Tx, msgs []*postrider.Message) error
	// Written returns those of the given message IDs that this transaction has written and not undone by rolling back to a
	// savepoint.
	Written(ctx context.Context, tx Tx, ids []string) ([]string, error)
	// Wake tells relays that messages were committed: those in this process at once, those in other processes if the store
	// is configured so. It never blocks.
	Wake()
}
