package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// call is the call that a worker has in progress.
type call struct {
	since time.Time
	// slow: another worker has replaced this call's worker, which ends when the call returns.
	slow bool
}

// slowLoop keeps slow work from holding back the cursor, filling the memory, or occupying all workers.
func (r *Relay) slowLoop(ctx context.Context) {
	for sleep(ctx, max(r.cfg.ParkAfter/4, time.Millisecond)) {
		r.mu.Lock()
		r.replaceSlow()
		if r.tx == nil {
			r.parkAllSlow()
			r.parkAwaiting()
		}
		r.mu.Unlock()
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
	for c := range r.underWay {
		switch {
		case c.slow || time.Since(c.since) < r.cfg.ParkAfter || r.life.Err() != nil:
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

// replaced records that a call has returned, and reports whether another worker has replaced its worker.
func (r *Relay) replaced(c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underWay, c)
	if c.slow {
		r.slow--
	}
	return c.slow
}

func (r *Relay) parkAllSlow() {
	queues := make(map[*keyQueue]*item) // those with a single message out
	for it := range r.running {
		if it.queue != nil {
			queues[it.queue] = it
		}
		if it.onMainLine() && !it.partition.gone && time.Since(it.started) >= r.cfg.ParkAfter {
			r.parkSlow(it)
		}
	}
	for _, p := range r.partitions {
		r.parkBlocking(p, queues)
	}
}

// slowCallsPerWorker times Concurrency is the default of Config.MaxSlowCalls.
const slowCallsPerWorker = 4

// onMainLine reports whether fresh messages of the same key may be queued after it: it is a fresh message itself, or it was
// parked independently (delayed, or redriven by an operator) and does not hold its key.
func (it *item) onMainLine() bool { return !it.parked || it.queue != nil && it.run.key == "" }

// parkSlow parks a message while it is being worked on, and holds its key. If this process dies, the message is due again
// when the lease has ended; otherwise its outcome applies to the parked message.
func (r *Relay) parkSlow(it *item) {
	cause := fmt.Sprintf("attempt %d, or the wait of the messages after it, has taken more than %s", it.attempts+1, r.cfg.ParkAfter)
	pk := store.ParkOutcome{Reason: store.ParkSlow, Attempts: it.attempts, Waits: it.key != "", After: r.cfg.LeaseTTL}
	if it.key != "" {
		r.block(it, store.HeldKey{Reason: store.ParkSlow, Cause: cause, Attempts: it.attempts, After: r.cfg.LeaseTTL})
	}
	r.park(it, pk)
	it.parked, it.run = true, &run{key: it.key, left: 1}
	if it.queue != nil {
		r.parkQueued(it.queue, nil)
	}
}

// parkBlocking parks the work on a slow key that holds back the cursor of a partition or fills the memory. The first message
// in its queue must have waited for longer than ParkAfter, and one of these must hold:
//
//   - The queue is long.
//   - The key holds back the cursor, and many messages after it were read.
//   - The key holds back the cursor, and a parked message that is due waits for the cursor.
//
// It parks the message that is being worked on and those queued after it; they are read again in runs. (Parking only the
// queued messages would not do: if this process died, they would be due before the message that they follow was read again.)
func (r *Relay) parkBlocking(p *partition, running map[*keyQueue]*item) {
	if r.circuit.open() || p.leaving {
		return
	}
	much := max(r.fresh.maxMessages/16, 16)
	for _, q := range p.queues {
		it, out := q.head, running[q]
		if it == nil || out == nil || !out.onMainLine() || p.held[q.key] != nil || time.Since(it.since) < r.cfg.ParkAfter {
			continue
		}
		if q.waiting >= much || (len(p.early) > 0 || p.tracker.open() >= much) && q.holdsBack(out) {
			r.parkSlow(out)
		}
	}
}

// holdsBack reports whether the first unsettled message is the one that is out, or one queued after it.
func (q *keyQueue) holdsBack(out *item) bool {
	begin := q.partition.tracker.begin()
	if out.ticket == begin {
		return true
	}
	for it := q.head; it != nil; it = it.next {
		if it.ticket == begin {
			return true
		}
	}
	return false
}
