package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Inbox records in a store which messages were consumed. It is safe for concurrent use.
type Inbox[Tx any] struct {
	store        store.Inbox[Tx]
	hits, misses atomic.Int64

	removing sync.WaitGroup
	mu       sync.Mutex
	keep     time.Duration        // of the records of Process; negative: forever
	removeAt map[string]time.Time // when old records of a consumer are removed next
	closed   bool
}

// New returns an inbox on a store.
func New[Tx any](store store.Inbox[Tx]) (*Inbox[Tx], error) {
	if store == nil {
		return nil, errors.New("inbox: New needs a store")
	}
	return &Inbox[Tx]{store: store, keep: defaultKeep, removeAt: make(map[string]time.Time)}, nil
}

// Process records in the transaction tx that consumer takes a message, and says whether it is new. If it is, process it
// in tx and commit; acknowledge the message to its broker only after the commit. If it is not, its changes are already
// committed: roll back or commit, and acknowledge. A rollback undoes the record too. If another open transaction is
// taking the message for the same consumer, Process waits for it. Consumers are independent of each other.
//
// A message that an operator replayed (postrider.Message.Replay) is new if the replay names the consumer; otherwise only if the
// consumer has not taken it before.
//
// The record stays for 90 days, or as KeepRecords says. Errors: store.ErrNoTransaction for a nil or finished transaction; the
// store's.
func (in *Inbox[Tx]) Process(ctx context.Context, tx Tx, consumer string, m *postrider.Message) (fresh bool, err error) {
	if m == nil || m.ID == "" || consumer == "" {
		return false, errors.New("inbox: Process needs the name of a consumer and a message with an ID")
	}
	named := postrider.Message{
		ID: stored.Fit(m.ID, postrider.MaxIDBytes), Key: stored.Fit(m.Key, postrider.MaxKeyBytes), Headers: m.Headers,
	}
	results, err := in.store.Claim(ctx, tx, consumer, claimsOf([]*postrider.Message{&named}, func(m *postrider.Message) bool {
		return handlesAgain(m, consumer, HandleNamedReplays)
	}))
	if err != nil {
		return false, fmt.Errorf("take message %s for consumer %s: %w", m.ID, consumer, err)
	}
	in.count(results[0].Fresh)
	in.removeOld(consumer)
	return results[0].Fresh, nil
}

// removeBatch is how many records are removed in one transaction.
const removeBatch = 1_000

// RemoveOlder removes the records of messages that consumer took longer than age ago, in transactions of up to 1,000 messages,
// and returns how many. Choose an age after which no broker, redrive or replay delivers a message again. Process and a Consumer
// do this automatically. Errors: the store's; the count of those removed before is returned too.
func (in *Inbox[Tx]) RemoveOlder(ctx context.Context, consumer string, age time.Duration) (total int, err error) {
	for n := removeBatch; n == removeBatch && err == nil; total += n {
		n, err = in.store.RemoveClaims(ctx, consumer, age, removeBatch)
	}
	return total, err
}

// Lookups returns how many messages were already consumed (hits) and how many were new (misses).
func (in *Inbox[Tx]) Lookups() (hits, misses int64) { return in.hits.Load(), in.misses.Load() }

func (in *Inbox[Tx]) count(fresh bool) {
	if fresh {
		in.misses.Add(1)
	} else {
		in.hits.Add(1)
	}
}
