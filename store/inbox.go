package store

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// Inbox is what an inbox needs of the database in which messages are processed. Methods with a tx parameter run in that
// transaction, commit with it and are undone with it; their error is ErrNoTransaction if the transaction is nil or
// has ended.
//
// A consumer's failed messages are stored as parked messages, held keys and dead letters in the relays' tables, under the
// consumer's name, so that the same operations work on both; the embedded Relay works on them.
type Inbox[Tx any] interface {
	Relay
	Transactor[Tx]
	Ledger[Tx]
	Positions[Tx]
	Parker[Tx]
}

// Transactor manages transactions. Each statement sees what others committed before the statement began (READ COMMITTED),
// whatever the transaction has read before.
type Transactor[Tx any] interface {
	// Begin starts a transaction. Commit and Rollback end it; Rollback after Commit is harmless, and Rollback works even
	// if ctx has ended.
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Savepoint runs f in a savepoint. Nesting is allowed.
	//
	//   - If f fails, or its changes cannot be kept, they are undone, tx can continue, and the error is returned.
	//   - If they cannot be undone alone, because the transaction is gone, the error is ErrUndone too, and tx can only be
	//     rolled back.
	//   - If f panics, the panic passes through and tx can only be rolled back.
	Savepoint(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
	// Conflicted reports whether an error, of these methods or of a user's statement, means that a transaction cannot continue
	// because others work on the same rows: a deadlock, a serialization failure, or a lock timeout.
	Conflicted(err error) bool
	// Wake tells relays that something was committed, e.g. messages that a handler published: those in this process at
	// once, those in other processes if the store is configured for it. The topics are as for Outbox.Wake. It never blocks.
	Wake(topics ...string)
}

// BeginBatcher is optional for an Inbox: it begins a transaction together with its first steps, in one round
// trip to the database. The steps do the same as the methods of Ledger after Begin; after an error there is no
// transaction.
type BeginBatcher[Tx any] interface {
	BeginClaim(ctx context.Context, consumer string, msgs []ClaimRequest) (Tx, []ClaimResult, error)
}

// Ledger records what has been consumed.
type Ledger[Tx any] interface {
	// Claim records that consumer has taken each of the messages, and says for each whether it is new and whether its key
	// is held. It waits for claims of other open transactions: the message is fresh if the other rolls back. Two calls
	// that claim the same messages in different orders do not deadlock permanently. IDs may repeat; the first counts.
	// Whether keys are held is read after waiting for claims: a key that was held together with a claim that was waited
	// for is reported as held.
	Claim(ctx context.Context, tx Tx, consumer string, msgs []ClaimRequest) ([]ClaimResult, error)
	// Version returns the AggregateVersion that consumer last applied for a key, 0 if none, and locks it until the end of
	// the transaction, even if there is none yet. SetVersion records it.
	Version(ctx context.Context, tx Tx, consumer, key string) (int64, error)
	SetVersion(ctx context.Context, tx Tx, consumer, key string, version int64) error
	// RemoveClaims removes up to limit of consumer's claims that are older than age, in its own transaction, and returns how
	// many.
	RemoveClaims(ctx context.Context, consumer string, age time.Duration, limit int) (int, error)
}

// ClaimRequest is a message to claim.
type ClaimRequest struct {
	// ID is the message's ID, Key its key or "".
	ID, Key string
}

// ClaimResult is the result for one ClaimRequest.
type ClaimResult struct {
	// Fresh: the message was not claimed before.
	Fresh bool
	// Held: its key is held for the consumer.
	Held bool
}

// Parker stores messages that cannot be processed now, where the relay of the same name (Due, Settle) and
// operators find them. A parked message gets a sequence from the store that rises within a key in the order of
// parking and is never reused; its partition is that of postrider.PartitionOf. Times count from the call, on the
// database's clock.
//
// A key must not be released between a message finding it held and being parked, or the message would stay parked forever:
// Park locks the held key before it writes, and recreates it if it is gone. In a database where a statement that waits for
// a lock continues with its old snapshot, releasing a key (Settle's Release) is two statements for the same reason: the
// first locks the key, the second checks for queued messages.
type Parker[Tx any] interface {
	// Enroll registers consumer, in its own transaction, as a KindConsumer: neither its backlog nor retention ever
	// counts a message of the log for it. It is called before any lease is acquired in its name, and has no effect the
	// second time. Errors: ErrNameOfRelay when a relay has this name.
	Enroll(ctx context.Context, consumer string) error
	// Park parks or dead-letters messages that failed, in the order given: the sequences of a key rise in it, after those that are parked
	// already. If the key of a message to park is not held yet, it is held from now on with this message as its blocking
	// message, due After from now; if it is held, the held key does not change. A message without a key is itself due After from now.
	// Errors: ErrUnstorable; ErrKeyHeld. After an error, the transaction must be rolled back.
	Park(ctx context.Context, tx Tx, consumer string, failed []ParkRequest) error
	// Take removes a parked message, identified by its Sequence, Key and ID. It waits for another open transaction that
	// takes or settles the message. Process the message in the same transaction.
	Take(ctx context.Context, tx Tx, consumer string, m *postrider.Message) (TakeResult, error)
}

// ParkRequest is a message to park or, with Dead, to dead-letter.
type ParkRequest struct {
	Message *postrider.Message
	// Dead, unless nil, says how the message is dead-lettered. Reason and After are not used then.
	Dead   *DeadRequest
	Reason ParkReason
	// After is the time until it is due; it is ignored for a message parked under a held key.
	After time.Duration
	// Attempts are the attempts so far, oldest first. They become the message's history, which keeps the last 20 entries;
	// the last cause becomes that of the held key.
	Attempts []FailedAttempt
	// Cause, of up to 4,000 bytes, is the cause of a dead letter. Of a parked message it says why it is parked, if that is not the last
	// attempt's cause: it becomes the cause of the held key, and a history entry that is not an attempt.
	Cause string
}

// Why is the cause of the key that the message holds.
func (p *ParkRequest) Why() string {
	if p.Dead != nil {
		return p.Dead.Reason + ": " + p.Cause
	}
	if n := len(p.Attempts); p.Cause == "" && n > 0 {
		return p.Attempts[n-1].Cause
	}
	return p.Cause
}

// HoldsKey reports whether the message's key is held from now on, unless it is held already.
func (p *ParkRequest) HoldsKey() bool {
	return p.Message.Key != "" && (p.Dead == nil || p.Dead.Hold && !p.Dead.Discarded)
}

// DeadRequest says how a message is dead-lettered.
type DeadRequest struct {
	// Reason is short and the same for similar failures.
	Reason string
	// Hold: the message's key, if it has one, is held until an operator decides about the dead letter. A dead letter cannot hold a key
	// that is held already, for messages before it: ErrKeyHeld. Park it as ParkFailed instead, and it is dead-lettered at its turn.
	Hold bool
	// Discarded is as in DeadOutcome; such a message does not hold its key.
	Discarded bool
}

// FailedAttempt is a failed attempt.
type FailedAttempt struct {
	// Ago is how long ago it ended.
	Ago time.Duration
	// Cause says what happened, up to 4,000 bytes.
	Cause string
}

// TakeResult is the result of Take.
type TakeResult struct {
	// Found: the message was parked, and now is not. Otherwise it has been processed or removed by another caller.
	Found bool
	// ParkedFor is how long ago it was first parked.
	ParkedFor time.Duration
}
