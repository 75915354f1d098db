package telemetry

import (
	"context"
	"time"

	"sync"

	"github.com/postrider/postrider/store"
)

// Store is what telemetry reads of a store.
type Store interface {
	store.StatusReader
	SagaDefinitions(ctx context.Context) ([]store.SagaDefinition, error)
	CountSagas(ctx context.Context) ([]store.SagaCount, error)
}

// StoreOf says which store to watch.
type StoreOf struct {
	// Name is the label store. Required.
	Name string
	// System is the kind of the database, e.g. "postgres".
	System string
	Store  Store
	// Every is how long a reading is used again, whoever asks. Default: 10 s.
	Every time.Duration
	// Target is the longest time that a message should wait, by relay or consumer; Targets "" is that of all others. Default: 1
	// minute.
	Targets map[string]time.Duration
	// Path is a file or folder in the file system with the database's data, if this process can see it. Default: none, and free
	// space is not exported.
	Path string
}

// DefaultTarget is the longest time that a message should wait, unless configured.
const DefaultTarget = time.Minute

const (
	defaultEvery = 10 * time.Second
	// readTimeout limits a reading; an export waits for it for waitFor. A reading that is older than Every and staleAfter is not
	// exported.
	readTimeout = 5 * time.Second
	waitFor     = 900 * time.Millisecond
	staleAfter  = 5 * time.Second
	// maxRelays bounds the relays and consumers of a store, by name, whose state is exported.
	maxRelays = 200
	// skewReadings is how many readings the clock skew is chosen from.
	skewReadings = 5
)

// state is what was read of a store.
type state struct {
	at        time.Time
	err       error
	status    store.Status
	consumers []store.ConsumerStatus

	definitions []store.SagaDefinition
	sagas       []store.SagaCount
}

// skew is a measured difference of clocks, and by how much it may be wrong.
type skew struct{ offset, error time.Duration }

// watch reads the state of a store, at most once per Every however many ask.
type watch struct {
	t        *Telemetry
	of       StoreOf
	duration boundHistogram

	mu      sync.Mutex
	last    *state
	running chan struct{} // closed when the reading in progress ends
	skews   []skew
}

// WatchStore exports the state of a store until the returned function is called. It reads it when somebody asks for metrics, at
// most once per Every.
func (t *Telemetry) WatchStore(of StoreOf) (stop func()) {
	if of.Every <= 0 {
		of.Every = defaultEvery
	}
	w := &watch{t: t, of: of, duration: t.histogram("postrider_store_read_duration_seconds", of.Name)}
	t.mu.Lock()
	t.readings[of.Name] = w
	t.mu.Unlock()
	unsource := t.source(w.export)
	return func() {
		unsource()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.readings[of.Name] == w {
			delete(t.readings, of.Name)
		}
	}
}

// AuditFailed returns the function for admin.Config.AuditFailed.
func (t *Telemetry) AuditFailed(storeName string) func(error) {
	failures := t.counter("postrider_audit_failures_total", storeName)
	return func(error) { failures.add(1) }
}

// now returns the time on a store's clock, as far as is known.
func (t *Telemetry) now(name string) time.Time {
	t.mu.Lock()
	w := t.readings[name]
	t.mu.Unlock()
	if w == nil {
		return time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(-w.skew().offset)
}

// skew returns the most exact of the last measurements.
func (w *watch) skew() (best skew) {
	for i, s := range w.skews {
		if i == 0 || s.error < best.error {
			best = s
		}
	}
	return best
}

// current returns the state, nil if none could be read in time.
func (w *watch) current() *state {
	w.mu.Lock()
	if w.last == nil || time.Since(w.last.at) >= w.of.Every {
		if w.running == nil {
			w.running = make(chan struct{})
			go w.read(w.running)
		}
		running := w.running
		w.mu.Unlock()
		timer := time.NewTimer(waitFor)
		defer timer.Stop()
		select {
		case <-running:
		case <-timer.C:
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if w.last == nil || w.last.err != nil || time.Since(w.last.at) >= w.of.Every+staleAfter {
		return nil
	}
	return w.last
}

// read reads the state.
func (w *watch) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(w.t.background, readTimeout)
	defer cancel()
	began := time.Now()
	s := &state{}
	s.status, s.err = w.of.Store.Status(ctx)
	answered := time.Now()
	if s.err == nil {
		s.consumers, s.err = w.of.Store.Consumers(ctx)
	}
	if s.err == nil {
		s.readSagas(ctx, w.of.Store)
	}
	s.at = time.Now()
	w.duration.record(w.t.background, s.at.Sub(began).Seconds())
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err == nil {
		half := answered.Sub(began) / 2
		w.skews = append(w.skews, skew{began.Add(half).Sub(s.status.Now), half})
		w.skews = w.skews[max(len(w.skews)-skewReadings, 0):]
	}
	w.last, w.running = s, nil
	close(done)
}

// export exports the state, and the free space.
func (w *watch) export(r *reading) {
	name := w.of.Name
	if free, size, ok := diskSpace(w.of.Path); ok {
		r.set("postrider_store_free_bytes", free, name)
		r.set("postrider_store_size_bytes", size, name)
	}
	s := w.current()
	r.flag("postrider_store_up", s != nil, name, w.of.System)
	if s == nil {
		return
	}
	w.mu.Lock()
	clock := w.skew()
	w.mu.Unlock()
	r.set("postrider_clock_skew_seconds", clock.offset.Seconds(), name)
	r.set("postrider_partitions", float64(s.status.Partitions), name)
	for _, t := range s.status.Tables {
		r.set("postrider_table_bytes", float64(t.Bytes), name, t.Table)
	}
	unrouted := int64(0)
	for _, u := range s.status.Unrouted {
		unrouted += u.Count
	}
	r.set("postrider_unrouted_total", float64(unrouted), name)
	for i := range s.status.Relays[:min(len(s.status.Relays), maxRelays)] {
		w.exportRelay(r, &s.status.Relays[i])
	}
	for _, c := range s.consumers[:min(len(s.consumers), maxRelays)] {
		r.set("postrider_consumer_remembered_ids", float64(c.Remembered.N), name, c.Name)
		r.set("postrider_consumer_remembered_oldest_seconds", c.Oldest.Seconds(), name, c.Name)
		missing := int64(0)
		for i := range c.Positions {
			missing += c.Positions[i].Missing
		}
		r.set("postrider_consumer_missing_messages_total", float64(missing), name, c.Name)
	}
	w.exportSagas(r, s)
}

// exportRelay exports the state of a relay or consumer.
func (w *watch) exportRelay(r *reading, st *store.RelayStatus) {
	labels := []string{w.of.Name, st.Name, string(st.Kind)}
	alive, unowned, settled := 0, 0, time.Duration(0)
	for i := range st.Owners {
		if st.Owners[i].Alive {
			alive++
		}
	}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		if p.Owner == "" {
			unowned++
		}
		if p.Backlog.N > 0 {
			settled = max(settled, p.SettledAgo)
		}
	}
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"postrider_oldest_undelivered_seconds", st.OldestUndelivered.Seconds()},
		{"postrider_delivery_target_seconds", w.target(st.Name).Seconds()},
		{"postrider_backlog_messages", float64(st.Backlog.N)},
		{"postrider_backlog_age_seconds", st.Age.Seconds()},
		{"postrider_parked_messages", float64(st.Parked.N)},
		{"postrider_parked_oldest_seconds", st.OldestParked.Seconds()},
		{"postrider_held_keys", float64(st.Held.N)},
		{"postrider_held_keys_oldest_seconds", st.OldestHeld.Seconds()},
		{"postrider_dead_letters", float64(st.Dead.N)},
		{"postrider_dead_letters_oldest_seconds", st.OldestDead.Seconds()},
		{"postrider_delivered_total", float64(st.Delivered)},
		{"postrider_failed_attempts_total", float64(st.Failed)},
		{"postrider_last_settlement_age_seconds", settled.Seconds()},
		{"postrider_relay_processes", float64(alive)},
		{"postrider_partitions_unowned", float64(unowned)},
	} {
		r.set(v.name, v.value, labels...)
	}
	r.flag("postrider_relay_paused", st.Paused != nil, labels...)
	r.flag("postrider_backlog_capped", st.Backlog.AtLeast, labels...)
	if d := st.DestinationOf(); d.State != store.DestinationUnknown {
		r.flag("postrider_destination_up", d.State == store.DestinationUp, labels...)
	}
}

// target returns the longest time that a relay's messages should wait.
func (w *watch) target(name string) time.Duration {
	for _, n := range []string{name, ""} {
		if target, ok := w.of.Targets[n]; ok {
			return target
		}
	}
	return DefaultTarget
}
