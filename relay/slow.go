package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/attempt"
)

// workerSlot is what is known about the call that a worker has in progress.
type workerSlot struct {
	since time.Time // zero: there is none, or none that another worker can replace
	// slow: another worker has replaced this call's worker, which ends when the call returns.
	slow bool
}

// slowLoop keeps slow work from holding back the cursor, filling the memory, or occupying all workers.
func (r *Relay) slowLoop(ctx context.Context) {
	for attempt.Sleep(ctx, max(r.cfg.ParkAfter/4, time.Millisecond)) {
		r.mu.Lock()
		r.replaceSlow()
		now := time.Now()
		r.probeReturns(now)
		r.sched.ParkSlow(r.circuit.open(), r.heldUp(now), now)
		r.wakeAndUnlock()
	}
}

// replaceSlow starts a worker for every call that takes longer than ParkAfter, up to MaxSlowCalls, so that handlers that hang
// do not stop other keys.
func (r *Relay) replaceSlow() {
	limit := r.cfg.MaxSlowCalls
	if limit == 0 && r.tx == nil {
		limit = slowCallsPerWorker * r.cfg.Concurrency
	}
	full := false
	for c := range r.slots {
		switch {
		case c.slow || c.since.IsZero() || time.Since(c.since) < r.cfg.ParkAfter || r.life.Err() != nil:
		case r.slow < limit:
			c.slow = true
			r.slow++
			r.workers.Go(r.worker)
		default:
			full = true
		}
	}
	if full && !r.slowFull {
		r.cfg.Logger.Warn("calls do not return, and more than MaxSlowCalls of them leave fewer than Concurrency for others",
			"relay", r.cfg.Name, "slow_calls", r.slow, "longer_than", r.cfg.ParkAfter, "attempt_timeout", r.attemptTimeout())
	}
	r.slowFull = full
}

func (r *Relay) addWorker() *workerSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &workerSlot{}
	r.slots[c] = struct{}{}
	return c
}

// removeWorker removes a worker, and reports whether another worker has replaced it.
func (r *Relay) removeWorker(c *workerSlot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots, c)
	if c.slow {
		r.slow--
	}
	return c.slow
}

// slowCallsPerWorker times Concurrency is the default of Config.MaxSlowCalls.
const slowCallsPerWorker = 4
