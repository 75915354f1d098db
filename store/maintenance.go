package store

import (
	"context"
	"time"
)

// Maintainer is implemented by stores whose log needs housekeeping. A relay that holds partitions calls Maintain about once a
// minute; any number of processes may do so concurrently.
type Maintainer interface {
	// Maintain prepares space for new messages and drops delivered messages and ended redrives that are past retention. It
	// never drops what any relay, of this process or another, has not delivered, and no message in a transaction that begins while a
	// legal hold is active (KindLegalHold).
	Maintain(ctx context.Context, r Retention) (Maintained, error)
}

// Retention says how long the log keeps delivered messages.
type Retention struct {
	// For is how long a delivered message is kept; 0 drops it as soon as every relay has passed it.
	For time.Duration
	// MaxBytes drops the oldest delivered messages when the log exceeds this size; 0 means no limit.
	MaxBytes int64
	// KeepFrom keeps all messages from this sequence on; 0 means no bound. E.g. a running replay still needs them.
	KeepFrom int64
	// WithoutRelay: while no relay is registered, what is older than For counts as delivered. Otherwise nothing does then.
	WithoutRelay bool
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

// Administrator changes an outbox as a whole. Each operation is one transaction. Everything said about a relay here also
// applies to a consumer of that name.
type Administrator interface {
	// Repartition changes the number of partitions to n, from 1 to MaxPartitions, and keeps the order of every key: every
	// message in the log, parked message, held key and dead letter moves to the partition that postrider.PartitionOf returns
	// for n, every relay moves to the end of the log, and every lease ends. Publishers wait meanwhile and then write for the
	// new number without a restart. The relays of a process that was paused meanwhile end with ErrRepartitioned.
	// Errors: ErrAlive, ErrUndelivered, ErrInUse (on SQLite sqlite.ErrBusy).
	Repartition(ctx context.Context, n int) error
}

// MaxPartitions is the largest number of partitions of an outbox.
const MaxPartitions = 1024
