package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Store is what an inbox needs of the database in which the effects of messages happen. What takes a transaction happens
// in it, commits with it and is undone with it, and its errors say with outbox.ErrNoTransaction that the transaction is nil
// or has ended.
//
// A consumer's failed messages stand among the parked messages, held keys and dead letters of the same tables that relays
// use, under the consumer's name, so that whatever operates on them there operates on them here; the embedded relay.Store
// and relay.HeldStore work on them.
//
// The implementations are store/postgres, store/mysql, store/sqlite and store/memory;
// store/storetest holds them to this contract.
type Store[Tx any] interface {
	relay.Store
	relay.HeldStore
	Transactor[Tx]
	Ledger[Tx]
	ParkStore[Tx]
}

// Transactor makes transactions. A statement in one sees what others have committed before the statement began (READ
// COMMITTED), whatever the transaction has read before.
type Transactor[Tx any] interface {
	// Begin starts a transaction. Commit and Rollback end it; Rollback after Commit is harmless, and Rollback works although
	// ctx has ended.
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Savepoint runs f; when f fails, or what it did cannot be kept, that is undone, tx can go on, and the error is returned. If
	// it cannot be undone alone, because the transaction is gone, the error is ErrUndone too, and tx can only be rolled back.
	// When f panics, the panic passes through and tx can only be rolled back. Savepoints may be nested.
	Savepoint(ctx context.Context, tx Tx, f func(ctx context.Context, tx Tx) error) error
	// Wake tells relays that something was committed, e.g. messages that a handler published: those in this process at once,
	// those in other processes if the store is configured so. It never blocks.
	Wake()
}

// BeginBatcher is what a Store may offer beside: to begin a transaction together with its first steps, in one round trip to the
// database. What these do is what Begin and then the methods of Ledger would; after an error there is no transaction.
type BeginBatcher[Tx any] interface {
	BeginClaim(ctx context.Context, consumer string, msgs []ClaimRequest) (Tx, []ClaimResult, error)
	// BeginWatermark reads the watermark of at's log, then moves it as SetWatermark does if at.Offset is ahead of it, or if there
	// was none, and then looks which of the keys are held. It returns the watermark before the move. Keys may repeat, and there
	// may be none.
	BeginWatermark(ctx context.Context, consumer string, at postrider.Position, consumed Digests, keys []string) (tx Tx, before Watermark, held []string, err error)
}

// Ledger remembers what has been consumed.
type Ledger[Tx any] interface {
	// Claim notes that consumer has taken each of the messages, and says for each whether that is new and whether its key is
	// held. A claim of another open transaction is waited for: the message is fresh if that one rolls back. Two calls that
	// claim the same messages in different orders do not block each other for good. IDs may repeat; the first counts. What it
	// says of keys is read after the wait for claims: a key that was held together with a claim that was waited for is seen
	// as held.
	Claim(ctx context.Context, tx Tx, consumer string, msgs []ClaimRequest) ([]ClaimResult, error)
	// Watermark returns how far consumer has consumed the log that at names by Partition and Epoch, and locks it, also when
	// there is no watermark yet, until the end of the transaction. Each epoch of a partition has a watermark of its own, so
	// that what is left over of an old log and what is new in its successor are never taken for each other.
	Watermark(ctx context.Context, tx Tx, consumer string, at postrider.Position) (Watermark, error)
	// SetWatermark moves it to at, ahead or back, and notes what the move consumed.
	SetWatermark(ctx context.Context, tx Tx, consumer string, at postrider.Position, consumed Digests) error
	// Consumed returns what the last RememberedMoves moves of a watermark consumed, those of this transaction included, in any
	// order. It may leave out moves to offsets below at.Offset. The watermark is locked.
	Consumed(ctx context.Context, tx Tx, consumer string, at postrider.Position) (Digests, error)
	// Version returns the AggregateVersion that consumer applied last for a key, 0 if none, and locks it, also when there is
	// none yet, until the end of the transaction. SetVersion notes it.
	Version(ctx context.Context, tx Tx, consumer, key string) (int64, error)
	SetVersion(ctx context.Context, tx Tx, consumer, key string, version int64) error
	// Forget removes up to limit of consumer's claims that are older than age, in a transaction of its own, and returns how
	// many it removed.
	Forget(ctx context.Context, consumer string, age time.Duration, limit int) (int, error)
}

// ClaimRequest is a message that is to be claimed.
type ClaimRequest struct {
	// ID is the message's, Key its key, "" without one.
	ID, Key string
}

// ClaimResult is how a candidate stands.
type ClaimResult struct {
	// Fresh: the message was not claimed before.
	Fresh bool
	// Held: its key is held for the consumer.
	Held bool
}

// Watermark is how far a source's partition was consumed.
type Watermark struct {
	// Offset is the last one consumed, if Known, and Mark the mark of the message there; "" if it has none.
	Offset int64
	Mark   string
	Known  bool
	// Earlier is, if not Known, the epoch of the log that consumer has consumed of this partition before, the one whose
	// watermark moved last; "" if there is none.
	Earlier string
}

// ParkStore keeps what cannot be processed now, where the relay.Store of the same name finds it (Due, HeldKeys, Settle) and
// operators too. What it parks has a sequence of the store's that rises within a key in the order of parking and is never
// given twice; its partition is that of postrider.PartitionOf. Times count from the call, on the database's clock.
//
// A key must not be let go between a follower's finding it held and its parking, and be forgotten: Park takes the lock of
// the held key before it writes, and makes it anew if it is gone. In a database where a statement that waits for a lock
// goes on with what it saw before, letting a key go (Settle's Release) is two statements for the same reason: the first
// locks the key, the second looks for messages behind it.
type ParkStore[Tx any] interface {
	// Enroll makes consumer known, in a transaction of its own, with cursors at EndOfLog in every partition: it reads no
	// outbox, so that neither its backlog nor retention ever counts a message of the log for it. It is called before any
	// lease is taken in its name, and changes nothing the second time. Errors: ErrNameTaken when a relay that reads the log
	// has this name.
	Enroll(ctx context.Context, consumer string) error
	// HeldAmong returns those of the keys that are held for consumer, in any order.
	HeldAmong(ctx context.Context, tx Tx, consumer string, keys []string) ([]string, error)
	// Park puts messages aside, in the order given, behind those of the same key that are there. A message with a key holds
	// its key: if it is not held yet, it is held from now on with this message as head, and due After from now; otherwise
	// the key stays as it is. A message without a key is itself due After from now.
	Park(ctx context.Context, tx Tx, consumer string, parked []Parked) error
	// Bury writes messages to the dead letters. With hold, the key of one that has a key, and is not held yet, is held until
	// an operator decides about that letter.
	Bury(ctx context.Context, tx Tx, consumer string, dead []Dead, hold bool) error
	// Take removes a parked message, known by its Sequence, Key and ID. It waits for another open transaction that takes it
	// or settles it. Its effect belongs in the same transaction.
	Take(ctx context.Context, tx Tx, consumer string, m *postrider.Message) (TakeResult, error)
}

// EndOfLog is the Position of a consumer's cursors: behind everything that a log will ever hold.
const EndOfLog = relay.EndOfLog

// TakeResult says what Take found.
type TakeResult struct {
	// Found: the message was parked, and now is not. Otherwise somebody has done it, or taken it away.
	Found bool
	// ParkedFor is how long ago it was parked first.
	ParkedFor time.Duration
}

// Parked is a message to put aside.
type Parked struct {
	Message *postrider.Message
	Reason  relay.ParkReason
	// After is the time until it is due; it has no meaning for one that is parked behind a held key.
	After time.Duration
	// Attempts were made so far, oldest first. They become the message's history, of which the last 20 entries are kept; the
	// last one's cause becomes that of the held key.
	Attempts []Attempt
	// Cause says why it is put aside, if that is not the last attempt's. It becomes that of the held key, and an entry of the
	// history that is no attempt. Up to 4,000 bytes.
	Cause string
}

// Why is the cause of a key that the message holds.
func (p *Parked) Why() string {
	if n := len(p.Attempts); p.Cause == "" && n > 0 {
		return p.Attempts[n-1].Cause
	}
	return p.Cause
}

// Dead is a message given up.
type Dead struct {
	Message *postrider.Message
	// Reason is short and the same for like cases, Cause what happened in the last attempt, up to 4,000 bytes.
	Reason, Cause string
	// Attempts were made, oldest first, as in Parked.
	Attempts []Attempt
}

// Attempt is one that failed.
type Attempt struct {
	// Ago is how long before now it ended.
	Ago time.Duration
	// Cause says what happened, up to 4,000 bytes.
	Cause string
}
