package store

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// Log reads the outbox and records the outcomes of its messages.
type Log interface {
	// Fetch reads on from the given cursors, for all partitions in one round trip. Each batch holds entries in delivery order.
	// Fetch stays below MaxBytes (payload and attributes, over all batches) but returns at least one entry if any partition
	// has one. Partitions with nothing new may be left out, or returned with a moved cursor and no entries. A partition whose
	// lease does not hold, or whose cursor is beyond what the server knows, is returned as lost. The relay "" is a reader
	// without leases; none of its partitions is ever lost. It is not called for a consumer.
	Fetch(ctx context.Context, relay string, req FetchRequest) ([]Batch, error)
	// Due returns parked messages that are due, oldest due first, and operators' decisions that are waiting to be applied. Where removed
	// rows stay in an index until no transaction can see them, it begins at DueRequest.From.
	// Partitions whose lease does not hold are reported in Lost; nothing is returned for them.
	Due(ctx context.Context, relay string, req DueRequest) (DueResult, error)
	// FindHeld says which of keys are held for a relay. A relay keeps up to MaxHeldKeys held keys in memory, not counting those that it
	// is working on, and looks up the others when it reads messages. The keys are those of messages of the leased partitions. Whether
	// the leases hold is read with the keys: of another server, after a failover, another state of the keys would be no answer.
	FindHeld(ctx context.Context, relay string, leases []LeaseRef, keys []string) (FoundHeld, error)
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
	// Subscribe returns a channel that receives a coalesced signal when messages may have been committed or parked messages
	// have become due, as far as this process can tell. Messages of which it is known that takes reports false for all their topics need
	// no signal; nil takes all. Whoever calls Wake runs takes, which must neither wait nor call the store. Polling must find everything
	// without it. The returned function ends the subscription.
	Subscribe(takes func(topic string) bool) (<-chan struct{}, func())
}

// Cursor is a relay's progress in one partition. Its meaning belongs to the store; a relay only knows that a batch's Next
// covers the batch, and how to move within it (see Batch).
type Cursor struct {
	// Position is the sequence up to which fresh messages are delivered.
	Position int64
	// Snapshot is opaque to the relay. A store whose sequence order is not its commit order keeps there which transactions were
	// visible at Position.
	Snapshot string
}

// FetchRequest says what to read.
type FetchRequest struct {
	// Partitions are the partitions to read, each after its cursor.
	Partitions []FetchPartition
	// Limit is the maximum number of entries per partition, MaxBytes the maximum number of bytes over all partitions.
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
	Entries []Entry
	// Late is the number of entries at the front of Entries that were committed late: their Sequence is at or before the
	// Position of the cursor that was read after (FetchPartition.After).
	//
	//   - While a late entry is unsettled, the cursor stays where it was.
	//   - Once all late entries are settled, {Position: e.Message.Sequence, Snapshot: Next.Snapshot} is a valid cursor for each
	//     further entry e up to which everything is settled.
	//   - If there is a further entry, {Position: After.Position, Snapshot: Next.Snapshot} is valid then, too.
	Late int
	// Next is the cursor once every entry is settled.
	Next Cursor
	// More says that more can be read from the partition right away.
	More bool
}

// Entry is a message as read from the store.
type Entry struct {
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
	// ParkedFor is the time since the message was first parked, or since its delivery time if that was later; parking it again does not
	// restart it.
	ParkedFor time.Duration
	// Err says why the stored row cannot be read as a message. Message then holds what could be read (at least Sequence and
	// Key), and the message is dead-lettered. The relay itself checks the limits of Message.Validate. The times of Message are
	// in the years 1 to 9999. An error of postrider.Dead has its reason; that of others is postrider.Undecodable.
	Err error
}

// FoundHeld is what FindHeld found.
type FoundHeld struct {
	// Keys are the keys that are held, in any order.
	Keys []string
	// Lost are partitions whose lease does not hold. What Keys says of their keys means nothing.
	Lost []int
}

// Listener is implemented by stores in which other processes publish. Each relay runs Listen for its lifetime; what it finds is
// signaled through Subscribe. Listen blocks until ctx ends and reconnects by itself. It only makes delivery faster: a relay polls as
// well.
type Listener interface {
	Listen(ctx context.Context) error
}
