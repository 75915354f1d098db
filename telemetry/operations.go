package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Operations is an observer for package resilience: resilience.Config{Observer: t.Operations()}.
type Operations struct {
	t *Telemetry

	mu     sync.Mutex
	called map[target]*callInstruments
	states map[target]string
}

// target is an operation, or one of the targets that it is called for.
type target struct{ operation, name string }

// callInstruments are the instruments of a target.
type callInstruments struct {
	results  map[string]boundCounter
	attempts map[string]boundCounter
	retries  boundCounter
	duration boundHistogram
	changes  map[string]boundCounter
}

// maxTargets bounds the labels of targets; others count as "_other". OpenTelemetry keeps 2,000 series of an instrument, and a target has
// up to 8 of them.
const maxTargets = 200

// The values of labels, as in package resilience.
var (
	callResults   = []string{"success", "failure", "throttled", "declined", "cancelled", "open", "at_capacity", "rate_limited"}
	callAttempts  = []string{"first", "retried", "exhausted", "not_retryable"}
	breakerStates = []string{"closed", "open", "half_open"}
)

// Operations returns an observer for the operations of a process.
func (t *Telemetry) Operations() *Operations {
	o := &Operations{t: t, called: make(map[target]*callInstruments), states: make(map[target]string)}
	t.source(o.export)
	return o
}

// of returns the instruments of a target.
func (o *Operations) of(of target) (target, *callInstruments) {
	if i := o.called[of]; i != nil {
		return of, i
	}
	if len(o.called) >= maxTargets {
		of = target{"_other", ""}
		if i := o.called[of]; i != nil {
			return of, i
		}
	}
	labels := []string{of.operation, of.name}
	i := &callInstruments{
		results:  countersBy(o.t, "postrider_calls_total", labels, callResults),
		attempts: countersBy(o.t, "postrider_retry_calls_total", labels, callAttempts),
		retries:  o.t.counter("postrider_retries_total", labels...),
		duration: o.t.histogram("postrider_call_duration_seconds", labels...),
		changes:  countersBy(o.t, "postrider_breaker_changes_total", labels, breakerStates),
	}
	o.called[of] = i
	return of, i
}

// Called counts a call.
func (o *Operations) Called(ctx context.Context, operation, instance, result string, attempts int, took time.Duration) {
	o.mu.Lock()
	_, i := o.of(target{operation, instance})
	o.mu.Unlock()
	if !slices.Contains(callResults, result) {
		return
	}
	i.results[result].add(1)
	i.duration.record(ctx, took.Seconds())
	if attempts > 1 {
		i.retries.add(int64(attempts - 1))
	}
	switch {
	case result == "success" && attempts <= 1:
		i.attempts["first"].add(1)
	case result == "success":
		i.attempts["retried"].add(1)
	case result == "declined":
		i.attempts["not_retryable"].add(1)
	case result == "failure", result == "throttled":
		i.attempts["exhausted"].add(1)
	}
}

// BreakerChanged counts a change of a breaker, and exports its state from now on.
func (o *Operations) BreakerChanged(operation, instance, state string) {
	if !slices.Contains(breakerStates, state) {
		return
	}
	o.mu.Lock()
	of, i := o.of(target{operation, instance})
	_, known := o.states[of]
	o.states[of] = state
	o.mu.Unlock()
	if known {
		i.changes[state].add(1)
	}
}

// export exports the states of breakers.
func (o *Operations) export(r *reading) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for of, is := range o.states {
		for _, state := range breakerStates {
			r.flag("postrider_breaker_state", is == state, of.operation, of.name, state)
		}
	}
}
