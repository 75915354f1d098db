package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

// Leases shares a relay's partitions among the processes that run it.
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
type Leases interface {
	// Partitions returns the number of partitions of the outbox.
	Partitions(ctx context.Context) (int, error)
	// Heartbeat records that owner is alive for ttl from now on, which extends all leases that it holds, and the state of its
	// destination. It removes owners that have been gone for a day, and reports who is alive and who holds what.
	Heartbeat(ctx context.Context, relay string, owner Owner, ttl time.Duration) (View, error)
	// Acquire records that owner is alive for req.TTL from now on and leases those of the requested partitions that are free
	// for owner:
	//
	//	held by           | under                       | free
	//	nobody            | this incarnation            | yes (released, or never leased)
	//	owner itself      | this incarnation            | yes: the lease continues under the new token, and the old token is void
	//	another owner     | this incarnation            | once the other counts as gone
	//	anybody or nobody | another incarnation         | at once if the claim says Resume; otherwise see below
	//
	// Without Resume, a partition of another incarnation is free once nobody whose lease was lost can still be working: (a) no
	// other process of the relay counts as alive, or (b) the longest TTL of its processes has passed since this incarnation was
	// first used. After a failover the record of who is alive may be stale, so only (b) counts. The grants and the returned state
	// are read in one write transaction. Repeating a call with the same tokens grants the same leases again. The first call for a
	// relay sets its start position in all partitions of the outbox, whichever are requested and whether or not any is free, so
	// that nothing published from then on is skipped. Errors: ErrNameOfConsumer and ErrNameOfRelay if the name is of the other kind
	// than req.Kind.
	Acquire(ctx context.Context, relay string, owner Owner, req AcquireRequest) ([]Lease, error)
	// Release releases leases, so that others need not wait for them to expire. A lease whose token has changed is left alone.
	// Release waits for open transactions that have checked the lease.
	Release(ctx context.Context, relay string, leases []LeaseRef) error
	// Leave records that owner has ended: its leases are released and it counts as gone.
	Leave(ctx context.Context, relay string, owner Owner) error
}

// Kind tells relays from consumers. A name has one kind, from when it first registers until it is removed.
type Kind string

// Check returns an error if a name of kind k must not be used as want, "" for any kind. Errors: ErrNameOfConsumer, ErrNameOfRelay.
func (k Kind) Check(want Kind) error {
	switch {
	case want == "" || want == k:
		return nil
	case k == KindConsumer:
		return ErrNameOfConsumer
	}
	return ErrNameOfRelay
}

// The kinds.
const (
	// KindRelay reads the log of the outbox, from a cursor in each partition.
	KindRelay Kind = "relay"
	// KindConsumer reads a broker (see package inbox). It leases partitions to work on its parked messages, and has no cursor:
	// its backlog is empty, and the log keeps no message for it.
	KindConsumer Kind = "consumer"
)

// Owner is one running relay process.
type Owner struct {
	// ID is unique to the process and run, e.g. "host-4711-0190f3…"; Host and Version are for operators.
	ID, Host, Version string
	// Topics is the filter that the process is configured with: sorted, each pattern once, "*" alone for all topics. A process
	// without a filter, e.g. an operator's, registers none.
	Topics []string
	// Destination is the state of the relay's destination as the process found it, Gate that of its gate. Heartbeat records them.
	Destination Destination
	Gate        Gate
}

// Gate is the state of the gate of a relay, see relay.Config.Gate. All times are relative to now.
type Gate struct {
	// Closed says that the process starts nothing until the gate opens. Without it, the other fields are empty.
	Closed bool
	// On is the name of what the relay waits for, such as an operation of the module resilience, up to 200 bytes; "" if it has none.
	On string
	// For is how long the gate has been closed, NextTry the time until it may open, 0 if that is not known.
	For, NextTry time.Duration
}

// Destination is the state of a relay's destination. All times are relative to now.
type Destination struct {
	State DestinationState
	// For is how long it has been in this state.
	For time.Duration
	// Error says why it is down, up to 1,000 bytes; NextTry is the time until the next probe.
	Error   string
	NextTry time.Duration
}

// DestinationState is whether a destination answers.
type DestinationState string

// The states of a destination.
const (
	// DestinationUnknown: nothing was sent yet, or the relay has handlers in its process.
	DestinationUnknown DestinationState = ""
	// DestinationUp: it answered the last call.
	DestinationUp DestinationState = "up"
	// DestinationDown: the relay waits, and probes it.
	DestinationDown DestinationState = "down"
)

// View is who works on a relay right now.
type View struct {
	// Alive is the number of owners that are alive, the caller included.
	Alive int
	// Partitions has an entry for each partition that is held.
	Partitions []PartitionView
	// Filter is in effect while the leases in Partitions hold.
	Filter TopicFilter
}

// PartitionView says who holds a partition.
type PartitionView struct {
	Partition int
	// Owner is the holder's Owner.ID, Token the lease's.
	Owner, Token string
}

// AcquireRequest says which leases a process wants.
type AcquireRequest struct {
	// Kind is the kind that the name must have; a new name gets it. An operator's program leaves it empty: it works for either
	// kind, and a new name is that of a relay.
	Kind   Kind
	Claims []LeaseClaim
	TTL    time.Duration
	// FromNow says that a relay that is new to the outbox begins with messages published from now on, not with the oldest that
	// the log still has.
	FromNow bool
	// MaxHeld is how many held keys of each partition are returned at most (ParkedState.Keys); 0: all.
	MaxHeld int
}

// LeaseClaim asks for the lease of one partition.
type LeaseClaim struct {
	Partition int
	// Token is generated by the caller for each acquisition; a call that is repeated because its answer was lost uses the same
	// one.
	Token string
	// Resume says that the caller held the partition until now and that its lease has not expired by its own clock, although
	// the database may no longer know of it.
	Resume bool
}

// NewToken generates a lease token: 128 random bits as 32 hexadecimal digits.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Lease is the right to work on a partition until it ends.
type Lease struct {
	Partition int
	Owner     string
	// Token is the fence: everything that is done under the lease carries it.
	Token string
	// Cursor is where the last owner's settlements ended, zero for a consumer; Settled is the number of the last one that was
	// applied.
	Cursor  Cursor
	Settled int64
	// Parked is what is parked in the partition. For a consumer, it has no Sequences.
	Parked ParkedState
	// Filter is in effect while the lease holds, or until a later View says otherwise.
	Filter TopicFilter
}

// Ref names the lease.
func (l *Lease) Ref() LeaseRef { return LeaseRef{Partition: l.Partition, Token: l.Token} }

// LeaseRef names a lease by its partition and token.
type LeaseRef struct {
	Partition int
	Token     string
}
