package observe

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Relay is told what a relay does (relay.Config.Observer). If one of its functions panics, the panic is logged and none is called any
// more.
type Relay struct {
	// Fetched is called after each read of the outbox, and of parked messages that are due.
	Fetched func(f Fetched)
	// Attempting is called before a call of the publisher, of a handler, or of the handlers in a transaction of HandleTx, which
	// gets the context that it returns. Attempted is called with that context when the outcomes are known.
	Attempting func(ctx context.Context, msgs []*postrider.Message) context.Context
	Attempted  func(ctx context.Context, a Attempted)
	// Settled is called after outcomes were recorded, or could not be.
	Settled func(s Settled)
	// LeasesChanged is called when leases of this process began or ended.
	LeasesChanged func(change LeaseChange, n int)
	// DestinationChanged is called when the destination has become available or unavailable.
	DestinationChanged func(d store.Destination)
	// Maintained is called after housekeeping of the log succeeded.
	Maintained func(m store.Maintained)
	// Failed is called when an operation failed. The relay continues and repeats it.
	Failed func(op Operation, err error)
}

// Fetched is the result of a read.
type Fetched struct {
	// Parked says that parked messages were read, not the log.
	Parked bool
	// Messages were found; Late of them were committed after later ones had been read.
	Messages, Late int
	// WokenBy says why the log was read.
	WokenBy WokenBy
	Took    time.Duration
	Err     error
}

// WokenBy says why the log is read.
type WokenBy string

// The reasons to read the log.
const (
	WokenByCommit WokenBy = "commit" // messages were committed, as far as this process can tell
	WokenByPoll   WokenBy = "poll"   // the wait between two polls is over
	WokenByRoom   WokenBy = "room"   // there is more to read, or the relay needs it
)

// Attempted has the outcomes of a call.
type Attempted struct {
	Attempts []Attempt
	Took     time.Duration
}

// Attempt is the outcome of a message in a call.
type Attempt struct {
	Message *postrider.Message
	Outcome AttemptOutcome
	// Reason says why it was dead-lettered.
	Reason string
	// Parked says that the message had been parked before.
	Parked bool
}

// AttemptOutcome is the outcome of a message in a call.
type AttemptOutcome string

// The outcomes of a message in a call.
const (
	AttemptDelivered   AttemptOutcome = "delivered"
	AttemptRetried     AttemptOutcome = "retried"     // it failed, and waits for its next attempt
	AttemptSnoozed     AttemptOutcome = "snoozed"     // it was put off without a failed attempt
	AttemptUnhandled   AttemptOutcome = "unhandled"   // no handler takes it
	AttemptDead        AttemptOutcome = "dead"        // it was dead-lettered
	AttemptUnavailable AttemptOutcome = "unavailable" // the destination was unavailable
	AttemptRequeued    AttemptOutcome = "requeued"    // nothing is known about it: it waits, or the call was cut off
)

// AttemptOutcomes lists all of them.
var AttemptOutcomes = []AttemptOutcome{
	AttemptDelivered, AttemptRetried, AttemptSnoozed, AttemptUnhandled, AttemptDead, AttemptUnavailable, AttemptRequeued,
}

// Settled is the result of recording outcomes.
type Settled struct {
	// Settlements were applied. Lost is the number of those that were refused because their lease had ended: their messages may
	// be delivered again.
	Settlements []store.Settlement
	Lost        int
	Took        time.Duration
}

// LeaseChange says how leases began or ended.
type LeaseChange string

// The changes of leases.
const (
	LeaseGained   LeaseChange = "gained"
	LeaseReleased LeaseChange = "released" // handed over, or the relay stopped
	LeaseLost     LeaseChange = "lost"     // the database no longer holds it for this process
	LeaseExpired  LeaseChange = "expired"  // it could not be renewed in time
)

// LeaseChanges lists all of them.
var LeaseChanges = []LeaseChange{LeaseGained, LeaseReleased, LeaseLost, LeaseExpired}

// Operation is something that a relay does regularly.
type Operation string

// The operations of a relay.
const (
	OperationFetch    Operation = "fetch"
	OperationDue      Operation = "due" // read parked messages, and apply operators' decisions
	OperationSettle   Operation = "settle"
	OperationLease    Operation = "lease"
	OperationMaintain Operation = "maintain"
	OperationListen   Operation = "listen"
)

// Operations lists all of them.
var Operations = []Operation{OperationFetch, OperationDue, OperationSettle, OperationLease, OperationMaintain, OperationListen}
