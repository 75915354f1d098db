package resilience

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerState is the state of a breaker.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"
	BreakerOpen     BreakerState = "open"
	BreakerHalfOpen BreakerState = "half_open"
)

// BreakerStates lists all of them.
var BreakerStates = []BreakerState{BreakerClosed, BreakerOpen, BreakerHalfOpen}

// breaker is a gobreaker with what that lacks (docs/adr/0019-gobreaker.md): a window of the last n calls, a wait that doubles, a
// dependency that says how long it is unavailable, and probes that make room for others.
type breaker struct {
	cfg    Breaker
	inner  *gobreaker.TwoStepCircuitBreaker[struct{}]
	notify func(from, to BreakerState, s State) // called without locks

	mu         sync.Mutex
	state      BreakerState
	since      time.Time
	generation int       // of states; a call that began in another one is not counted
	last       lastCalls // with WindowCalls
	calls      int       // in the window, when a call failed last; failures of them had failed
	failures   int
	wait       time.Duration // of the last time that it opened
	until      time.Time     // it is open until then
	cause      error         // of the last failure
	changed    chan struct{} // closed when the answer of free may have changed
	changes    []func()      // calls of notify that are due
}

// Results of a call, for the inner breaker.
var (
	errFailed   = errors.New("failed")
	errExcluded = errors.New("not counted")
)

func newBreaker(cfg Breaker, notify func(from, to BreakerState, s State)) *breaker {
	b := &breaker{cfg: cfg, notify: notify, state: BreakerClosed, since: time.Now(), changed: make(chan struct{})}
	b.last.size = cfg.WindowCalls
	b.inner = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   uint32(cfg.Probes), // positive
		Interval:      cfg.WindowTime,
		BucketPeriod:  cfg.WindowTime / 10,
		Timeout:       1, // until says when it ends
		ReadyToTrip:   b.tripped,
		OnStateChange: func(_ string, _, to gobreaker.State) { b.enter(stateOf(to)) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errExcluded) },
	})
	return b
}

func stateOf(s gobreaker.State) BreakerState {
	switch s {
	case gobreaker.StateOpen:
		return BreakerOpen
	case gobreaker.StateHalfOpen:
		return BreakerHalfOpen
	default:
		return BreakerClosed
	}
}

// tripped reports whether enough of the calls in the window have failed.
func (b *breaker) tripped(c gobreaker.Counts) bool {
	b.failures, b.calls = int(c.TotalFailures), int(c.TotalFailures+c.TotalSuccesses)
	if b.cfg.WindowTime == 0 {
		b.failures, b.calls = b.last.failures, len(b.last.failed)
	}
	return b.calls >= b.cfg.MinCalls && float64(b.failures) >= b.cfg.FailureRate*float64(b.calls)
}

// enter is called by the inner breaker when its state changes.
func (b *breaker) enter(to BreakerState) {
	from, now := b.state, time.Now()
	b.state, b.since = to, now
	b.generation++
	if to == BreakerOpen {
		b.wait = min(2*b.wait, b.cfg.OpenMax)
		if from == BreakerClosed {
			b.wait = b.cfg.OpenFor
		}
		b.until = now.Add(b.wait - b.wait/5 + rand.N(b.wait*2/5+1))
	}
	b.last = lastCalls{size: b.cfg.WindowCalls}
	b.signal()
	s := State{Breaker: to, Since: now, Cause: b.cause, Calls: b.calls, Failures: b.failures, RetryIn: max(b.until.Sub(now), 0)}
	b.changes = append(b.changes, func() { b.notify(from, to, s) })
}

// signal says that the answer of free may have changed.
func (b *breaker) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// unlock ends an operation on the breaker, and reports the changes of its state.
func (b *breaker) unlock() {
	changes := b.changes
	b.changes = nil
	b.mu.Unlock()
	for _, f := range changes {
		f()
	}
}

// permit is a call that the breaker has let through.
type permit struct {
	b          *breaker
	done       func(error)
	generation int
	probe      bool
	timeout    *time.Timer
	ended      bool
}

// allow lets a call through, or says in how long one may be, 0 if that is not known.
func (b *breaker) allow() (p *permit, retryIn time.Duration) {
	b.mu.Lock()
	defer b.unlock()
	if left := time.Until(b.until); left > 0 {
		return nil, left
	}
	done, err := b.inner.Allow()
	if err != nil { // as many probes as there may be are in progress
		return nil, 0
	}
	p = &permit{b: b, done: done, generation: b.generation, probe: b.state == BreakerHalfOpen}
	if p.probe {
		p.timeout = time.AfterFunc(b.cfg.ProbeTimeout, func() { p.end(Cancelled, 0, nil) })
	}
	return p, 0
}

// end records the outcome of the call. Only the first time counts.
func (p *permit) end(c Class, wait time.Duration, cause error) {
	b := p.b
	b.mu.Lock()
	defer b.unlock()
	if p.ended {
		return
	}
	p.ended = true
	if p.timeout != nil {
		p.timeout.Stop()
	}
	var result error
	switch c {
	case Success:
	case Declined:
		if !p.probe {
			result = errExcluded
		}
	case Failure, Throttled:
		result = errFailed
	default:
		result = errExcluded
	}
	current := p.generation == b.generation
	if current && !errors.Is(result, errExcluded) {
		b.last.add(result != nil)
	}
	if current && result != nil && !errors.Is(result, errExcluded) {
		b.cause = cause
	}
	if current { // the inner breaker, whose own wait is over at once, would become half-open with the outcome of an earlier call
		p.done(result)
	}
	if until := time.Now().Add(wait); c == Throttled && b.state == BreakerOpen && until.After(b.until) {
		b.until = until
	}
	if b.state == BreakerHalfOpen {
		b.signal()
	}
}

// free returns how many of max calls may start now, and when to ask again if there are none and it is known.
func (b *breaker) free(limit int) (n int, again time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.unlock()
	if left := time.Until(b.until); left > 0 {
		return 0, left, b.changed
	}
	if b.inner.State() == gobreaker.StateHalfOpen {
		c := b.inner.Counts()
		limit = min(limit, max(b.cfg.Probes-int(c.Requests-c.TotalExclusions), 0))
	}
	return limit, 0, b.changed
}

// describe returns the state, without what a breaker does not know.
func (b *breaker) describe() State {
	s := State{Breaker: b.state, Since: b.since, Cause: b.cause, Calls: len(b.last.failed), Failures: b.last.failures}
	if b.state == BreakerClosed {
		s.Cause = nil
	}
	if b.cfg.WindowTime > 0 {
		c := b.inner.Counts()
		s.Calls, s.Failures = int(c.TotalSuccesses+c.TotalFailures), int(c.TotalFailures)
	}
	s.RetryIn = max(time.Until(b.until), 0)
	return s
}

// lastCalls is a window of the last calls.
type lastCalls struct {
	size     int
	failed   []bool
	next     int // the oldest one, once there are as many as the size
	failures int
}

func (l *lastCalls) add(failed bool) {
	switch {
	case l.size == 0:
		return
	case len(l.failed) < l.size:
		l.failed = append(l.failed, failed)
	default:
		if l.failed[l.next] {
			l.failures--
		}
		l.failed[l.next] = failed
		l.next = (l.next + 1) % l.size
	}
	if failed {
		l.failures++
	}
}
