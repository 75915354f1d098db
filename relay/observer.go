package relay

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// Observer has functions that are told what a relay does, for metrics and traces. Any of them may be nil. They are called from
// the relay's goroutines, several at a time, and must return at once: the relay waits for them. They must not change what they
// are given, and must not call the relay. If one of them panics, the panic is logged and none is called any more.
type Observer struct {
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

// Usage is what a relay uses of its limits in this process.
type Usage struct {
	// Messages and Bytes are in memory, of MaxInFlight and MaxInFlightBytes.
	Messages, Bytes, MaxInFlight, MaxInFlightBytes int
	// Calls are in progress, of Concurrency.
	Calls, Concurrency int
	// Leases are held.
	Leases int
	// Closed says that nothing may be started: the relay is paused, or Config.Gate is closed.
	Closed bool
}

// Usage returns what the relay uses of its limits. It is zero before Run.
func (r *Relay) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sched == nil {
		return Usage{}
	}
	return Usage{
		Messages: r.sched.InMemory(), Bytes: r.sched.Fresh.Bytes + r.sched.Parked.Bytes,
		MaxInFlight: r.cfg.MaxInFlight, MaxInFlightBytes: r.cfg.MaxInFlightBytes,
		Calls: r.sched.Calls(), Concurrency: r.cfg.Concurrency, Leases: len(r.partitions),
		Closed: r.closed(),
	}
}

// observe calls f with the observer, unless there is none.
func (r *Relay) observe(f func(o *Observer)) {
	o := r.observer.Load()
	if o == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil && r.observer.CompareAndSwap(o, nil) {
			r.cfg.Logger.Error("observer panicked and is called no more", "relay", r.cfg.Name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f(o)
}

// observeFailure tells the observer that an operation failed.
func (r *Relay) observeFailure(op Operation, err error) {
	if r.observer.Load() != nil {
		r.observe(func(o *Observer) {
			if o.Failed != nil {
				o.Failed(op, err)
			}
		})
	}
}

// observeLeases tells the observer about leases.
func (r *Relay) observeLeases(change LeaseChange, n int) {
	if n > 0 && r.observer.Load() != nil {
		r.observe(func(o *Observer) {
			if o.LeasesChanged != nil {
				o.LeasesChanged(change, n)
			}
		})
	}
}

// observeDestination tells the observer about the destination.
func (r *Relay) observeDestination() {
	if r.observer.Load() != nil {
		d := r.destination()
		r.observe(func(o *Observer) {
			if o.DestinationChanged != nil {
				o.DestinationChanged(d)
			}
		})
	}
}

// observedCall is a call that the observer is told about; nil if there is no observer.
type observedCall struct {
	relay    *Relay
	ctx      context.Context
	began    time.Time
	attempts []Attempt // one for each message of the batch; without one for a message that is not due
}

// observeCall tells the observer about a call, and returns its context.
func (r *Relay) observeCall(ctx context.Context, batch []*item) (context.Context, *observedCall) {
	if r.observer.Load() == nil {
		return ctx, nil
	}
	c := &observedCall{relay: r, ctx: ctx, began: time.Now(), attempts: make([]Attempt, len(batch))}
	msgs := make([]*postrider.Message, 0, len(batch))
	for i, it := range batch {
		if !it.NotDue {
			msgs = append(msgs, it.Message.Message)
			c.attempts[i] = Attempt{Message: it.Message.Message, Outcome: AttemptRequeued, Parked: it.Message.reason != ""}
		}
	}
	r.observe(func(o *Observer) {
		if o.Attempting != nil {
			c.ctx = o.Attempting(ctx, msgs)
		}
	})
	return c.ctx, c
}

// delivered records the outcome of the first n messages.
func (c *observedCall) delivered(n int) {
	if c != nil {
		for i := range c.attempts[:n] {
			c.attempts[i].Outcome = AttemptDelivered
		}
	}
}

// unavailable records the outcome of all messages.
func (c *observedCall) unavailable() {
	if c != nil {
		for i := range c.attempts {
			c.attempts[i].Outcome = AttemptUnavailable
		}
	}
}

// outcome records the outcome of a message.
func (c *observedCall) outcome(i int, v *result, o schedule.Outcome) {
	if c == nil {
		return
	}
	a := &c.attempts[i]
	switch {
	case o.Kind == schedule.Delivered:
		a.Outcome = AttemptDelivered
	case o.Kind == schedule.Dead || o.Kind == schedule.Discarded:
		a.Outcome, a.Reason = AttemptDead, o.Reason
	case o.Kind == schedule.Unattempted && v.is(postrider.BrokerUnavailable):
		a.Outcome = AttemptUnavailable
	case o.Kind == schedule.Unattempted:
	case o.Reason == string(store.ParkUnhandled):
		a.Outcome = AttemptUnhandled
	case o.Failed:
		a.Outcome = AttemptRetried
	default:
		a.Outcome = AttemptSnoozed
	}
}

// end tells the observer about the outcomes.
func (c *observedCall) end() {
	if c == nil {
		return
	}
	attempts := slices.DeleteFunc(c.attempts, func(a Attempt) bool { return a.Message == nil })
	c.relay.observe(func(o *Observer) {
		if o.Attempted != nil {
			o.Attempted(c.ctx, Attempted{Attempts: attempts, Took: time.Since(c.began)})
		}
	})
}
