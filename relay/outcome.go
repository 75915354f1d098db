package relay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// The waits of unhandled messages: doubling between these bounds.
const (
	unhandledMin = 10 * time.Second
	unhandledMax = 5 * time.Minute
)

// complete processes the outcomes of one call; nil results mean that all succeeded. Messages of one queue are adjacent in the
// batch, in order.
func (r *Relay) complete(batch []*item, results []result, probe bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(batch) == 1 {
		delete(r.running, batch[0])
	}
	r.returned(batch)
	if results != nil {
		r.markCut(batch, results)
	}
	r.judge(batch, results, probe)
	for i := 0; i < len(batch); {
		j := i + 1
		for j < len(batch) && batch[j].queue != nil && batch[j].queue == batch[i].queue {
			j++
		}
		var part []result
		if results != nil {
			part = results[i:j]
		}
		r.completeQueue(batch[i:j], part)
		i = j
	}
	r.wakeWaiters()
}

// wakeWaiters wakes what waits for calls to return.
func (r *Relay) wakeWaiters() {
	if r.sched.len() > 0 || r.life.Err() != nil {
		r.changed.Broadcast()
	}
	if r.wantFetch() {
		signal(r.fetchWake)
	}
	if r.dueFull && r.parked.messages <= r.parked.maxMessages/2 {
		signal(r.dueWake)
	}
}

// markCut marks failures that only mean that the call was cut off by this process, because it stops or lost a lease: they are
// not attempts, whatever the error says.
func (r *Relay) markCut(batch []*item, results []result) {
	cut := r.calls.Err() != nil
	for _, it := range batch {
		cut = cut || it.partition.ctx.Err() != nil
	}
	for i := range results {
		v := &results[i]
		v.cut = cut && v.failed && (v.canceled || v.outcome.Kind == postrider.Retried)
	}
}

// judge tells the circuit what a call says about the destination as a whole. It marks messages that got no answer as
// unavailable, so that no attempt is counted for them.
//
//	any message Unavailable                          the circuit opens
//	no message answered, the time of the call over   the circuit opens, unless another call was answered meanwhile
//	the call broke with messages of several keys     the circuit opens; probes find the message that breaks it
//	any other outcome, a failure too                 an answer: the circuit closes
func (r *Relay) judge(batch []*item, results []result, probe bool) {
	if r.publish == nil {
		return
	}
	answered, silent, broken, units := 0, 0, 0, 0
	limit := r.attemptTimeout()
	over := limit > 0 && time.Since(batch[0].started) >= limit
	for i, it := range batch {
		var v result
		if results != nil {
			v = results[i]
		}
		if it.err != nil || v.cut || v.follows { // says nothing about the destination
			continue
		}
		if it.queue == nil || i == 0 || it.queue != batch[i-1].queue {
			units++
		}
		switch {
		case v.is(postrider.BrokerUnavailable):
		case v.is(postrider.Retried) && v.broken:
			broken++
		case over && v.timedOut && !v.is(postrider.DeadLettered):
			silent++
		default:
			answered++
		}
	}
	if answered > 0 {
		r.answered = time.Now()
	}
	if answered == 0 && (broken > 0 && units > 1 || silent > 0 && !r.answered.After(batch[0].started)) {
		for i := range results {
			if v := &results[i]; v.broken || v.timedOut && !v.cut && !v.follows {
				v.outcome.Kind = postrider.BrokerUnavailable
			}
		}
	}
	down := slices.IndexFunc(results, func(v result) bool { return !v.cut && !v.follows && v.is(postrider.BrokerUnavailable) })
	switch stale := r.circuit.open() && !probe; {
	case down < 0 && answered+broken > 0:
		r.recovered()
	case stale: // it was sent before the circuit opened
	case down >= 0:
		r.tripped(results[down].cause)
		if probe {
			r.probeWithAnother(batch[0])
		}
	case probe:
		r.circuit.abandoned()
	}
}

// completeQueue processes the outcomes of messages of one key, or of one message without a key.
func (r *Relay) completeQueue(items []*item, results []result) {
	p, q := items[0].partition, items[0].queue
	p.out -= len(items)
	if q != nil {
		q.running, q.out = false, 0
	}
	if p.gone {
		for _, it := range items {
			r.drop(it)
		}
		r.closeQueue(p, q)
		return
	}
	deadBefore := false // a message was dead-lettered: later ones that report an error are requeued, uncounted
	for i, it := range items {
		if results == nil || !results[i].failed {
			r.delivered(it)
			continue
		}
		v := &results[i]
		// A handler knows nothing of a batch: an error of its own that matches ErrPredecessorFailed or is unavailable is the
		// message's failure.
		passed := r.publish != nil && (v.is(postrider.BrokerUnavailable) || v.follows && i > 0)
		if v.cut || passed || deadBefore && v.outcome.Kind != postrider.DeadLettered {
			r.requeue(q, items[i:])
			break
		}
		if stopped := r.failed(it, v); stopped {
			r.parkQueued(q, items[i+1:])
			break
		}
		deadBefore = true
	}
	r.closeQueue(p, q)
	r.finishLeaving(p)
}

// finishLeaving unloads a partition that is being handed over once none of its calls is in progress.
func (r *Relay) finishLeaving(p *partition) {
	if p.leaving && p.out == 0 {
		r.unload(p)
		signal(r.leaseWake)
	}
}

// closeQueue makes the queue ready for its next messages, or removes it; a queue with an unrecorded dead letter stays as it
// is.
func (r *Relay) closeQueue(p *partition, q *keyQueue) {
	switch {
	case q == nil || q.deaths > 0 || p.leaving:
	case q.head == nil:
		delete(p.queues, q.key)
	case p.decides(q.key):
		r.unloadQueue(p, q)
	default:
		r.sched.ready(unit{queue: q})
	}
}

// requeue returns messages that were not attempted to the front of their queue, in order.
func (r *Relay) requeue(q *keyQueue, items []*item) {
	if q != nil {
		for i := len(items) - 1; i >= 0; i-- {
			q.pushFront(items[i])
		}
		return
	}
	if p := items[0].partition; p.leaving {
		p.withdrawn = append(p.withdrawn, items[0])
		return
	}
	r.sched.ready(unit{item: items[0]})
}

// delivered records a success.
func (r *Relay) delivered(it *item) {
	p := it.partition
	if it.parked {
		p.pending.Removed = append(p.pending.Removed, it.seq)
	} else {
		p.pending.Delivered = append(p.pending.Delivered, it.seq)
	}
	p.tracker.deliver(it.ticket)
	p.delivered = max(p.delivered, it.ticket+1)
	r.recorded(p)
	r.ended(it)
}

// ended drops a finished item, and asks for its held key to be released if it was the last of its run.
func (r *Relay) ended(it *item) {
	if it.run != nil {
		it.run.left--
		if h := it.partition.held[it.run.key]; it.run.left == 0 && it.run.key != "" && h != nil {
			r.release(it.partition, it.run.key, h)
		}
	}
	r.drop(it)
}

// failed records a failure and reports whether it blocks the message's key.
func (r *Relay) failed(it *item, v *result) (stops bool) {
	p, o, attempts := it.partition, v.outcome, it.attempts+1
	reason, after, cause := store.ParkRetry, o.After, v.cause
	switch {
	case v.unhandled:
		if limit := r.cfg.UnhandledFor; limit > 0 && it.reason == store.ParkUnhandled && it.parkedFor >= limit {
			return r.dead(it, "no handler", cause, it.attempts)
		}
		reason, attempts = store.ParkUnhandled, it.attempts
		after = min(max(it.parkedFor, unhandledMin), unhandledMax)
		if it.reason == store.ParkUnhandled {
			cause = "" // it was reported before
		}
	case o.Kind == postrider.DeadLettered:
		p.pending.FailedCount++
		return r.dead(it, o.Reason, cause, attempts)
	case o.Kind == postrider.Snoozed:
		reason, attempts = store.ParkSnoozed, it.attempts
	case o.Kind == postrider.BrokerUnavailable: // reported by a handler
		reason, attempts, after = store.ParkSnoozed, it.attempts, r.cfg.UnavailableWait
	default:
		p.pending.FailedCount++
		if attempts >= r.cfg.MaxAttempts {
			return r.dead(it, "attempts exhausted", cause, attempts)
		}
		if after == 0 {
			after = r.backoff(attempts)
		}
	}
	r.logFailure(it, it.attempts+1, reason, after, v, cause == "")
	pk := store.ParkOutcome{Reason: reason, After: after, Attempts: attempts, Cause: cause}
	if it.key != "" {
		pk.Waits, pk.After = true, 0
		r.block(it, store.HeldKey{Reason: reason, Cause: cause, Attempts: attempts, After: after})
	}
	r.park(it, pk)
	r.drop(it)
	return it.queue != nil
}

// dead moves a message to the dead letters and reports whether that blocks its key.
func (r *Relay) dead(it *item, reason, cause string, attempts int) (stops bool) {
	p := it.partition
	if !it.parked {
		p.park(it)
	}
	p.busy[it.seq] = struct{}{}
	p.pending.Dead = append(p.pending.Dead, store.DeadOutcome{
		Sequence: it.seq, Key: it.key, FromLog: !it.parked, Reason: reason, Cause: cause, Attempts: attempts,
	})
	r.recorded(p)
	r.cfg.Logger.Error("message is dead", "relay", r.cfg.Name, "message", it.msg.ID, "type", it.msg.Type, "key", it.key,
		"tenant", it.msg.Tenant, "attempts", attempts, "reason", reason, "cause", firstLine(cause))
	if it.key != "" && r.cfg.OnDead == HoldKey {
		r.block(it, store.HeldKey{Reason: store.ParkDead, Cause: reason + ": " + cause, Attempts: attempts, UntilDecided: true})
		r.drop(it)
		return true
	}
	if it.queue != nil && !it.queue.isTxQueue() { // of a transaction queue, the next transaction records it
		it.queue.deaths++
	}
	r.ended(it)
	return false
}

// block records that a message blocks its key.
func (r *Relay) block(it *item, h store.HeldKey) {
	p := it.partition
	h.Key, h.Sequence = it.key, it.seq
	r.holdKey(p, h.Key).blocks++
	p.pending.Held = append(p.pending.Held, h)
	r.recorded(p)
}

// park parks a message, or records what has changed about a parked one.
func (r *Relay) park(it *item, pk store.ParkOutcome) {
	p := it.partition
	pk.Sequence, pk.Key, pk.FromLog = it.seq, it.key, !it.parked
	if !it.parked {
		p.park(it)
	}
	if pk.Waits {
		r.holdKey(p, pk.Key).unrecorded++
	} else {
		p.busy[it.seq] = struct{}{}
	}
	p.pending.Parked = append(p.pending.Parked, pk)
	r.recorded(p)
}

// parkQueued parks everything after a failed message: what was out with it, and what waits in its queue.
func (r *Relay) parkQueued(q *keyQueue, out []*item) {
	if q == nil {
		return
	}
	for _, it := range out {
		r.parkQueuedMessage(it)
	}
	for q.head != nil {
		r.parkQueuedMessage(q.pop())
	}
}

func (r *Relay) parkQueuedMessage(it *item) {
	if !it.parked || it.run.key == "" { // otherwise it is parked for its key already
		r.park(it, store.ParkOutcome{Reason: store.ParkHeld, Waits: true, Attempts: it.attempts})
	}
	r.drop(it)
}

func (r *Relay) backoff(attempts int) time.Duration {
	return Backoff(r.cfg.BackoffBase, r.cfg.BackoffMax, attempts)
}

// Backoff draws the wait after the nth failed attempt, at random between 1 ms and min(limit, base·2^(n−1)): full jitter, as
// in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
func Backoff(base, limit time.Duration, attempts int) time.Duration {
	if shift := attempts - 1; shift < 40 {
		if d := base << shift; d > 0 {
			limit = min(limit, d)
		}
	}
	return max(rand.N(min(limit, math.MaxInt64-1)+1), time.Millisecond)
}

// CauseText is the text of an error that operators read; it is empty only for nil.
func CauseText(err error) string {
	if err == nil {
		return ""
	}
	if text := err.Error(); text != "" {
		return text
	}
	return fmt.Sprintf("error of type %T without a text", err)
}

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}
