package store

import (
	"time"
)

// DueRequest says which parked messages to return.
type DueRequest struct {
	// Leases are those of the partitions to read.
	Leases []LeaseRef
	// Runs is the maximum number of runs (0 asks for decisions only), RunLength the maximum number of entries in one run, and
	// MaxBytes the maximum number of bytes over all runs.
	Runs, RunLength, MaxBytes int
	// BusyKeys and BusySequences are held keys and parked messages that wait by themselves, which are being worked on and must not be
	// returned.
	BusyKeys      []string
	BusySequences []int64
	// From is that of an earlier result for these leases: what became due before it need not be returned, so that a store need not pass
	// over what was removed since. The zero time asks for everything.
	From time.Time
}

// DueLag is the least time between From and the read that returns it: what is parked to be due at once, in a transaction that ends within
// this time, is not due before From.
const DueLag = time.Second

// DueResult is what Due found.
type DueResult struct {
	Runs []ParkedRun
	// More says that others were due but did not fit.
	More bool
	// Next is the time until the next parked message or held key that was not returned is due; negative if none is waiting for
	// a time.
	Next time.Duration
	// Decisions are operators' decisions to be applied by Decide, oldest first, up to 100.
	Decisions []Decision
	// Lost are partitions whose lease does not hold.
	Lost []int
	// From is a time on the database's clock, at least DueLag ago. Of the parked messages and held keys that were to be returned or are
	// busy, none is due before it. Others can still become visible that are: parked in a transaction that was left open for longer, moved
	// from other partitions, or written by hand. So ask for everything from time to time. It is the zero time if the store has no use for
	// it.
	From time.Time
}

// ParkedRun is a unit of parked work: the parked messages of one held key in order, or one message that waits independently.
type ParkedRun struct {
	Partition int
	// Key is the held key; "" for a message that waits independently, which is then the only one in Entries and may have a key
	// of its own (a delayed message).
	Key string
	// Entries are in order of Sequence. An empty run of a held key says that none are left: the key can be released.
	Entries []Entry
}

// ParkedState is what a relay has parked in a partition.
type ParkedState struct {
	// Keys are the held keys, including those that wait for an operator. More says that there are others: as many are returned as
	// were asked for.
	Keys []string
	More bool
	// Sequences are those of messages that are parked, or have a dead letter in any state, and that a fetch from the stored
	// cursor returns: greater than the given position, or late. A crash may have left the cursor before them. When they are
	// read from the log again, they must not be delivered from there too, with their attempts lost.
	Sequences []int64
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
	ParkAlone     ParkReason = "alone"     // it was committed late and shared a transaction with a message that failed
	ParkReplayed  ParkReason = "replayed"  // an operator replayed it
	ParkFailed    ParkReason = "failed"    // a consumer's; it is queued in its held key, and dead-lettered at its turn
	ParkDead      ParkReason = "dead"      // of a held key only: its blocking message was dead-lettered, and an operator decides
)
