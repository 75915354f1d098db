package relay

import (
	"context"
	"math"
	"time"

	"github.com/postrider/postrider"
)

// Store is what a relay needs of the database that holds the outbox. Every duration that goes in or comes out is
// measured on the database's clock; a relay never compares it with its own.
//
// The implementations are store/postgres, store/mysql, store/sqlite and store/memory;
// store/storetest holds them to this contract.
type Store interface {
	LeaseStore
	LogStore
}

// LeaseStore shares the partitions of a relay among the processes that run it.
type LeaseStore interface {
	// Partitions returns the number of partitions of the outbox.
	Partitions(ctx context.Context) (int, error)
	// Heartbeat records that owner is alive for ttl from now on, renews for ttl all leases that it holds, forgets owners
	// that have been gone for a day, and reports who is alive and who holds what.
	Heartbeat(ctx context.Context, relay string, owner Owner, ttl time.Duration) (View, error)
	// Acquire leases those of the given partitions that nobody holds (released, or expired), for ttl. Each lease gained has
	// an epoch greater than any before. The first call for a relay fixes where it starts in all partitions of the outbox,
	// whichever are asked for and whether any is free, so that nothing is skipped that is published from then on.
	Acquire(ctx context.Context, relay string, owner Owner, partitions []int, ttl time.Duration, start Start) ([]Lease, error)
	// Release gives leases back, so that others need not wait for their end. A lease whose epoch is stale is left alone.
	Release(ctx context.Context, relay string, leases []Lease) error
	// Leave says that owner has ended: its leases are released and it counts as gone.
	Leave(ctx context.Context, relay string, owner Owner) error
}

// LogStore reads the outbox and records what became of its messages.
type LogStore interface {
	// Fetch reads on from the given cursors, for all partitions in one round trip. Each batch holds records in the order in
	// which they are to be delivered. It stops short of MaxBytes (of payload and attributes, over all batches) but returns
	// at least one record of some partition if there is any. Partitions with nothing new may be left out or returned with a
	// moved cursor and no records.
	Fetch(ctx context.Context, relay string, req FetchRequest) ([]Batch, error)
	// Due returns parked messages whose time has come, in partitions that the caller holds, oldest due first.
	Due(ctx context.Context, relay string, req DueRequest) (DueResult, error)
	// Aside returns what was taken off the main line in a partition, to whoever gains its lease with a cursor at position.
	Aside(ctx context.Context, relay string, partition int, position int64) (Aside, error)
	// Settle records outcomes, atomically for each settlement, and fenced: a settlement whose owner or epoch is no longer
	// that of the lease changes nothing and its partition is reported in Lost. It may be lost in a crash of the database
	// (the messages are then delivered again), so it need not wait for the disk. After an error the relay does not know
	// whether it took effect and calls it again with the same settlements: the second time must change nothing, in
	// particular write no second dead letter and no second history entry for the same attempt, also when retention has
	// dropped the messages or an operator has moved them on in between (see Parked.FromLog, Dead.FromLog, HeldKey). A message
	// that is to be put aside from the log, lies beyond the stored cursor and is not in the log is an error.
	Settle(ctx context.Context, relay string, owner Owner, settlements []Settlement) (Settled, error)
	// Subscribe returns a channel that receives, coalesced, when messages may have been committed or parked messages have
	// become due, as far as this process hears of it; polling must find everything all the same. The function ends it.
	Subscribe() (<-chan struct{}, func())
}

// Listener is implemented by stores that can hear of commits in other processes. A relay runs Listen while it lives;
// what it hears is signalled through Subscribe. Listen returns nil at once when the store is not configured for it, and
// otherwise blocks until ctx ends, reconnecting by itself.
type Listener interface {
	Listen(ctx context.Context) error
}

// Maintainer is implemented by stores whose log needs housekeeping. A relay that holds partitions calls Maintain about
// once a minute; any number of processes may do so at once.
type Maintainer interface {
	// Maintain prepares room for coming messages and drops delivered ones, and ended redrives, that are past retention. What a relay, of this
	// process or another, has not delivered is never dropped.
	Maintain(ctx context.Context, r Retention) (Maintained, error)
}

// Retention says how long the log keeps delivered messages.
type Retention struct {
	// For is the time that a delivered message is kept; 0 drops it as soon as every relay has passed it.
	For time.Duration
	// MaxBytes drops the oldest delivered messages above this size of the log; 0 means no limit.
	MaxBytes int64
	// Redrives is the time that a redrive is kept after its end; 0 means for ever. What it has sent back stays as it is. A call
	// removes up to 1,000 redrives.
	Redrives time.Duration
}

// Maintained says what a call of Maintain did.
type Maintained struct {
	// Dropped counts the messages dropped, as far as the store can tell cheaply.
	Dropped int64
	// Deferred says, in words, what could not be done now and will be tried again, e.g. for a lock that others hold.
	Deferred string
}

// Owner is one running relay process.
type Owner struct {
	// ID is unique to the process and run, e.g. "host-4711-0190f3…"; Host and Version are for operators.
	ID, Host, Version string
}

// View is who works on a relay right now.
type View struct {
	// Alive is the number of owners that are alive, the caller included.
	Alive int
	// Partitions has one entry per partition that was ever leased.
	Partitions []PartitionView
}

// PartitionView says who holds a partition.
type PartitionView struct {
	Partition int
	// Owner is the holder's Owner.ID, "" when nobody holds the partition (released or expired).
	Owner string
	Epoch int64
}

// Lease is the right to work on a partition until it ends.
type Lease struct {
	Partition int
	Owner     string
	// Epoch is the fencing number: every settlement carries it.
	Epoch int64
	// Cursor is where the last owner's settlements ended.
	Cursor Cursor
}

// Start says where a relay that the log has never seen begins.
type Start int

// The places to start.
const (
	// FromOldest starts with the oldest message that the log still has.
	FromOldest Start = iota
	// FromNow starts with messages that are published from now on.
	FromNow
)

// Cursor is a relay's progress in one partition. Its meaning belongs to the store; a relay only knows that a batch's
// Next covers the batch, and how to move inside it (see Batch).
type Cursor struct {
	// Position is the sequence up to which fresh messages are delivered.
	Position int64
	// Snapshot is opaque to the relay. A store whose sequence order is not its commit order keeps there which
	// transactions had been seen at Position.
	Snapshot string
}

// EndOfLog is the Position of a consumer's cursors (see package inbox): behind everything that a log will ever hold.
const EndOfLog = math.MaxInt64 - 1

// FetchRequest says what to read.
type FetchRequest struct {
	// Partitions are the partitions to read, each after its cursor.
	Partitions []FetchPartition
	// Limit is the largest number of records per partition, MaxBytes that of bytes over all partitions.
	Limit, MaxBytes int
}

// FetchPartition is one partition to read.
type FetchPartition struct {
	Partition int
	// After is the Next of the partition's previous batch, or the cursor of the lease.
	After Cursor
}

// Batch is what was read of one partition.
type Batch struct {
	Partition int
	Records   []Record
	// Late is the number of records at the front of Records that were committed late: their Sequence lies at or before the
	// Position of the cursor that was read after. As long as one of them is unsettled, the cursor stays where it was; once
	// all are settled, {Position: r.Sequence, Snapshot: Next.Snapshot} is a valid cursor for each further record r up to
	// which all are settled, and, if there is any, that with the Position of the cursor that was read after is one too.
	Late int
	// Next is the cursor once every record is settled.
	Next Cursor
	// More says that the partition has more to read right away.
	More bool
}

// Record is a message on its way out of the store.
type Record struct {
	// Message has its Attempt not yet set.
	Message *postrider.Message
	// Delay is how long the message has still to wait for its delivery time, on the database's clock; not positive when
	// it need not wait.
	Delay time.Duration
	// Attempts is the number of attempts made so far, 0 for a message that comes from the log.
	Attempts int
	// Redrives is how often operators have sent it back from the dead letters.
	Redrives int
	// Reason is why a parked message was parked; empty for one that comes from the log.
	Reason ParkReason
	// ParkedFor is how long ago the message was parked first; parking it again does not start the time anew.
	ParkedFor time.Duration
	// Err says why the stored row cannot be read as a message, in which case Message holds what could be read (Sequence and
	// Key at least) and the message is dead.
	Err error
}

// Aside is what a relay has taken off the main line in a partition.
type Aside struct {
	// Keys are the keys that are held, those waiting for an operator included.
	Keys []string
	// Sequences are those of messages that are parked or have a dead letter of any state and that a fetch from the stored
	// cursor returns: greater than the position asked for, or late. A crash may have left the cursor before them: read from
	// the log again they are not to be delivered from there as well, with their attempts forgotten.
	Sequences []int64
}

// DueRequest says which parked messages to return.
type DueRequest struct {
	// Partitions are the partitions to look in.
	Partitions []int
	// Runs is the largest number of runs, RunLength that of records in one run, MaxBytes that of bytes over all.
	Runs, RunLength, MaxBytes int
	// BusyKeys and BusySequences are held keys and keyless parked messages that are being worked on and not to be returned.
	BusyKeys      []string
	BusySequences []int64
}

// DueResult is what Due found.
type DueResult struct {
	Runs []Run
	// More says that others were due but did not fit.
	More bool
	// Next is the time until the next parked message or held key (of those not returned) is due; negative when none waits
	// for a time.
	Next time.Duration
}

// Run is a piece of parked work: the parked messages of one held key in order, or one message that waits for itself.
type Run struct {
	Partition int
	// Key is the held key; "" for a message that waits for itself, which stands alone in Records and may have a key of its
	// own (a delayed message).
	Key string
	// Records are in order of Sequence. For a held key, an empty run says that none are left: the key can be released.
	Records []Record
}

// ParkReason says why a message was taken off the main line.
type ParkReason string

// The reasons for parking.
const (
	ParkRetry     ParkReason = "retry"     // it failed and waits for its next attempt
	ParkSnoozed   ParkReason = "snoozed"   // its handler put it off
	ParkHeld      ParkReason = "held"      // it waits behind the head of its key
	ParkDelayed   ParkReason = "delayed"   // its delivery time has not come
	ParkSlow      ParkReason = "slow"      // it is being worked on for longer than ParkAfter
	ParkUnhandled ParkReason = "unhandled" // no handler or route takes it
	ParkRedriven  ParkReason = "redriven"  // an operator sent it back from the dead letters
	ParkReturned  ParkReason = "returned"  // its process stopped, or handed the partition over, before it came to it
	ParkApart     ParkReason = "apart"     // it was committed late, and shared a transaction with one that failed
	ParkReplayed  ParkReason = "replayed"  // an operator asked for it again
	ParkDead      ParkReason = "dead"      // of a held key only: its head died, and an operator decides how it goes on
)

// Settlement is what became of messages of one partition. Its parts are applied in the order Parked, Dead, Removed, Held,
// Release: a message may have been parked while it was slow and been delivered since.
type Settlement struct {
	Partition int
	Epoch     int64
	// Cursor is the new cursor if Moved.
	Cursor Cursor
	Moved  bool
	// Delivered are messages of the log that were delivered since the last settlement. A store with an append-only log
	// needs only the cursor; a store that deletes what is delivered uses them.
	Delivered []int64
	// Removed are parked messages that were delivered: they are no longer parked.
	Removed []int64
	// Parked are messages to put aside, from the log or again.
	Parked []Parked
	// Dead are messages that go to the dead letters, from the log or from the parked ones.
	Dead []Dead
	// Held are keys to hold, or whose state has changed.
	Held []HeldKey
	// Release are keys to hold no longer. A key that still has parked messages waiting behind it stays held and becomes due
	// at once.
	Release []string
	// DeliveredCount and FailedCount are added to the partition's counters: messages delivered, attempts failed.
	DeliveredCount, FailedCount int64
}

// Parked is a message put aside.
type Parked struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log. If it is parked already, that row is updated. If it is not but has a dead
	// letter of any state, somebody has moved it on, and nothing happens; nor if the log no longer has it and the stored
	// cursor has passed it. Not FromLog: a parked row is updated, and if it is gone, because an operator took it away,
	// nothing happens.
	FromLog bool
	Reason  ParkReason
	// Waits: the message has no time of its own; it waits as head or follower of its held key. Otherwise it is due After
	// from now.
	Waits bool
	After time.Duration
	// Attempts is the number of attempts made so far, of which a parked row keeps the larger, and Cause, unless empty, what
	// happened in the last one; it is added to the message's history (of which the last 20 entries are kept) and kept whole
	// up to 4,000 bytes.
	Attempts int
	Cause    string
	// Redrives is that of the record. A parked row that differs in it has died and was sent back since: what became of the
	// earlier try says nothing about it, and nothing happens.
	Redrives int
}

// HeldKey is a key stopped by its failed head.
type HeldKey struct {
	Key string
	// Sequence is that of the head; Reason why it does not go on, Cause what happened, Attempts how often it was tried.
	Sequence int64
	Reason   ParkReason
	Cause    string
	Attempts int
	// After is the time from now to the next attempt; UntilDecided holds the key until an operator decides about the head's
	// dead letter. When one has moved the head on meanwhile the key is due at once instead: with UntilDecided when no letter
	// of the head is open, otherwise when the head has a letter and is not parked. Since when the key is held is kept when
	// it is held already.
	After        time.Duration
	UntilDecided bool
}

// Dead is a message given up.
type Dead struct {
	Sequence int64
	Key      string
	// FromLog: the message is moved from the parked ones if it is there, otherwise copied from the log. If it has a dead
	// letter of any state, or the log no longer has it and the stored cursor has passed it, nothing happens. Not FromLog: it
	// is moved from the parked ones, and if it is no longer there, nothing happens.
	FromLog bool
	// Reason is short and the same for like cases ("attempts exhausted", "undecodable"), Cause what happened in the last
	// attempt, up to 4,000 bytes.
	Reason, Cause string
	Attempts      int
	// Redrives is that of the record, as in Parked.
	Redrives int
}

// Settled says what a Settle call did not do or did beyond what was certain.
type Settled struct {
	// Lost are partitions whose lease is no longer the caller's: nothing of their settlements was applied.
	Lost []int
	// Released are those of the keys asked to be released that are held no longer.
	Released []string
}
