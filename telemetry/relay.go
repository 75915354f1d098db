package telemetry

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// RelayOf says which relay an observer is for.
type RelayOf struct {
	// Store is the name of the store, as for WatchStore; Relay that of the relay.
	Store, Relay string
	// System is the kind of the broker, e.g. "nats", as a span attribute. Default: the relay has handlers.
	System string
}

// Relay returns the observer of a relay. It makes spans with a link to the context in which a message was published, so that
// the relay needs no Propagator.
func (t *Telemetry) Relay(of RelayOf) *observe.Relay { return t.relay(of, store.KindRelay) }

// The values of labels.
var (
	parkReasons = []store.ParkReason{
		store.ParkRetry, store.ParkSnoozed, store.ParkHeld, store.ParkDelayed, store.ParkSlow, store.ParkUnhandled,
		store.ParkRedriven, store.ParkReturned, store.ParkAlone, store.ParkReplayed,
	}
	deadReasons  = []string{"attempts", "undecodable", "unhandled", "rejected"}
	fetchResults = []string{"some", "none", "error"}
	fetchKinds   = []string{"fresh", "late", "due"}
	wakers       = []observe.WokenBy{observe.WokenByCommit, observe.WokenByPoll, observe.WokenByRoom}
)

// deadReason returns the label of a reason, which may be a handler's own text.
func deadReason(reason string) string {
	switch reason {
	case relay.AttemptsExhausted:
		return "attempts"
	case postrider.Undecodable:
		return "undecodable"
	case relay.NoHandler:
		return "unhandled"
	}
	return "rejected"
}

// relayInstruments are the instruments of a relay.
type relayInstruments struct {
	t  *Telemetry
	of RelayOf

	attempts             map[observe.AttemptOutcome]map[string]boundCounter // by type
	duration, batch      boundHistogram
	latency, parkLatency boundHistogram
	fetches, fetched     map[string]boundCounter
	wakeups              map[observe.WokenBy]boundCounter
	fetchTime            boundHistogram
	settleTime           boundHistogram
	parked               map[store.ParkReason]boundCounter
	dead                 map[string]boundCounter
	lost, outages        boundCounter
	leases               map[observe.LeaseChange]boundCounter
	errors               map[observe.Operation]boundCounter
	dropped              boundCounter
}

func (t *Telemetry) relay(of RelayOf, side store.Kind) *observe.Relay {
	labels := []string{of.Store, of.Relay, string(side)}
	i := &relayInstruments{
		t: t, of: of, attempts: make(map[observe.AttemptOutcome]map[string]boundCounter),
		duration:    t.histogram("postrider_relay_attempt_duration_seconds", labels...),
		batch:       t.histogram("postrider_relay_batch_messages", labels...),
		latency:     t.histogram("postrider_relay_latency_seconds", labels...),
		parkLatency: t.histogram("postrider_relay_parked_latency_seconds", labels...),
		fetches:     countersBy(t, "postrider_relay_fetches_total", labels, fetchResults),
		fetched:     countersBy(t, "postrider_relay_fetched_messages_total", labels, fetchKinds),
		wakeups:     countersBy(t, "postrider_relay_wakeups_total", labels, wakers),
		fetchTime:   t.histogram("postrider_relay_fetch_duration_seconds", labels...),
		settleTime:  t.histogram("postrider_relay_settle_duration_seconds", labels...),
		parked:      countersBy(t, "postrider_relay_parked_total", labels, parkReasons),
		dead:        t.deadLettered(of.Store, of.Relay, side),
		lost:        t.counter("postrider_relay_lost_settlements_total", labels...),
		outages:     t.counter("postrider_relay_destination_outages_total", labels...),
		leases:      countersBy(t, "postrider_relay_lease_changes_total", labels, observe.LeaseChanges),
		errors:      countersBy(t, "postrider_relay_errors_total", labels, observe.Operations),
		dropped:     t.counter("postrider_log_dropped_messages_total", of.Store),
	}
	for _, outcome := range observe.AttemptOutcomes {
		i.attempts[outcome] = t.byType("postrider_relay_attempts_total", append(labels[:3:3], string(outcome)))
	}
	return &observe.Relay{
		Fetched: i.onFetched, Attempting: i.onAttempting, Attempted: i.onAttempted, Settled: i.onSettled,
		LeasesChanged: i.onLeases, DestinationChanged: i.onDestination, Maintained: i.onMaintained,
		Failed: func(op observe.Operation, _ error) { i.errors[op].add(1) },
	}
}

// deadLettered returns the counters of a relay's or consumer's dead letters, by reason.
func (t *Telemetry) deadLettered(store, name string, side store.Kind) map[string]boundCounter {
	return countersBy(t, "postrider_dead_lettered_total", []string{store, name, string(side)}, deadReasons)
}

// otherType is the label of types that Config.Types does not list.
const otherType = "_other"

// byType returns a counter for each configured type, or one for all.
func (t *Telemetry) byType(name string, values []string) map[string]boundCounter {
	if len(t.types) == 0 {
		return map[string]boundCounter{"": t.counter(name, values...)}
	}
	out := make(map[string]boundCounter, len(t.types)+1)
	for _, typ := range and(t.types, otherType) {
		out[typ] = t.counter(name, append(values[:len(values):len(values)], "type="+typ)...)
	}
	return out
}

// typeOf returns the key of a message's type in the result of byType.
func (t *Telemetry) typeOf(m *postrider.Message, counters map[string]boundCounter) string {
	if len(t.types) == 0 {
		return ""
	}
	if _, known := counters[m.Type]; known {
		return m.Type
	}
	return otherType
}

func (i *relayInstruments) onFetched(f observe.Fetched) {
	if f.Parked {
		i.fetched["due"].add(int64(f.Messages))
		return
	}
	result := "some"
	switch {
	case f.Err != nil:
		result = "error"
	case f.Messages == 0:
		result = "none"
	}
	i.fetches[result].add(1)
	i.wakeups[f.WokenBy].add(1)
	i.fetched["fresh"].add(int64(f.Messages - f.Late))
	i.fetched["late"].add(int64(f.Late))
	i.fetchTime.record(i.t.background, f.Took.Seconds())
}

func (i *relayInstruments) onAttempted(ctx context.Context, a observe.Attempted) {
	i.duration.record(ctx, a.Took.Seconds())
	i.batch.record(i.t.background, float64(len(a.Attempts)))
	// Attempts of one outcome and type follow each other, as a rule: each run of them is counted at once.
	now, stride, begin := i.t.now(i.of.Store), 1+(len(a.Attempts)-1)/maxMeasured, 0
	for n := range a.Attempts {
		one, first := &a.Attempts[n], &a.Attempts[begin]
		if one.Outcome != first.Outcome || one.Message.Type != first.Message.Type {
			i.count(first, n-begin)
			begin = n
		}
		if n%stride == 0 {
			i.measure(ctx, one, now)
		}
	}
	if len(a.Attempts) > 0 {
		i.count(&a.Attempts[begin], len(a.Attempts)-begin)
	}
	i.endSpan(ctx, a)
}

// maxMeasured is of how many messages of a call the latency is recorded at most, evenly: OpenTelemetry takes one value at a time, and
// all would cost a tenth of a fast drain.
const maxMeasured = 128

// count counts n attempts of one outcome and type.
func (i *relayInstruments) count(one *observe.Attempt, n int) {
	counters := i.attempts[one.Outcome]
	counters[i.t.typeOf(one.Message, counters)].add(int64(n))
}

// measure records the latency of a message that was delivered.
func (i *relayInstruments) measure(ctx context.Context, one *observe.Attempt, now time.Time) {
	if one.Outcome != observe.AttemptDelivered || one.Message.CreatedAt.IsZero() {
		return
	}
	latency := max(now.Sub(one.Message.CreatedAt).Seconds(), 0)
	if one.Parked {
		i.parkLatency.record(ctx, latency)
	} else {
		i.latency.record(ctx, latency)
	}
}

func (i *relayInstruments) onSettled(s observe.Settled) {
	i.settleTime.record(i.t.background, s.Took.Seconds())
	i.lost.add(int64(s.Lost))
	for n := range s.Settlements {
		for p := range s.Settlements[n].Parked {
			if c, known := i.parked[s.Settlements[n].Parked[p].Reason]; known {
				c.add(1)
			}
		}
		for d := range s.Settlements[n].Dead {
			i.dead[deadReason(s.Settlements[n].Dead[d].Reason)].add(1)
		}
	}
}

func (i *relayInstruments) onLeases(change observe.LeaseChange, n int) {
	i.leases[change].add(int64(n))
	if change == observe.LeaseGained {
		i.t.maintains(i.of.Store, false)
	}
}

func (i *relayInstruments) onDestination(d store.Destination) {
	if d.State == store.DestinationDown {
		i.outages.add(1)
	}
}

func (i *relayInstruments) onMaintained(m store.Maintained) {
	i.dropped.add(m.Dropped)
	i.t.maintains(i.of.Store, true)
}

// maintains records that this process maintained a store's log, or that it will.
func (t *Telemetry) maintains(store string, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.upkeep[store]
	if u == nil {
		u = &upkeep{}
		t.upkeep[store] = u
	}
	if done || u.last.IsZero() {
		u.last = time.Now()
	}
}

// WatchRelay exports what a relay uses of its limits until the returned function is called. Call it after relay.New.
func (t *Telemetry) WatchRelay(storeName string, r *relay.Relay) (stop func()) {
	labels := []string{storeName, r.Name(), string(store.KindRelay)}
	return t.source(func(out *reading) {
		u := r.Usage()
		out.flag("postrider_relay_gate_closed", u.Closed, labels...)
		out.set("postrider_relay_leases", float64(u.Leases), labels...)
		out.set("postrider_relay_calls", float64(u.Calls), labels...)
		out.set("postrider_relay_calls_limit", float64(u.Concurrency), labels...)
		out.set("postrider_relay_in_flight_messages", float64(u.Messages), labels...)
		out.set("postrider_relay_in_flight_limit_messages", float64(u.MaxInFlight), labels...)
		out.set("postrider_relay_in_flight_bytes", float64(u.Bytes), labels...)
		out.set("postrider_relay_in_flight_limit_bytes", float64(u.MaxInFlightBytes), labels...)
	})
}
