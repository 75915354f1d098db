package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// Inbox remembers in a store which messages were consumed. It is safe for concurrent use.
type Inbox[Tx any] struct {
	store        Store[Tx]
	hits, misses atomic.Int64
}

// Config configures an Inbox. It is empty: all that there is to choose is a consumer's (ConsumerConfig).
type Config struct{}

// New makes an inbox on a store.
func New[Tx any](store Store[Tx], _ Config) (*Inbox[Tx], error) {
	if store == nil {
		return nil, errors.New("inbox: New needs a store")
	}
	return &Inbox[Tx]{store: store}, nil
}

// Process notes in the transaction tx that consumer takes a message, and says whether that is new. If it is, apply the
// effect in tx and commit, and acknowledge the message to its broker only then; if it is not, the effect is committed
// already: roll back or commit, and acknowledge. A rollback undoes the note with the effect. A message that another open
// transaction is taking for the same consumer is waited for. Consumers know nothing of each other.
//
// What Process has noted stays until Forget. Errors: outbox.ErrNoTransaction for a nil or finished transaction; the
// store's.
func (in *Inbox[Tx]) Process(ctx context.Context, tx Tx, consumer string, m *postrider.Message) (fresh bool, err error) {
	if m == nil || m.ID == "" || consumer == "" {
		return false, errors.New("inbox: Process needs the name of a consumer and a message with an ID")
	}
	standing, err := in.store.Claim(ctx, tx, consumer, []ClaimRequest{
		{ID: storableText(m.ID, postrider.MaxIDBytes), Key: storableText(m.Key, postrider.MaxKeyBytes)},
	})
	if err != nil {
		return false, fmt.Errorf("take message %s for consumer %s: %w", m.ID, consumer, err)
	}
	in.count(standing[0].Fresh)
	return standing[0].Fresh, nil
}

// Forget forgets what consumer took longer than age ago, in transactions of up to 1,000 messages, and returns how many
// messages that were. Give an age beyond which no broker, redrive or replay brings a message again. A Consumer does it by
// itself. Errors: the store's, with what was forgotten before.
func (in *Inbox[Tx]) Forget(ctx context.Context, consumer string, age time.Duration) (int, error) {
	return inBatches(func() (int, error) { return in.store.Forget(ctx, consumer, age, forgetBatch) })
}

// inBatches calls forget until it finds no full batch, and returns how many were forgotten.
func inBatches(forget func() (int, error)) (total int, err error) {
	for {
		n, err := forget()
		total += n
		if err != nil {
			return total, fmt.Errorf("forget: %w", err)
		}
		if n < forgetBatch {
			return total, nil
		}
	}
}

// forgetBatch is how many claims are removed in one transaction.
const forgetBatch = 1_000

// Lookups returns how many messages this inbox found consumed already (hits) and how many were new (misses).
func (in *Inbox[Tx]) Lookups() (hits, misses int64) { return in.hits.Load(), in.misses.Load() }

func (in *Inbox[Tx]) count(fresh bool) {
	if fresh {
		in.misses.Add(1)
	} else {
		in.hits.Add(1)
	}
}
