package relay

import (
	"context"
	"time"
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
	// not any is free, so that nothing published from then on is skipped. Errors: ErrNameTaken and ErrNameOfRelay if the name is
	// of the other kind than req.Kind.
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
	// without leases; none of its partitions is ever lost. It is not called for a consumer.
	Fetch(ctx context.Context, relay string, req FetchRequest) ([]Batch, error)
	// Due returns parked messages that are due, oldest due first, and operators' decisions that are waiting to be applied.
	// Partitions whose lease does not hold are reported in Lost; nothing is returned for them.
	Due(ctx context.Context, relay string, req DueRequest) (DueResult, error)
	// LoadParked returns what a relay has parked or dead-lettered in a partition beyond a cursor at position. For a consumer, it
	// returns no sequences.
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
	// Decide applies an operator's decision durably, under the caller's lease. Meanwhile the caller works on no message of the
	// held key, or not on the parked message. A decision that has been applied is not applied again. Errors: ErrLeaseLost.
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
