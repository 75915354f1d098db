package relay

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

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
func (r *Relay) observe(f func(o *observe.Relay)) {
	o := r.observer.Load()
	if o == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil && r.observer.CompareAndSwap(o, nil) {
			r.cfg.Logger.Error("observer panicked and will not be called again", "relay", r.cfg.Name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f(o)
}

// observeFailure tells the observer that an operation failed.
func (r *Relay) observeFailure(op observe.Operation, err error) {
	if r.observer.Load() != nil {
		r.observe(func(o *observe.Relay) {
			if o.Failed != nil {
				o.Failed(op, err)
			}
		})
	}
}

// observeLeases tells the observer about leases.
func (r *Relay) observeLeases(change observe.LeaseChange, n int) {
	if n > 0 && r.observer.Load() != nil {
		r.observe(func(o *observe.Relay) {
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
		r.observe(func(o *observe.Relay) {
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
	attempts []observe.Attempt // one for each message of the batch; without one for a message that is not due
}

// observeCall tells the observer about a call, and returns its context.
func (r *Relay) observeCall(ctx context.Context, batch []*item) (context.Context, *observedCall) {
	if r.observer.Load() == nil {
		return ctx, nil
	}
	c := &observedCall{relay: r, ctx: ctx, began: time.Now(), attempts: make([]observe.Attempt, len(batch))}
	msgs := make([]*postrider.Message, 0, len(batch))
	for i, it := range batch {
		if !it.NotDue {
			msgs = append(msgs, it.Message.Message)
			c.attempts[i] = observe.Attempt{Message: it.Message.Message, Outcome: observe.AttemptRequeued, Parked: it.Message.reason != ""}
		}
	}
	r.observe(func(o *observe.Relay) {
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
			c.attempts[i].Outcome = observe.AttemptDelivered
		}
	}
}

// unavailable records the outcome of all messages.
func (c *observedCall) unavailable() {
	if c != nil {
		for i := range c.attempts {
			c.attempts[i].Outcome = observe.AttemptUnavailable
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
		a.Outcome = observe.AttemptDelivered
	case o.Kind == schedule.Dead || o.Kind == schedule.Discarded:
		a.Outcome, a.Reason = observe.AttemptDead, o.Reason
	case o.Kind == schedule.Unattempted && v.is(postrider.BrokerUnavailable):
		a.Outcome = observe.AttemptUnavailable
	case o.Kind == schedule.Unattempted:
	case o.Reason == string(store.ParkUnhandled):
		a.Outcome = observe.AttemptUnhandled
	case o.Failed:
		a.Outcome = observe.AttemptRetried
	default:
		a.Outcome = observe.AttemptSnoozed
	}
}

// cut removes n attempts, which continue, and returns a call of their own.
func (c *observedCall) cut(first, n int) *observedCall {
	if c == nil {
		return nil
	}
	part := &observedCall{relay: c.relay, ctx: c.ctx, began: c.began, attempts: slices.Clone(c.attempts[first : first+n])}
	clear(c.attempts[first : first+n])
	return part
}

// end tells the observer about the outcomes.
func (c *observedCall) end() {
	if c == nil {
		return
	}
	attempts := slices.DeleteFunc(c.attempts, func(a observe.Attempt) bool { return a.Message == nil })
	if len(attempts) == 0 { // all continue
		return
	}
	c.relay.observe(func(o *observe.Relay) {
		if o.Attempted != nil {
			o.Attempted(c.ctx, observe.Attempted{Attempts: attempts, Took: time.Since(c.began)})
		}
	})
}
