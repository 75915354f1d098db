package store

import (
	"time"
)

// Settlement holds the outcomes of messages of one partition. Its parts are applied in the order Parked, Dead, Removed, Held,
// Release: a message may have been parked because it was slow and delivered since.
type Settlement struct {
	Partition int
	// Token is that of the lease under which the outcomes were produced.
	Token string
	// Number is one more than that of the partition's last settlement (Lease.Settled). A repeated settlement keeps its number
	// and content. With TxSettler.CommitSettled it is 0 for side effects of parked messages, which move no cursor.
	Number int64
	// Cursor is the new cursor if Moved. A consumer's settlements move none.
	Cursor Cursor
	Moved  bool
	// Delivered are messages from the log that were delivered since the last settlement. A store with an append-only log needs
	// only the cursor; a store that deletes delivered messages uses them.
	Delivered []int64
	// Removed are parked messages that were delivered: they are no longer parked.
	Removed []int64
	// Parked are messages to park, from the log or again.
	Parked []ParkOutcome
	// Dead are messages to dead-letter, from the log or from the parked messages.
	Dead []DeadOutcome
	// Held are keys to hold, or whose state has changed.
	Held []HeldKey
	// Release are keys to release. A key that still has parked messages waiting for it stays held and becomes due at once.
	Release []string
	// DeliveredCount and FailedCount are added to the partition's counters of delivered messages and failed attempts. A settlement
	// without a Number has no FailedCount.
	DeliveredCount, FailedCount int64
	// Unrouted counts, per topic, the messages that the cursor passes and that no relay takes.
	Unrouted []UnroutedCount
}

// ParkOutcome is a message to park.
type ParkOutcome struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log; it is an error if it is not there. Otherwise a parked row is updated; if it
	// is gone, nothing happens, because its consumer has processed it.
	FromLog bool
	Reason  ParkReason
	// Waits: the message has no due time of its own; it blocks its held key or is queued in it. Otherwise it is due After from
	// now.
	Waits bool
	After time.Duration
	// Attempts is the number of attempts so far. Cause, unless empty, says what happened in the last one; up to 4,000 bytes of
	// it are kept, and it is added to the message's history, which keeps the last 20 entries.
	Attempts int
	Cause    string
}

// HeldKey is a key blocked by a failed message.
type HeldKey struct {
	Key string
	// Sequence is that of the blocking message, Reason says why it does not continue, Cause what happened, and Attempts how
	// often it was tried.
	Sequence int64
	Reason   ParkReason
	Cause    string
	Attempts int
	// After is the time from now to the next attempt. UntilDecided holds the key until an operator decides about the blocking
	// message's dead letter; if no such dead letter is open, because an operator has already decided, the key is due at once
	// instead. A key that is already held keeps the time since when it is held.
	After        time.Duration
	UntilDecided bool
}

// DeadOutcome is a message to dead-letter.
type DeadOutcome struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log; it is an error if it is not there. Otherwise it is moved from the parked
	// messages; if it is gone, nothing happens.
	FromLog bool
	// Reason is short and the same for similar cases ("attempts exhausted", "undecodable"). Cause says what happened in the
	// last attempt, up to 4,000 bytes.
	Reason, Cause string
	Attempts      int
	// Discarded: nobody has to decide about it. The dead letter is written in the state DeadDiscarded, resolved by the relay,
	// with Reason as its resolution.
	Discarded bool
}

// Settled is the result of a Settle call.
type Settled struct {
	// Lost are partitions for which nothing was applied because the lease does not hold or the number is not the next one.
	Lost []int
	// Failed are partitions for which nothing was applied for another reason, e.g. a value that the database cannot store.
	Failed map[int]error
	// Released are those keys in Release that are no longer held.
	Released []string
}
