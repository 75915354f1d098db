package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/postrider/postrider"
)

// errUnhandled: no handler takes messages of this type.
var errUnhandled = errors.New("no handler takes messages of this type; start a process that has one, or pass over its " +
	"topic with Config.Topics")

// defaultPublishTimeout bounds a Publish call when Config.AttemptTimeout does not.
const defaultPublishTimeout = 30 * time.Second

// worker delivers until the relay ends.
func (r *Relay) worker() {
	finished := false
	defer func() {
		if !finished { // a handler ended this goroutine (runtime.Goexit); the place is filled again
			r.workers.Go(r.worker)
		}
	}()
	batch := make([]*item, 0, r.cfg.MaxBatch)
	msgs := make([]*postrider.Message, 0, r.cfg.MaxBatch)
	for {
		batch = r.take(batch[:0])
		if len(batch) == 0 {
			finished = true
			return
		}
		msgs = msgs[:0]
		for _, it := range batch {
			it.msg.Attempt = it.attempts + 1
			msgs = append(msgs, it.msg)
		}
		r.deliver(batch, msgs)
	}
}

// take waits for work and takes as much of it as one call may have. It returns nothing when the relay ends.
func (r *Relay) take(batch []*item) []*item {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.life.Err() == nil {
		room := r.circuit.allows(r.cfg.MaxBatch, time.Now())
		if room > 0 && r.sched.len() > 0 {
			if batch = r.fill(batch, room); len(batch) > 0 {
				r.circuit.started()
				r.out(batch)
				return batch
			}
			continue
		}
		r.changed.Wait()
	}
	return nil
}

// fill takes units while there is room: from each lane as many of its foremost messages as fit.
func (r *Relay) fill(batch []*item, room int) []*item {
	now := time.Now()
	bytes := max(r.cfg.MaxInFlightBytes/(2*r.cfg.Concurrency), 1)
	for len(batch) < room && r.sched.len() > 0 && bytes > 0 {
		u := r.sched.next()
		p := u.partition()
		if !p.gone && !now.Before(p.until) {
			r.lose(p)
		}
		if p.gone {
			r.discard(u)
			continue
		}
		if u.lane == nil {
			batch = append(batch, u.item)
			bytes -= u.item.size
			continue
		}
		l := u.lane
		l.running = true
		for l.head != nil && len(batch) < room && (bytes > 0 || l.out == 0) {
			it := l.pop()
			l.out++
			bytes -= it.size
			batch = append(batch, it)
		}
	}
	return batch
}

// out notes what leaves for delivery.
func (r *Relay) out(batch []*item) {
	now := time.Now()
	for _, it := range batch {
		it.started = now
		it.partition.out++
	}
	if len(batch) == 1 {
		r.running[batch[0]] = struct{}{}
	}
}

// discard forgets work of a partition that is not this process's any more; its next owner has it.
func (r *Relay) discard(u unit) {
	if u.lane == nil {
		r.drop(u.item)
		return
	}
	for u.lane.head != nil {
		r.drop(u.lane.pop())
	}
	delete(u.partition().lanes, u.lane.key)
}

// deliver makes the call and takes in its outcome, also when the call never returns (runtime.Goexit).
func (r *Relay) deliver(batch []*item, msgs []*postrider.Message) {
	var errs []error
	returned := false
	defer func() {
		if !returned {
			errs = fail(len(batch), errors.New("the call ended its goroutine (runtime.Goexit)"))
		}
		r.complete(batch, errs)
	}()
	errs = r.call(batch, msgs)
	returned = true
}

// call hands the messages over and returns one error for each, or nil.
func (r *Relay) call(batch []*item, msgs []*postrider.Message) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			errs = fail(len(batch), &PanicError{Value: v, Stack: string(debug.Stack())})
		}
	}()
	ctx := r.calls
	if len(batch) == 1 {
		ctx = batch[0].partition.ctx
	}
	timeout := r.cfg.AttemptTimeout
	if timeout == 0 && r.publish != nil {
		timeout = defaultPublishTimeout
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("attempt took longer than %s: %w", timeout, context.DeadlineExceeded))
		defer cancel()
	}
	if undecodable(batch) {
		return r.callDecodable(ctx, batch)
	}
	if r.publish == nil {
		return []error{r.handle(ctx, msgs[0])}
	}
	errs = r.publish(ctx, msgs)
	if errs != nil && len(errs) != len(msgs) {
		return fail(len(msgs), fmt.Errorf("publisher answered for %d messages of %d; it breaks its contract", len(errs), len(msgs)))
	}
	return errs
}

func undecodable(batch []*item) bool {
	for _, it := range batch {
		if it.err != nil {
			return true
		}
	}
	return false
}

// callDecodable hands over a batch that holds rows which are no messages: those are dead, the others go on without them.
func (r *Relay) callDecodable(ctx context.Context, batch []*item) []error {
	errs := make([]error, len(batch))
	var msgs []*postrider.Message
	var at []int
	for i, it := range batch {
		if it.err != nil {
			errs[i] = postrider.Dead("undecodable", it.err)
			continue
		}
		msgs, at = append(msgs, it.msg), append(at, i)
	}
	if len(msgs) == 0 {
		return errs
	}
	if r.publish == nil {
		errs[at[0]] = r.handle(ctx, msgs[0])
		return errs
	}
	got := r.publish(ctx, msgs)
	if got != nil && len(got) != len(msgs) {
		got = fail(len(msgs), fmt.Errorf("publisher answered for %d messages of %d; it breaks its contract", len(got), len(msgs)))
	}
	for j, err := range got {
		errs[at[j]] = err
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

// PanicError is the failure of a handler or publisher that panicked.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// partition of the unit's foremost message.
func (u unit) partition() *partition {
	if u.item != nil {
		return u.item.partition
	}
	return u.lane.partition
}
