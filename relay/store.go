package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
//
// A lease is held with a token, which its owner makes anew for each acquisition. It holds as long as the row with the token
// stands and the server is the incarnation that granted it: a crash, a failover or a restore ends every lease. Whether the
// owner is alive is recorded apart from its leases, and survives a crash.
//
// Heartbeat and Acquire register the filter of topics that the owner has (Owner.Topics). Each distinct filter of a relay gets a
// generation when it first appears: 1, 2 and so on. In effect is the filter with the highest generation among those of the
// relay's processes that are alive, or whose time ended less than FilterKept ago without a Leave; if there is none, the one
// that was registered last. When an owner registers a filter whose generation is higher than that of all others, the leases
// of all other owners of the relay end in the same transaction: a process that skips a topic by an older filter cannot move
// a cursor past it any more. The leases stay with their owners, who have to acquire them anew. Of a relay that has begun and
// never registered a filter, as in a program of an older release, every topic counts as taken; of a consumer none.
type LeaseStore interface {
	// Partitions returns the number of partitions of the outbox.
	Partitions(ctx context.Context) (int, error)
	// Heartbeat records that owner is alive for ttl from now on, and with it all leases that it holds, removes owners
	// that have been gone for a day, and reports who is alive and who holds what.
	Heartbeat(ctx context.Context, relay string, owner Owner, ttl time.Duration) (View, error)
	// Acquire records that owner is alive for req.TTL from now on and leases those of the partitions asked for that are free
	// for owner:
	//
	//	held by           | under                       | free
	//	nobody            | this incarnation            | yes (released, or never leased)
	//	owner itself      | this incarnation            | yes: the lease goes on under the new token, and the old token ends
	//	another owner     | this incarnation            | once the other counts as gone
	//	anybody or nobody | another incarnation         | if the claim says Resume; else once nobody whose lease was lost can still
	//	                  |                             | be at work: no other process of the relay counts as alive, or the longest
	//	                  |                             | TTL of its processes has passed since this incarnation was first used
	//
	// In a failover the record of who is alive may be old, so there only the second alternative counts.
	// The grants and what they return are read in one writing transaction. A call that is repeated with the same tokens grants
	// the same leases again. The first call for a relay fixes where it starts in all partitions of the outbox, whichever are
	// asked for and whether any is free, so that nothing is skipped that is published from then on.
	Acquire(ctx context.Context, relay string, owner Owner, req AcquireRequest) ([]Lease, error)
	// Release gives leases back, so that others need not wait for their end. A lease whose token has changed is left alone. It
	// waits for transactions that have checked the lease and not ended.
	Release(ctx context.Context, relay string, leases []LeaseRef) error
	// Leave says that owner has ended: its leases are released and it counts as gone.
	Leave(ctx context.Context, relay string, owner Owner) error
}

// LogStore reads the outbox and records what became of its messages.
type LogStore interface {
	// Fetch reads on from the given cursors, for all partitions in one round trip. Each batch holds records in the order in
	// which they are to be delivered. It stops short of MaxBytes (of payload and attributes, over all batches) but returns
	// at least one record of some partition if there is any. Partitions with nothing new may be left out or returned with a
	// moved cursor and no records. A partition whose lease does not hold, or whose cursor lies beyond what the server knows, is
	// returned as lost. The relay "" stands for a reader without leases, of which nothing is lost.
	Fetch(ctx context.Context, relay string, req FetchRequest) ([]Batch, error)
	// Due returns parked messages whose time has come, oldest due first, and operators' decisions that are to be applied.
	// Partitions whose lease does not hold are reported in Lost, and nothing of them is returned.
	Due(ctx context.Context, relay string, req DueRequest) (DueResult, error)
	// LoadParked returns what a relay has parked or dead-lettered in a partition beyond a cursor at position.
	LoadParked(ctx context.Context, relay string, partition int, position int64) (ParkedState, error)
	// Settle records outcomes, atomically for each settlement. It is fenced: a settlement is applied if its lease holds and its
	// Number is one more than that of the last settlement applied to the partition.
	//
	//	lease    | Number, compared with the last one applied | effect
	//	holds    | one more                                   | applied
	//	holds    | equal, with the same content               | none: it was applied before, and the answer is the same
	//	holds    | anything else                              | none; the partition is in Lost
	//	does not | any                                        | none; the partition is in Lost
	//
	// It may be lost in a crash of the database, together with the lease, so it need not wait for the disk. A settlement that
	// cannot be applied for another reason is reported in Failed, and the others are applied. After an error it is not known
	// which were applied; the relay repeats them unchanged. A message that is to be parked or dead-lettered from the log and is
	// not there is a failure.
	Settle(ctx context.Context, relay string, settlements []Settlement) (Settled, error)
	// Decide applies an operator's decision about a held key under the caller's lease, durably. The caller works on no message
	// of the key meanwhile. A decision that was applied before is not applied again. Errors: ErrLeaseLost.
	Decide(ctx context.Context, relay string, lease LeaseRef, id string) error
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
	// Topics is the filter that the process is configured with, sorted, each pattern once, "*" alone for all topics. A process
	// without one, e.g. an operator's, registers none.
	Topics []string
}

// FilterKept is how long the filter of a process counts that has ended without Leave.
const FilterKept = time.Hour

// View is who works on a relay right now.
type View struct {
	// Alive is the number of owners that are alive, the caller included.
	Alive int
	// Partitions has an entry for each partition that is held.
	Partitions []PartitionView
	// Filter is in effect as long as the leases in Partitions hold.
	Filter Filter
}

// PartitionView says who holds a partition.
type PartitionView struct {
	Partition int
	// Owner is the holder's Owner.ID, Token that of the lease.
	Owner, Token string
}

// AcquireRequest says which leases a process wants.
type AcquireRequest struct {
	Claims []Claim
	TTL    time.Duration
	// Start says where a relay begins that the outbox has never seen.
	Start Start
}

// Claim is the wish for the lease of one partition.
type Claim struct {
	Partition int
	// Token is made by the caller, new for each acquisition, and the same when the call is repeated because its answer was lost.
	Token string
	// Resume says that the caller held the partition until now and that its lease has not ended by its own clock, although
	// the database may not know of it any more.
	Resume bool
}

// Lease is the right to work on a partition until it ends.
type Lease struct {
	Partition int
	Owner     string
	// Token is the fence: whatever is done under the lease carries it.
	Token string
	// Cursor is where the last owner's settlements ended, and Settled the number of the last one that was applied.
	Cursor  Cursor
	Settled int64
	// Parked is what has been parked in the partition.
	Parked ParkedState
	// Filter is in effect as long as the lease holds, or until a later View says otherwise.
	Filter Filter
}

// Ref names the lease.
func (l *Lease) Ref() LeaseRef { return LeaseRef{Partition: l.Partition, Token: l.Token} }

// LeaseRef names a lease by its partition and token.
type LeaseRef struct {
	Partition int
	Token     string
}

// NewToken makes a token of a lease: 128 random bits in 32 hexadecimal digits.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
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
	LeaseRef
	// After is the Next of the partition's previous batch, or the cursor of the lease.
	After Cursor
}

// Batch is what was read of one partition.
type Batch struct {
	Partition int
	// Lost says that the partition's lease does not hold, or that the cursor lies beyond what the server knows, as after a
	// crash. Nothing else is set.
	Lost    bool
	Records []Record
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

// ParkedState is what a relay has taken off the main line in a partition.
type ParkedState struct {
	// Keys are the keys that are held, those waiting for an operator included.
	Keys []string
	// Sequences are those of messages that are parked or have a dead letter of any state and that a fetch from the stored
	// cursor returns: greater than the position asked for, or late. A crash may have left the cursor before them: read from
	// the log again they are not to be delivered from there as well, with their attempts forgotten.
	Sequences []int64
}

// DueRequest says which parked messages to return.
type DueRequest struct {
	// Leases are those of the partitions to look in.
	Leases []LeaseRef
	// Runs is the largest number of runs (0 asks for decisions only), RunLength that of records in one run, MaxBytes that of bytes over all.
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
	// Decisions of operators are to be applied by Decide, oldest first, up to 100.
	Decisions []Decision
	// Lost are partitions whose lease does not hold.
	Lost []int
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
	// Token is that of the lease under which the outcomes came about.
	Token string
	// Number is one more than that of the partition's last settlement (Lease.Settled). A settlement that is repeated keeps its
	// number and its content. With TxStore.CommitSettled it is 0 for effects of parked messages, which move no cursor.
	Number int64
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
	// Unrouted counts messages that the cursor passes and that no relay takes, each topic once.
	Unrouted []UnroutedCount
}

// Parked is a message put aside.
type Parked struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log; it is an error if it is not there. Not FromLog: a parked row is updated, and
	// if it is gone nothing happens: its consumer has processed it.
	FromLog bool
	Reason  ParkReason
	// Waits: the message has no time of its own; it waits as head or follower of its held key. Otherwise it is due After
	// from now.
	Waits bool
	After time.Duration
	// Attempts is the number of attempts made so far, and Cause, unless empty, what happened in the last one; it is added to the
	// message's history (of which the last 20 entries are kept) and kept whole up to 4,000 bytes.
	Attempts int
	Cause    string
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
	// dead letter. If no dead letter of the head is open, since an operator has decided already, the key is due at once
	// instead. Since when the key is held is kept when it is held already.
	After        time.Duration
	UntilDecided bool
}

// Dead is a message given up.
type Dead struct {
	Sequence int64
	Key      string
	// FromLog: the message is copied from the log; it is an error if it is not there. Not FromLog: it is moved from the parked
	// ones, and if it is gone nothing happens.
	FromLog bool
	// Reason is short and the same for like cases ("attempts exhausted", "undecodable"), Cause what happened in the last
	// attempt, up to 4,000 bytes.
	Reason, Cause string
	Attempts      int
}

// Settled says what became of the settlements of a call.
type Settled struct {
	// Lost are partitions of which nothing was applied, because the lease does not hold or the number is not the next.
	Lost []int
	// Failed are partitions of which nothing was applied for another reason, e.g. a value that the database cannot hold.
	Failed map[int]error
	// Released are those of the keys asked to be released that are held no longer.
	Released []string
}
