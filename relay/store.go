package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"time"

	"github.com/postrider/postrider"
)

// Store is what a relay needs from the database that holds the outbox. All durations passed in or returned are measured on
// the database's clock; a relay never compares them with its own.
//
// The implementations are store/postgres, store/mysql, store/sqlite and store/memory;
// store/storetest holds them to this contract.
type Store interface {
	LeaseStore
	LogStore
}

// LeaseStore shares a relay's partitions among the processes that run it.
//
// A lease is held with a token that its owner generates for each acquisition. It holds as long as the row with that token
// exists and the server is still the incarnation that granted it: a crash, a failover or a restore ends every lease. Whether
// an owner is alive is recorded separately from its leases and survives a crash.
//
// Heartbeat and Acquire register the owner's topic filter (Owner.Topics). Each distinct filter of a relay gets a generation
// when it first appears: 1, 2 and so on. The filter in effect is the one with the highest generation among those of the
// relay's processes that are alive, or whose time ended less than FilterKept ago without a Leave; if there is none, the
// filter that was registered last. When an owner registers a filter with a higher generation than all others, the leases of
// all other owners of the relay end in the same transaction, so that a process that skips a topic because of an older filter
// can no longer move a cursor past it. The owners keep their partitions but must acquire the leases again. A relay that has
// started but never registered a filter, such as a program of an older release, takes every topic; a consumer takes none.
type LeaseStore interface {
	// Partitions returns the number of partitions of the outbox.
	Partitions(ctx context.Context) (int, error)
	// Heartbeat records that owner is alive for ttl from now on, which extends all leases that it holds, removes owners that
	// have been gone for a day, and reports who is alive and who holds what.
	Heartbeat(ctx context.Context, relay string, owner Owner, ttl time.Duration) (View, error)
	// Acquire records that owner is alive for req.TTL from now on and leases those of the requested partitions that are free
	// for owner:
	//
	//	held by           | under                       | free
	//	nobody            | this incarnation            | yes (released, or never leased)
	//	owner itself      | this incarnation            | yes: the lease continues under the new token, and the old token is void
	//	another owner     | this incarnation            | once the other counts as gone
	//	anybody or nobody | another incarnation         | if the claim says Resume; otherwise once nobody whose lease was lost can
	//	                  |                             | still be working: no other process of the relay counts as alive, or the
	//	                  |                             | longest TTL of its processes has passed since this incarnation was first
	//	                  |                             | used
	//
	// After a failover the record of who is alive may be stale, so only the second alternative counts there. The grants and the
	// returned state are read in one write transaction. Repeating a call with the same tokens grants the same leases again. The
	// first call for a relay sets its start position in all partitions of the outbox, whichever are requested and whether or
	// not any is free, so that nothing published from then on is skipped.
	Acquire(ctx context.Context, relay string, owner Owner, req AcquireRequest) ([]Lease, error)
	// Release releases leases, so that others need not wait for them to expire. A lease whose token has changed is left alone.
	// Release waits for open transactions that have checked the lease.
	Release(ctx context.Context, relay string, leases []LeaseRef) error
	// Leave records that owner has ended: its leases are released and it counts as gone.
	Leave(ctx context.Context, relay string, owner Owner) error
}

// LogStore reads the outbox and records the outcomes of its messages.
type LogStore interface {
	// Fetch reads on from the given cursors, for all partitions in one round trip. Each batch holds records in delivery order.
	// Fetch stays below MaxBytes (payload and attributes, over all batches) but returns at least one record if any partition
	// has one. Partitions with nothing new may be left out, or returned with a moved cursor and no records. A partition whose
	// lease does not hold, or whose cursor is beyond what the server knows, is returned as lost. The relay "" is a reader
	// without leases; none of its partitions is ever lost.
	Fetch(ctx context.Context, relay string, req FetchRequest) ([]Batch, error)
	// Due returns parked messages that are due, oldest due first, and operators' decisions that are waiting to be applied.
	// Partitions whose lease does not hold are reported in Lost; nothing is returned for them.
	Due(ctx context.Context, relay string, req DueRequest) (DueResult, error)
	// LoadParked returns what a relay has parked or dead-lettered in a partition beyond a cursor at position.
	LoadParked(ctx context.Context, relay string, partition int, position int64) (ParkedState, error)
	// Settle records outcomes, each settlement atomically. It is fenced: a settlement is applied if its lease holds and its
	// Number is one more than that of the last settlement applied to the partition.
	//
	//	lease    | Number, compared with the last one applied | effect
	//	holds    | one more                                   | applied
	//	holds    | equal, with the same content               | none: it was applied before; the answer is the same
	//	holds    | anything else                              | none; the partition is in Lost
	//	does not | any                                        | none; the partition is in Lost
	//
	// Settle need not wait for the disk: a crash of the database may lose it, together with the lease. A settlement that cannot
	// be applied for another reason is reported in Failed, and the others are applied. After an error it is not known which
	// were applied; the relay repeats them unchanged. It is a failure if a message to be parked or dead-lettered from the log
	// is not there.
	Settle(ctx context.Context, relay string, settlements []Settlement) (Settled, error)
	// Decide applies an operator's decision about a held key durably, under the caller's lease. Meanwhile the caller works on
	// no message of the key. A decision that has been applied is not applied again. Errors: ErrLeaseLost.
	Decide(ctx context.Context, relay string, lease LeaseRef, id string) error
	// Subscribe returns a channel that receives a coalesced signal when messages may have been committed or parked messages
	// have become due, as far as this process can tell. Polling must find everything without it. The returned function ends the
	// subscription.
	Subscribe() (<-chan struct{}, func())
}

// Listener is implemented by stores that can listen for commits of other processes. A relay runs Listen for its lifetime;
// what Listen hears is signaled through Subscribe. Listen returns nil at once if the store is not configured for it;
// otherwise it blocks until ctx ends and reconnects by itself.
type Listener interface {
	Listen(ctx context.Context) error
}

// Maintainer is implemented by stores whose log needs housekeeping. A relay that holds partitions calls Maintain about once a
// minute; any number of processes may do so concurrently.
type Maintainer interface {
	// Maintain prepares space for new messages and drops delivered messages and ended redrives that are past retention. It
	// never drops what any relay, of this process or another, has not delivered.
	Maintain(ctx context.Context, r Retention) (Maintained, error)
}

// Retention says how long the log keeps delivered messages.
type Retention struct {
	// For is how long a delivered message is kept; 0 drops it as soon as every relay has passed it.
	For time.Duration
	// MaxBytes drops the oldest delivered messages when the log exceeds this size; 0 means no limit.
	MaxBytes int64
	// Redrives is how long a redrive is kept after its end; 0 means forever. Messages that it has sent back are not affected.
	// Each call removes up to 1,000 redrives.
	Redrives time.Duration
}

// Maintained says what a call of Maintain did.
type Maintained struct {
	// Dropped is the number of messages dropped, as far as the store can tell cheaply.
	Dropped int64
	// Deferred says, in words, what could not be done now and will be retried, e.g. because another process holds a lock.
	Deferred string
}

// Owner is one running relay process.
type Owner struct {
	// ID is unique to the process and run, e.g. "host-4711-0190f3…"; Host and Version are for operators.
	ID, Host, Version string
	// Topics is the filter that the process is configured with: sorted, each pattern once, "*" alone for all topics. A process
	// without a filter, e.g. an operator's, registers none.
	Topics []string
}

// FilterKept is how long the filter of a process that ended without Leave still counts.
const FilterKept = time.Hour

// View is who works on a relay right now.
type View struct {
	// Alive is the number of owners that are alive, the caller included.
	Alive int
	// Partitions has an entry for each partition that is held.
	Partitions []PartitionView
	// Filter is in effect while the leases in Partitions hold.
	Filter Filter
}

// PartitionView says who holds a partition.
type PartitionView struct {
	Partition int
	// Owner is the holder's Owner.ID, Token the lease's.
	Owner, Token string
}

// AcquireRequest says which leases a process wants.
type AcquireRequest struct {
	Claims []Claim
	TTL    time.Duration
	// Start says where a relay that is new to the outbox begins.
	Start Start
}

// Claim asks for the lease of one partition.
type Claim struct {
	Partition int
	// Token is generated by the caller for each acquisition; a call that is repeated because its answer was lost uses the same
	// one.
	Token string
	// Resume says that the caller held the partition until now and that its lease has not expired by its own clock, although
	// the database may no longer know of it.
	Resume bool
}

// Lease is the right to work on a partition until it ends.
type Lease struct {
	Partition int
	Owner     string
	// Token is the fence: everything that is done under the lease carries it.
	Token string
	// Cursor is where the last owner's settlements ended; Settled is the number of the last one that was applied.
	Cursor  Cursor
	Settled int64
	// Parked is what is parked in the partition.
	Parked ParkedState
	// Filter is in effect while the lease holds, or until a later View says otherwise.
	Filter Filter
}

// Ref names the lease.
func (l *Lease) Ref() LeaseRef { return LeaseRef{Partition: l.Partition, Token: l.Token} }

// LeaseRef names a lease by its partition and token.
type LeaseRef struct {
	Partition int
	Token     string
}

// NewToken generates a lease token: 128 random bits as 32 hexadecimal digits.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Start says where a relay that is new to the log begins.
type Start int

// The start positions.
const (
	// FromOldest starts with the oldest message that the log still has.
	FromOldest Start = iota
	// FromNow starts with messages that are published from now on.
	FromNow
)

// Cursor is a relay's progress in one partition. Its meaning belongs to the store; a relay only knows that a batch's Next
// covers the batch, and how to move within it (see Batch).
type Cursor struct {
	// Position is the sequence up to which fresh messages are delivered.
	Position int64
	// Snapshot is opaque to the relay. A store whose sequence order is not its commit order keeps there which transactions were
	// visible at Position.
	Snapshot string
}

// EndOfLog is the Position of a consumer's cursors (see package inbox): beyond everything that a log will ever hold.
const EndOfLog = math.MaxInt64 - 1

// FetchRequest says what to read.
type FetchRequest struct {
	// Partitions are the partitions to read, each after its cursor.
	Partitions []FetchPartition
	// Limit is the maximum number of records per partition, MaxBytes the maximum number of bytes over all partitions.
	Limit, MaxBytes int
}

// FetchPartition is one partition to read.
type FetchPartition struct {
	LeaseRef
	// After is the Next of the partition's previous batch, or the cursor of the lease.
	After Cursor
}

// Batch is what was read from one partition.
type Batch struct {
	Partition int
	// Lost says that the partition's lease does not hold, or that the cursor is beyond what the server knows, as after a crash.
	// No other field is set then.
	Lost    bool
	Records []Record
	// Late is the number of records at the front of Records that were committed late: their Sequence is at or before the
	// Position of the cursor that was read after (FetchPartition.After).
	//
	//   - While a late record is unsettled, the cursor stays where it was.
	//   - Once all late records are settled, {Position: r.Sequence, Snapshot: Next.Snapshot} is a valid cursor for each
	//     further record r up to which everything is settled.
	//   - If there is a further record, {Position: After.Position, Snapshot: Next.Snapshot} is valid then, too.
	Late int
	// Next is the cursor once every record is settled.
	Next Cursor
	// More says that more can be read from the partition right away.
	More bool
}

// Record is a message as read from the store.
type Record struct {
	// Message has no Attempt set yet.
	Message *postrider.Message
	// Delay is the time left until the message's delivery time, on the database's clock; zero or negative if it need not wait.
	Delay time.Duration
	// Attempts is the number of attempts so far, 0 for a message from the log.
	Attempts int
	// Redrives is how often operators have redriven it from the dead letters.
	Redrives int
	// Reason is why a parked message was parked; empty for a message from the log.
	Reason ParkReason
	// ParkedFor is the time since the message was first parked; parking it again does not restart it.
	ParkedFor time.Duration
	// Err says why the stored row cannot be read as a message. Message then holds what could be read (at least Sequence and
	// Key), and the message is dead-lettered.
	Err error
}

// ParkedState is what a relay has parked in a partition.
type ParkedState struct {
	// Keys are the held keys, including those that wait for an operator.
	Keys []string
	// Sequences are those of messages that are parked, or have a dead letter in any state, and that a fetch from the stored
	// cursor returns: greater than the given position, or late. A crash may have left the cursor before them. When they are
	// read from the log again, they must not be delivered from there too, with their attempts forgotten.
	Sequences []int64
}

// DueRequest says which parked messages to return.
type DueRequest struct {
	// Leases are those of the partitions to read.
	Leases []LeaseRef
	// Runs is the maximum number of runs (0 asks for decisions only), RunLength the maximum number of records in one run, and
	// MaxBytes the maximum number of bytes over all runs.
	Runs, RunLength, MaxBytes int
	// BusyKeys and BusySequences are held keys and keyless parked messages that are being worked on and must not be returned.
	BusyKeys      []string
	BusySequences []int64
}

// DueResult is what Due found.
type DueResult struct {
	Runs []Run
	// More says that others were due but did not fit.
	More bool
	// Next is the time until the next parked message or held key that was not returned is due; negative if none is waiting for
	// a time.
	Next time.Duration
	// Decisions are operators' decisions to be applied by Decide, oldest first, up to 100.
	Decisions []Decision
	// Lost are partitions whose lease does not hold.
	Lost []int
}

// Run is a unit of parked work: the parked messages of one held key in order, or one message that waits independently.
type Run struct {
	Partition int
	// Key is the held key; "" for a message that waits independently, which is then the only one in Records and may have a key
	// of its own (a delayed message).
	Key string
	// Records are in order of Sequence. An empty run of a held key says that none are left: the key can be released.
	Records []Record
}

// ParkReason says why a message was parked.
type ParkReason string

// The reasons for parking.
const (
	ParkRetry     ParkReason = "retry"     // it failed and waits for its next attempt
	ParkSnoozed   ParkReason = "snoozed"   // its handler put it off
	ParkHeld      ParkReason = "held"      // it is queued after the blocking message of its key
	ParkDelayed   ParkReason = "delayed"   // its delivery time has not come
	ParkSlow      ParkReason = "slow"      // it has been worked on for longer than ParkAfter
	ParkUnhandled ParkReason = "unhandled" // no handler or route takes it
	ParkRedriven  ParkReason = "redriven"  // an operator redrove it from the dead letters
	ParkReturned  ParkReason = "returned"  // its process stopped, or handed over the partition, before working on it
	ParkApart     ParkReason = "apart"     // it was committed late and shared a transaction with a message that failed
	ParkReplayed  ParkReason = "replayed"  // an operator replayed it
	ParkDead      ParkReason = "dead"      // of a held key only: its blocking message was dead-lettered, and an operator decides
)

// Settlement holds the outcomes of messages of one partition. Its parts are applied in the order Parked, Dead, Removed, Held,
// Release: a message may have been parked because it was slow and delivered since.
type Settlement struct {
	Partition int
	// Token is that of the lease under which the outcomes were produced.
	Token string
	// Number is one more than that of the partition's last settlement (Lease.Settled). A repeated settlement keeps its number
	// and content. With TxStore.CommitSettled it is 0 for side effects of parked messages, which move no cursor.
	Number int64
	// Cursor is the new cursor if Moved.
	Cursor Cursor
	Moved  bool
	// Delivered are messages from the log that were delivered since the last settlement. A store with an append-only log needs
	// only the cursor; a store that deletes delivered messages uses them.
	Delivered []int64
	// Removed are parked messages that were delivered: they are no longer parked.
	Removed []int64
	// Parked are messages to park, from the log or again.
	Parked []Parked
	// Dead are messages to dead-letter, from the log or from the parked messages.
	Dead []Dead
	// Held are keys to hold, or whose state has changed.
	Held []HeldKey
	// Release are keys to release. A key that still has parked messages waiting for it stays held and becomes due at once.
	Release []string
	// DeliveredCount and FailedCount are added to the partition's counters of delivered messages and failed attempts.
	DeliveredCount, FailedCount int64
	// Unrouted counts, per topic, the messages that the cursor passes and that no relay takes.
	Unrouted []UnroutedCount
}

// Parked is a message to park.
type Parked struct {
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

// Dead is a message to dead-letter.
type Dead struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log; it is an error if it is not there. Otherwise it is moved from the parked
	// messages; if it is gone, nothing happens.
	FromLog bool
	// Reason is short and the same for similar cases ("attempts exhausted", "undecodable"). Cause says what happened in the
	// last attempt, up to 4,000 bytes.
	Reason, Cause string
	Attempts      int
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
