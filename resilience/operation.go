package resilience

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// Operation is a named call to another system, or an instance of it. Its methods are safe for concurrent use.
type Operation struct {
	set            *Set
	name, instance string

	begin     sync.Once
	warn      sync.Once
	policy    Policy
	breaker   *breaker // nil: none
	places    chan struct{}
	limiter   *rate.Limiter
	inUse     atomic.Int64
	abandoned atomic.Int64
	unchanged chan struct{} // never closed; of an operation without a breaker

	mu        sync.Mutex
	instances map[string]*Operation
	uses      int64            // counts calls of Instance
	lastUse   map[string]int64 // by instance
}

// start builds the policies when they are first needed.
func (o *Operation) start() {
	o.begin.Do(func() {
		o.policy = o.set.cfg.policyOf(o.name, o.instance)
		if !o.policy.Breaker.Off {
			o.breaker = newBreaker(o.policy.Breaker, o.breakerChanged)
			if ob := o.set.cfg.Observer; ob != nil {
				ob.BreakerChanged(o.name, o.instance, string(BreakerClosed))
			}
		}
		if n := o.policy.Bulkhead.Calls; n > 0 {
			o.places = make(chan struct{}, n)
		}
		if r := o.policy.RateLimit; r.PerSecond > 0 {
			o.limiter = rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
		}
		o.unchanged = make(chan struct{})
	})
}

// Name returns the operation's name.
func (o *Operation) Name() string { return o.name }

// Instance returns the operation with a breaker and limits of its own for one of several equal targets. The limit is
// Config.MaxInstances.
func (o *Operation) Instance(name string) *Operation {
	if o.instance != "" || name == "" {
		return o
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.instances == nil {
		o.instances, o.lastUse = make(map[string]*Operation), make(map[string]int64)
	}
	o.uses++
	o.lastUse[name] = o.uses
	in := o.instances[name]
	if in == nil {
		in = &Operation{set: o.set, name: o.name, instance: name}
		o.instances[name] = in
		for len(o.instances) > o.set.cfg.MaxInstances {
			o.dropOldest()
		}
	}
	return in
}

// dropOldest removes the instance that has not been used for the longest time.
func (o *Operation) dropOldest() {
	oldest := ""
	for name := range o.instances {
		if oldest == "" || o.lastUse[name] < o.lastUse[oldest] {
			oldest = name
		}
	}
	delete(o.instances, oldest)
	delete(o.lastUse, oldest)
}

// used returns the instances.
func (o *Operation) used() (out []*Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range o.instances {
		out = append(out, in)
	}
	return out
}

// State returns the operation's state.
func (o *Operation) State() State {
	o.start()
	s := State{Breaker: BreakerClosed}
	if b := o.breaker; b != nil {
		b.mu.Lock()
		if !time.Now().Before(b.until) {
			b.inner.State() // which ends the open state
		}
		s = b.describe()
		b.unlock()
	}
	s.Operation, s.Instance, s.Policy = o.name, o.instance, o.policy
	s.InUse, s.Abandoned = int(o.inUse.Load()), int(o.abandoned.Load())
	return s
}

// Allow implements relay.Gate: it returns how many of limit calls may start now and, if there are none, when to ask again.
func (o *Operation) Allow(limit int) (n int, again time.Duration) {
	o.start()
	if o.breaker == nil || o.set.disabled.Load() {
		return limit, 0
	}
	n, again, _ = o.breaker.free(limit)
	return n, again
}

// Changed implements relay.Gate: the channel is closed when the answer of Allow may have changed.
func (o *Operation) Changed() <-chan struct{} {
	o.start()
	if o.breaker == nil {
		return o.unchanged
	}
	_, _, changed := o.breaker.free(0)
	return changed
}

// Run calls f under the operation's policy: total time, breaker, bulkhead, retries, rate limit, timeout, in this order from the
// outside. f gets a context that ends with the attempt, and may be called several times. A panic of f is a failed attempt, and
// continues to the caller.
//
// Errors: an *Error, or the error of f if it was called once.
func (o *Operation) Run(ctx context.Context, f func(ctx context.Context) error) error {
	if o.set.disabled.Load() {
		return f(ctx)
	}
	o.start()
	return o.run(ctx, f)
}

// call is a call in progress.
type call struct {
	o        *Operation
	caller   context.Context
	began    time.Time
	attempts int
	last     time.Duration // time of the last attempt
	class    Class
	wait     time.Duration // that the dependency asks for
	err      error
}

func (o *Operation) run(caller context.Context, f func(ctx context.Context) error) error {
	c := &call{o: o, caller: caller, began: time.Now(), class: Failure}
	o.inUse.Add(1)
	defer o.inUse.Add(-1)
	var p *permit
	if o.breaker != nil {
		var retryIn time.Duration
		if p, retryIn = o.breaker.allow(); p == nil {
			s := o.State()
			c.reject(&Error{Kind: ErrOpen, RetryIn: retryIn, Err: s.Cause})
			o.called(c)
			return c.err
		}
	}
	defer func() { // also after a panic of f
		if p != nil {
			p.end(c.counted(), c.wait, c.err)
		}
		o.called(c)
	}()
	ctx, cancel := o.bounded(caller)
	defer cancel()
	if err := o.enter(ctx); err != nil {
		c.reject(err)
		return c.err
	}
	if o.places != nil {
		defer func() { <-o.places }()
	}
	c.repeat(ctx, f)
	return c.err
}

// counted is the class for the breaker.
func (c *call) counted() Class {
	if slow := c.o.policy.Breaker.SlowAfter; slow > 0 && c.last > slow && (c.class == Success || c.class == Declined) {
		return Failure
	}
	return c.class
}

// reject ends the call with an error of a limit.
func (c *call) reject(err *Error) {
	err.Operation, err.Instance, err.Attempts = c.o.name, c.o.instance, c.attempts
	c.class, c.err = Rejected, err
	if c.caller.Err() != nil {
		c.class, c.err = Cancelled, context.Cause(c.caller)
	}
}

// bounded returns the context of the whole call.
func (o *Operation) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	total := o.policy.Total
	if deadline, ok := ctx.Deadline(); ok && postrider.MessageFromContext(ctx) != nil {
		if left := time.Until(deadline) * 9 / 10; total <= 0 || left < total {
			total = max(left, 1)
		}
	}
	if total <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, total, fmt.Errorf("call took longer than %s: %w", total, ErrTimeout))
}

// enter waits for a place in the bulkhead.
func (o *Operation) enter(ctx context.Context) *Error {
	if o.places == nil {
		return nil
	}
	select {
	case o.places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(o.policy.Bulkhead.Wait)
	defer timer.Stop()
	select {
	case o.places <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return &Error{Kind: ErrAtCapacity}
}

// repeat makes attempts until one succeeds, or no other is to be made.
func (c *call) repeat(ctx context.Context, f func(ctx context.Context) error) {
	o, r := c.o, &c.o.policy.Retry
	most := o.attempts(ctx)
	for {
		if err := o.limited(ctx); err != nil {
			if c.attempts == 0 {
				c.reject(err)
				return
			}
			break // the last attempt has failed
		}
		c.attempts++
		began := time.Now()
		c.class, c.err = Failure, errBroken // unless f returns
		err := o.attempt(ctx, f)
		c.last = time.Since(began)
		c.err = err
		if c.class, c.wait = o.classify(c.caller, err); c.class != Failure && c.class != Throttled {
			return
		}
		if c.attempts >= most || c.wait > r.MaxRetryAfter {
			break
		}
		wait := max(c.backoff(), c.wait)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			break
		}
		o.retrying(c, wait)
		if !attempt.Sleep(ctx, wait) {
			break
		}
	}
	if c.caller.Err() != nil {
		c.class = Cancelled
	}
	switch {
	case c.attempts > 1:
		c.err = &Error{Operation: o.name, Instance: o.instance, Kind: ErrExhausted, Attempts: c.attempts, RetryIn: c.wait, Err: c.err}
	case c.class == Throttled:
		c.err = &Error{Operation: o.name, Instance: o.instance, Kind: ErrThrottled, Attempts: c.attempts, RetryIn: c.wait, Err: c.err}
	}
}

// errBroken is the outcome of a function that panicked or ended its goroutine.
var errBroken = errors.New("function did not return")

// attempts returns how often the function may be called.
func (o *Operation) attempts(ctx context.Context) int {
	switch {
	case ctx.Value(onceKey{}) != nil:
		return 1
	case postrider.MessageFromContext(ctx) == nil:
		return o.policy.Retry.Attempts
	}
	n := o.policy.Retry.InHandler
	if n > 1 {
		o.warn.Do(func() {
			most := postrider.MaxAttemptsFromContext(ctx)
			o.set.cfg.Logger.Info("a failing message makes several calls in each of its attempts", "operation", o.name,
				"calls", n, "attempts", most, "product", n*most)
		})
	}
	return n
}

// backoff returns the wait before the next attempt.
func (c *call) backoff() time.Duration {
	if fixed := c.o.policy.Retry.Fixed; fixed > 0 {
		return fixed
	}
	return attempt.Backoff(c.o.policy.Retry.Base, c.o.policy.Retry.Max, c.attempts)
}

// limited waits for the rate limit.
func (o *Operation) limited(ctx context.Context) *Error {
	if o.limiter == nil {
		return nil
	}
	reserved := o.limiter.Reserve()
	wait := reserved.Delay()
	if wait > o.policy.RateLimit.Wait {
		reserved.Cancel()
		return &Error{Kind: ErrRateLimited, RetryIn: wait}
	}
	if !attempt.Sleep(ctx, wait) {
		reserved.Cancel()
		return &Error{Kind: ErrRateLimited, RetryIn: wait}
	}
	return nil
}

// attempt calls the function once.
func (o *Operation) attempt(ctx context.Context, f func(ctx context.Context) error) error {
	if limit := o.policy.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("attempt took longer than %s: %w", limit, ErrTimeout))
		defer cancel()
	}
	var err error
	if o.policy.AbandonOnTimeout {
		err = o.abandonable(ctx, f)
	} else {
		err = f(ctx)
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrTimeout) && (errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		return &Error{Operation: o.name, Instance: o.instance, Kind: ErrTimeout, Attempts: 1, Err: cause}
	}
	return err
}
