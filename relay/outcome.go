package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// The reasons for which a relay dead-letters or discards a message itself.
const (
	AttemptsExhausted = "attempts exhausted"
	NoHandler         = "no handler"    // for longer than Config.UnhandledFor
	IgnoredError      = "ignored error" // discarded because of Policy.Discard
)

// The waits of unhandled messages: doubling between these bounds.
const (
	unhandledMin = 10 * time.Second
	unhandledMax = 5 * time.Minute
)

// complete processes the outcomes of one call; nil results mean that all succeeded.
func (r *Relay) complete(batch []*item, results []result, probe bool, observed *observedCall) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	var outcome func(i int, afterDead bool) schedule.Outcome
	if results != nil {
		r.markCut(batch, results)
		markUnfinished(batch, results)
		outcome = func(i int, afterDead bool) schedule.Outcome {
			o := r.outcome(batch, results, i, afterDead)
			observed.outcome(i, &results[i], o)
			return o
		}
	} else {
		observed.delivered(len(batch))
	}
	r.tellCircuit(batch, results, probe) // after what marks what it skips; before outcome, for which it marks what is unavailable
	r.startContinued(batch, results, r.sched.Complete(batch, outcome), observed)
	r.wakeReaders()
}

// outcome says what becomes of a message of a call.
func (r *Relay) outcome(batch []*item, results []result, i int, afterDead bool) schedule.Outcome {
	v := &results[i]
	if !v.failed {
		return schedule.Outcome{Kind: schedule.Delivered}
	}
	// A handler knows nothing of a batch: an error of its own that matches ErrPredecessorFailed or is unavailable is the
	// message's failure.
	follows := v.follows && i > 0 && schedule.SameQueue(batch[i-1], batch[i])
	notItsFault := r.publish != nil && (v.is(postrider.BrokerUnavailable) || follows)
	// After a dead letter, messages that report an error are requeued, uncounted.
	final := v.outcome.Kind == postrider.DeadLettered || v.outcome.Kind == postrider.Discarded || v.discarded
	if v.cut || notItsFault || afterDead && !final {
		return schedule.Outcome{Kind: schedule.Unattempted}
	}
	return r.failed(batch[i], v)
}

// wakeReaders wakes the loops that read if there is room again.
func (r *Relay) wakeReaders() {
	if r.wantFetch() {
		signal(r.fetchWake)
	}
	if r.dueFull && r.sched.Parked.Messages <= r.sched.Parked.MaxMessages/2 {
		signal(r.dueWake)
	}
}

// markCut marks failures that only mean that the call was cut off by this process, because it stops or lost a lease: they are
// not attempts, whatever the error says.
func (r *Relay) markCut(batch []*item, results []result) {
	cut := r.calls.Err() != nil
	for _, it := range batch {
		cut = cut || it.Message.partition.ctx.Err() != nil
	}
	for i := range results {
		v := &results[i]
		v.cut = cut && v.failed && (v.canceled || v.outcome.Kind == postrider.Retried)
	}
}

// tellCircuit tells the circuit what a call says about the destination as a whole. It marks messages that got no answer as
// unavailable, so that no attempt is counted for them.
//
//	any message Unavailable                          the circuit opens
//	no message answered, the time of the call over   the circuit opens, unless another call was answered meanwhile
//	the call broke with messages of several keys     the circuit opens; probes find the message that breaks it
//	any other outcome, a failure too                 an answer: the circuit closes
func (r *Relay) tellCircuit(batch []*item, results []result, probe bool) {
	if r.publish == nil {
		return
	}
	answered, silent, broken, units := 0, 0, 0, 0
	limit := r.attemptTimeout()
	over := limit > 0 && time.Since(batch[0].Started) >= limit
	for i, it := range batch {
		var v result
		if results != nil {
			v = results[i]
		}
		if it.Message.err != nil || v.cut || v.follows || it.Unfinished { // says nothing about the destination
			continue
		}
		if i == 0 || !schedule.SameQueue(batch[i-1], it) {
			units++
		}
		switch {
		case v.is(postrider.BrokerUnavailable):
		case v.is(postrider.Retried) && v.broken:
			broken++
		case over && v.timedOut && !v.is(postrider.DeadLettered) && !v.is(postrider.Discarded):
			silent++
		default:
			answered++
		}
	}
	if answered > 0 {
		r.answered = time.Now()
	}
	if answered == 0 && (broken > 0 && units > 1 || silent > 0 && !r.answered.After(batch[0].Started)) {
		for i := range results {
			if v := &results[i]; v.broken || v.timedOut && !v.cut && !v.follows {
				v.outcome.Kind = postrider.BrokerUnavailable
			}
		}
	}
	down := slices.IndexFunc(results, func(v result) bool { return !v.cut && !v.follows && v.is(postrider.BrokerUnavailable) })
	if probe && !r.circuit.probes(batch[0].Started) { // late: it was counted when another followed it
		r.sched.MoveLast(batch[0])
		probe = false
	}
	switch stale := r.circuit.open() && !probe; {
	case down < 0 && answered+broken > 0:
		r.recovered()
	case stale: // it was sent before the circuit opened
	case down >= 0:
		r.tripped(results[down].cause, results[down].outcome.After)
		if probe {
			r.sched.MoveLast(batch[0])
			r.probeWithAnother()
		}
	case probe:
		r.circuit.abandoned()
		if batch[0].Unfinished {
			r.probeWithAnother()
		}
	}
}

// failed says what becomes of a message that failed:
//
//	its error, see postrider.OutcomeOf      schedule.Kind   recorded as
//	Dead                                    Dead            dead letter
//	Discard, or one that a Policy ignores   Discarded       discarded dead letter
//	Snooze; Unavailable of a handler        Postponed       parked, no attempt counted
//	no handler takes it                     Postponed       parked, no attempt counted; after UnhandledFor, dead letter
//	any other                               Postponed       parked, an attempt counted; a dead letter if it was the last
func (r *Relay) failed(it *item, v *result) schedule.Outcome {
	m, o := &it.Message, schedule.Outcome{Kind: schedule.Postponed, After: v.outcome.After}
	o.Attempts, o.Cause = it.Attempts, v.cause
	switch {
	case v.unhandled:
		if limit := r.cfg.UnhandledFor; limit > 0 && m.reason == store.ParkUnhandled && m.parkedFor >= limit {
			return r.dead(it, o, NoHandler)
		}
		o.Reason, o.After = string(store.ParkUnhandled), min(max(m.parkedFor, unhandledMin), unhandledMax)
	case v.outcome.Kind == postrider.DeadLettered:
		o.Failed, o.Attempts = true, it.Attempts+1
		return r.dead(it, o, v.outcome.Reason)
	case v.outcome.Kind == postrider.Discarded:
		o.Kind, o.Attempts, o.Reason = schedule.Discarded, it.Attempts+1, v.outcome.Reason
	case v.discarded:
		o.Kind, o.Failed, o.Attempts, o.Reason = schedule.Discarded, true, it.Attempts+1, IgnoredError
	case v.outcome.Kind == postrider.Snoozed:
		o.Reason = string(store.ParkSnoozed)
	case v.outcome.Kind == postrider.BrokerUnavailable: // reported by a handler
		o.Reason, o.After = string(store.ParkSnoozed), cmp.Or(v.outcome.After, r.cfg.UnavailableWait)
	default:
		o.Failed, o.Attempts, o.Reason = true, it.Attempts+1, string(store.ParkRetry)
		if o.Attempts >= r.maxAttempts(m.Message) {
			return r.dead(it, o, AttemptsExhausted)
		}
		if o.After == 0 {
			o.After = r.backoff(o.Attempts)
		}
	}
	r.logFailure(it, &o, v)
	return o
}

func (r *Relay) dead(it *item, o schedule.Outcome, reason string) schedule.Outcome {
	o.Kind, o.Reason = schedule.Dead, reason
	fields := append([]any{"relay", r.cfg.Name}, attempt.LogFields(it.Message.Message, it.Key)...)
	r.cfg.Logger.Error("message is dead", append(fields, "attempts", o.Attempts, "reason", reason, "cause", attempt.FirstLine(o.Cause))...)
	return o
}

func (r *Relay) backoff(attempts int) time.Duration {
	return attempt.Backoff(r.cfg.BackoffBase, r.cfg.BackoffMax, attempts)
}
