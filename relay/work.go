package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
)

// errForeign: the message's topic was added to the relay's filter by a newer version than this process.
var errForeign = fmt.Errorf("this process is not configured for the topic, a newer version of the relay is: %w", postrider.ErrUnhandled)

// worker delivers until the relay ends, or until another worker replaces it during a slow call.
func (r *Relay) worker() {
	finished, current := false, r.addWorker()
	defer func() {
		if replaced := r.removeWorker(current); !finished && !replaced { // a handler ended this goroutine (runtime.Goexit)
			r.workers.Go(r.worker)
		}
	}()
	batch := make([]*item, 0, r.cfg.MaxBatch)
	for {
		var probe bool
		batch, probe = r.take(batch[:0], current)
		if len(batch) == 0 {
			finished = true
			return
		}
		if r.tx != nil {
			r.transact(batch, probe)
			continue
		}
		msgs := make([]*postrider.Message, len(batch)) // the publisher may keep it, even after the call
		for i, it := range batch {
			if n := it.Attempts + 1; it.Message.Attempt != n {
				it.Message.Attempt = n
			}
			msgs[i] = it.Message.Message
		}
		r.deliver(batch, msgs, probe)
	}
}

// take waits for work, takes as much of it as one call may have, and reports whether the call is a probe of the circuit. It
// returns nothing when the relay ends, or when another worker has replaced this one during its last call.
func (r *Relay) take(batch []*item, current *workerSlot) (_ []*item, probe bool) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	current.since = time.Time{}
	for r.life.Err() == nil && !current.slow {
		now := time.Now()
		room := r.allowed(now)
		if room == 0 || r.sched.Ready() == 0 {
			r.wake() // Take may have parked messages
			r.changed.Wait()
			continue
		}
		var ended *schedule.Partition[message]
		if batch, ended = r.sched.Take(batch, room, now); ended != nil {
			r.leaseExpired(r.partitions[ended.Lease.Partition])
		}
		if len(batch) > 0 {
			if r.rate != nil {
				r.rate.spend(len(batch))
			}
			if len(batch) == 1 || r.publish == nil {
				current.since = now
			}
			return batch, r.circuit.started(now)
		}
	}
	return nil, false
}

// deliver makes the call and processes its outcome, even if the call never returns (runtime.Goexit).
func (r *Relay) deliver(batch []*item, msgs []*postrider.Message, probe bool) {
	ctx, release := r.callContext(batch)
	defer release()
	ctx, observed := r.observeCall(ctx, batch)
	var errs []error
	returned := false
	defer func() {
		if !returned {
			errs = fail(len(batch), &brokenCallError{errors.New("the call ended its goroutine (runtime.Goexit)")})
		}
		r.complete(batch, r.results(batch, errs), probe, observed)
		observed.end()
	}()
	errs = r.call(ctx, batch, msgs)
	returned = true
}

// call passes the messages on and returns one error for each, or nil.
func (r *Relay) call(ctx context.Context, batch []*item, msgs []*postrider.Message) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			errs = fail(len(batch), &brokenCallError{&PanicError{Value: v, Stack: string(debug.Stack())}})
		}
	}()
	ctx, end := attempt.Bound(ctx, batch[0].Started, r.attemptTimeout())
	defer end()
	if undecodable(batch) {
		return r.callDecodable(ctx, batch)
	}
	if batch[0].Message.foreign { // it has handlers, which get one message at a time
		return []error{errForeign}
	}
	return r.hand(ctx, msgs)
}

// attemptTimeout bounds a call, or each attempt in a transaction; 0 means no bound.
func (r *Relay) attemptTimeout() time.Duration {
	switch limit := r.cfg.AttemptTimeout; {
	case limit != 0:
		return max(limit, 0)
	case r.tx != nil:
		limit := min(DefaultAttemptTimeout, r.cfg.LeaseTTL*2/3)
		if idle := r.idleLimit(); idle > 0 {
			limit = min(limit, idle*2/3)
		}
		return limit
	default:
		return DefaultAttemptTimeout
	}
}

// callContext returns a context that ends with the lease of any partition that the messages belong to.
func (r *Relay) callContext(batch []*item) (context.Context, func()) {
	first := batch[0].Message.partition
	if len(batch) == 1 {
		return first.ctx, func() {}
	}
	ctx, cancel := context.WithCancel(first.ctx)
	stops := []func() bool{}
	seen := map[*partition]bool{first: true}
	for _, it := range batch[1:] {
		if p := it.Message.partition; p != first && !seen[p] {
			seen[p] = true
			stops = append(stops, context.AfterFunc(p.ctx, cancel))
		}
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// notHandled returns the outcome of a message that is not handed over for a reason, store.Entry.Err.
func notHandled(reason error) error {
	if postrider.OutcomeOf(reason).Kind == postrider.DeadLettered {
		return reason
	}
	return postrider.Dead(postrider.Undecodable, reason)
}

func undecodable(batch []*item) bool {
	for _, it := range batch {
		if it.Message.err != nil {
			return true
		}
	}
	return false
}

// callDecodable passes on a batch with rows that cannot be decoded: those are dead-lettered, and the others continue without
// them, except messages queued after one whose dead letter holds their key.
func (r *Relay) callDecodable(ctx context.Context, batch []*item) []error {
	errs := make([]error, len(batch))
	var msgs []*postrider.Message
	var at []int
	var stopped *item // the last one that holds its key
	for i, it := range batch {
		switch {
		case it.Message.err != nil:
			errs[i] = notHandled(it.Message.err)
			if it.Key != "" && r.cfg.OnDead == HoldKey {
				stopped = it
			}
		case stopped != nil && schedule.SameQueue(stopped, it):
			errs[i] = postrider.PredecessorFailed(stopped.Message.Message, stopped.Message.err)
		default:
			msgs, at = append(msgs, it.Message.Message), append(at, i)
		}
	}
	if len(msgs) > 0 {
		for j, err := range r.hand(ctx, msgs) {
			errs[at[j]] = err
		}
	}
	return errs
}

// hand passes messages to the publisher, or a single message to its handler.
func (r *Relay) hand(ctx context.Context, msgs []*postrider.Message) []error {
	if r.publish == nil {
		if err := r.handle(ctx, msgs[0]); err != nil {
			return []error{err}
		}
		return nil
	}
	errs := r.publish(ctx, msgs)
	if errs != nil && len(errs) != len(msgs) {
		return fail(len(msgs), &brokenCallError{fmt.Errorf("publisher answered for %d messages of %d; it breaks its contract", len(errs), len(msgs))})
	}
	return errs
}

func fail(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
