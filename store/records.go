package store

import (
	"context"
	"time"
)

// Records is what deadletter.New, held.New, replay.New and erasure.New need: reading and changing dead letters, redrives, held keys, parked
// messages, decisions and records. Messages are moved inside the database; their payloads are read only to be shown.
type Records interface {
	// View calls f, which reads what is committed.
	View(ctx context.Context, op Operation, f func(Reader) error) error
	// Change calls f in a durable transaction, and commits it if f succeeds. It calls f again, in a new transaction, after a
	// conflict with another one.
	Change(ctx context.Context, op Operation, f func(Writer) error) error
	// MarkCauses stores the Fingerprint of up to 1,000 of the newest causes that do not have it yet, for filters and counts by it, and
	// reports whether there may be more of them.
	MarkCauses(ctx context.Context) (more bool, err error)
	// Wake signals to the relays of this process that messages may be due. The topics are as for Outbox.Wake.
	Wake(topics ...string)
}

// Operation says what a call of View or Change is for: Method names the method of deadletter.Store, held.Store and the like, and
// errors say with Doing what failed.
type Operation struct{ Method, Doing string }

// Reader reads dead letters and redrives, and what the embedded interfaces read.
type Reader interface { //nolint:interfacebloat // one transaction of a store: a method for each of its statements
	HeldReader
	LogReader
	EraseReader
	// DeadLetters returns those that a query selects.
	DeadLetters(ctx context.Context, q DeadQuery) ([]DeadLetter, error)
	// CountDead counts those that a query selects; Limit is 0.
	CountDead(ctx context.Context, q DeadQuery) (int64, error)
	// SpanDead describes the oldest dead letters that a query selects, or the newest, up to Limit.
	SpanDead(ctx context.Context, q DeadQuery, newest bool) (DeadSpan, error)
	// CountCauses counts those that a query selects by relay or consumer, type and fingerprint, most frequent first. Limit is the
	// maximum number of groups, and not 0.
	CountCauses(ctx context.Context, q DeadQuery) ([]CauseCount, error)
	// Edits returns the edits of a dead letter, oldest first.
	Edits(ctx context.Context, number int64) ([]Edited, error)
	// CountResolved counts the dead letters that a query selects, without its Limit.
	CountResolved(ctx context.Context, q ResolvedQuery) (int64, error)
	// Redrive returns one redrive, without Outcome. Errors: ErrNoRedrive.
	Redrive(ctx context.Context, id int64) (Redrive, error)
	// Redrives returns up to limit redrives of a state ("" for all) with IDs below before, newest first.
	Redrives(ctx context.Context, state RedriveState, before int64, limit int) ([]Redrive, error)
	// Redriven counts the messages that a redrive has sent back, of the dead letters with numbers above after.
	Redriven(ctx context.Context, id, after int64) (Redriven, error)
	// ListRecords returns the records that a query selects.
	ListRecords(ctx context.Context, q RecordQuery) ([]Record, error)
}

// Writer changes dead letters and redrives, and what the embedded interfaces change, in one transaction.
type Writer interface { //nolint:interfacebloat // one transaction of a store: a method for each of its statements
	Reader
	HeldWriter
	LogWriter
	EraseWriter
	// Now returns the database's time, no earlier than the last lock was granted.
	Now(ctx context.Context) (time.Time, error)
	// LockDead locks open dead letters that a query selects and that were redriven less often than below (negative: no
	// bound), for Resolve. It locks the leases of their partitions first, so that no settlement runs in between.
	LockDead(ctx context.Context, q DeadQuery, below int) (LockedDead, error)
	// NamedDead returns the state of each of these dead letters that exists.
	NamedDead(ctx context.Context, numbers []int64) ([]NamedDead, error)
	// Resolve discards dead letters, or sends them back: their messages are parked and due at once or, if their key is held,
	// queued for it. A key that waits for the decision about one of them becomes due. All of them were locked by the last
	// LockDead.
	Resolve(ctx context.Context, numbers []int64, r Resolution) error
	// RemoveResolved removes dead letters that a query selects, with their edits, and returns how many, and the last number that it
	// considered, 0 if there was none. It keeps those of relays whose messages the log still has: the relay may read them again,
	// e.g. after it was removed and started again, and the dead letter says that they are not to be delivered from there.
	RemoveResolved(ctx context.Context, q ResolvedQuery) (removed int, last int64, err error)
	// EditDead stores an edit, and keeps the content before it exactly as it is stored, even if it cannot be read.
	EditDead(ctx context.Context, number int64, e Edit) error
	// ImportDead adds a dead letter unless one with the same relay, message ID and DiedAt exists. Other imports wait until the
	// transaction ends.
	ImportDead(ctx context.Context, a ArchivedDead) (added bool, err error)
	// AddRedrive stores a new redrive and returns its ID.
	AddRedrive(ctx context.Context, r Redrive) (int64, error)
	// LockRedrive is Redrive, and makes further calls for the same redrive wait until the transaction ends.
	LockRedrive(ctx context.Context, id int64) (Redrive, error)
	// SaveRedrive stores what has changed of a locked redrive.
	SaveRedrive(ctx context.Context, r Redrive) error
	// LockRecord returns a record, and makes further calls for the same one wait until the transaction ends. Errors: ErrNoRecord.
	LockRecord(ctx context.Context, table RecordTable, kind, id string) (Record, error)
	// PutRecord adds a record if Rev is 0, and replaces Expires and Body of the record with this Rev otherwise. A record that has
	// expired does not exist any more: it is not changed, and is never in the way of a new one. Adding one that expires removes
	// the expired ones of its kind. Records of the audit do not expire. Errors: ErrRecordChanged.
	PutRecord(ctx context.Context, r Record) error
	// RemoveRecord removes a record, if it exists.
	RemoveRecord(ctx context.Context, table RecordTable, kind, id string) error
}

// DeadQuery selects dead letters in the order of their numbers.
type DeadQuery struct {
	DeadFilter
	// After (exclusive) and UpTo (inclusive) bound the numbers; 0 means unbounded.
	After, UpTo int64
	// Limit is the maximum number of results; 0 means unlimited.
	Limit int
}

// ResolvedQuery selects dead letters that were redriven or discarded, in the order of their numbers.
type ResolvedQuery struct {
	// Relay is the name of a relay or consumer; "" for all.
	Relay string
	// Before is when they were resolved at the latest, exclusive.
	Before time.Time
	// After (exclusive) bounds the numbers, Limit the number of dead letters.
	After int64
	Limit int
}

// LockedDead are the dead letters that Writer.LockDead has found.
type LockedDead struct {
	// Last is the highest number among those found, 0 if there were none, and More says that as many were found as asked
	// for.
	Last int64
	More bool
	// Open are those that can be resolved: without those that others have resolved meanwhile.
	Open []OpenDead
}

// OpenDead is an open dead letter that a redrive considers sending back.
type OpenDead struct {
	Number   int64
	Redrives int
}

// NamedDead is the state of a dead letter that a filter names.
type NamedDead struct {
	Number     int64
	State      DeadState
	ResolvedBy string
	Redrives   int
}

// Resolution says how dead letters are resolved.
type Resolution struct {
	State DeadState // DeadRedriven or DeadDiscarded
	By    string
	// Reason is why they were discarded; Redrive is the redrive that sends them back, 0 for none.
	Reason  string
	Redrive int64
}
