package telemetry

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// Saga returns the observer of an engine of package saga, whose database is the given store.
func (t *Telemetry) Saga(storeName string) *observe.Saga {
	i := &sagaInstruments{t: t, store: storeName, known: make(map[string]bool)}
	return &observe.Saga{
		Transitioned: i.onTransitioned,
		NotFound:     func(engine string) { i.add("postrider_saga_not_found_total", 1, []string{storeName, engine}) },
		Ignored:      func(engine string) { i.add("postrider_saga_ignored_total", 1, []string{storeName, engine}) },
		Conflicted:   func(name string) { i.add("postrider_saga_conflicts_total", 1, []string{storeName, name}) },
	}
}

type sagaInstruments struct {
	t     *Telemetry
	store string

	mu    sync.Mutex
	known map[string]bool // series that are exported as 0 at least
}

// sagaOutcomes are the outcomes of a step, by the name of the entry.
var sagaOutcomes = map[string]string{
	"step.done": "done", "step.refused": "refused", "step.undone": "undone", "step.skipped": "skipped", "step.stuck": "stuck",
	"step.released": "released", "late": "late",
}

// sagaCauses are the causes for which an instance is compensated, and operatorEntry begins the names of operators' entries.
var sagaCauses = []string{"refused", "timed out", "failed", "cancelled", "operator"}

const operatorEntry = "operator."

func (i *sagaInstruments) onTransitioned(s observe.Transitioned) {
	of := []string{i.store, s.Saga}
	if i.first(of) {
		i.begin(&s, of)
	}
	i.record("postrider_saga_transition_seconds", s.Took, of)
	i.record("postrider_saga_timer_lag_seconds", s.TimerLag, of)
	for n := range s.Entries {
		since := time.Duration(0)
		if n < len(s.Since) {
			since = s.Since[n]
		}
		i.onEntry(&s, &s.Entries[n], since, of)
	}
}

// kindOf returns the labels of counts of instances.
func kindOf(s *observe.Transitioned, of []string) []string {
	return and(of, strconv.Itoa(s.Version), string(s.Kind))
}

// begin exports the counters of a saga as 0.
func (i *sagaInstruments) begin(s *observe.Transitioned, of []string) {
	i.add("postrider_saga_late_effect_total", 0, of)
	i.add("postrider_saga_conflicts_total", 0, of)
	i.add("postrider_saga_not_found_total", 0, []string{i.store, s.Engine})
	i.add("postrider_saga_ignored_total", 0, []string{i.store, s.Engine})
	i.add("postrider_saga_timed_out_total", 0, and(of, "deadline"))
	kind := kindOf(s, of)
	i.add("postrider_saga_ended_total", 0, and(kind, string(store.SagaCompleted), ""))
	for _, cause := range sagaCauses {
		i.add("postrider_saga_ended_total", 0, and(kind, string(store.SagaCompensated), cause))
	}
}

// onEntry counts an entry of the history, whose step was started a while ago.
func (i *sagaInstruments) onEntry(s *observe.Transitioned, e *store.SagaEntry, since time.Duration, of []string) {
	step := saga.StepName(e.Step)
	kind := kindOf(s, of)
	switch outcome := sagaOutcomes[e.Name]; {
	case e.Name == "started":
		i.add("postrider_saga_started_total", 1, kind)
	case e.Name == string(store.SagaCompleted), e.Name == string(store.SagaCompensated), e.Name == string(store.SagaAbandoned):
		i.add("postrider_saga_ended_total", 1, and(kind, e.Name, s.Cause))
		i.record("postrider_saga_duration_seconds", max(s.Age, 1), and(of, string(s.Kind), e.Name))
		i.record("postrider_saga_compensation_duration_seconds", s.TurnedBack, and(of, string(s.Kind), e.Name))
	case e.Name == "command.sent", e.Name == "undo.sent", e.Name == "waiting":
		direction := string(store.SagaForward)
		if e.Name == "undo.sent" {
			direction = string(store.SagaBack)
		}
		i.add("postrider_saga_attempts_total", 1, and(of, step, direction))
		i.add("postrider_saga_timed_out_total", 0, and(of, step))
	case e.Name == "timed out":
		i.add("postrider_saga_timed_out_total", 1, and(of, step))
		i.add("postrider_saga_steps_total", 1, and(of, step, "unknown"))
	case e.Name == "turned back" && step == "" && e.Text == "timed out", e.Name == "deadline":
		i.add("postrider_saga_timed_out_total", 1, and(of, "deadline"))
	case strings.HasPrefix(e.Name, operatorEntry):
		verb, result := strings.TrimPrefix(e.Name, operatorEntry), "applied"
		if verb == "refused" {
			result = verb
			verb, _, _ = strings.Cut(e.Text, ":")
		}
		i.add("postrider_saga_operator_total", 1, and(of, verb, result))
	case outcome != "":
		i.add("postrider_saga_steps_total", 1, and(of, step, outcome))
		i.record("postrider_saga_step_duration_seconds", since, and(of, step, outcome))
		if outcome == "late" && strings.HasPrefix(e.Text, "done") && s.Status == store.SagaAbandoned {
			i.add("postrider_saga_late_effect_total", 1, of)
		}
	case e.Name == "late.effect":
		i.add("postrider_saga_late_effect_total", 1, of)
	}
}

// first reports whether it is called for the first time.
func (i *sagaInstruments) first(of []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := strings.Join(of, "\x00")
	known := i.known[name]
	i.known[name] = true
	return !known
}

func (i *sagaInstruments) add(name string, n int64, labels []string) {
	i.t.counters[name].Add(context.Background(), n, i.t.set(name, labels))
}

// record records how long something took, unless it did not happen.
func (i *sagaInstruments) record(name string, took time.Duration, labels []string) {
	if took > 0 {
		i.t.histogram(name, labels...).record(context.Background(), took.Seconds())
	}
}

// readSagas reads what a store has of sagas. It leaves them out if it cannot: a relay's role in the database may have no right to.
func (s *state) readSagas(ctx context.Context, from Store) {
	definitions, err := from.SagaDefinitions(ctx)
	if err != nil || len(definitions) == 0 {
		return
	}
	if counts, err := from.CountSagas(ctx); err == nil {
		s.definitions, s.sagas = definitions, counts
	}
}

// exportSagas exports the state of the sagas of a store.
func (w *watch) exportSagas(r *reading, s *state) {
	type version struct {
		saga    string
		version int
	}
	type group struct{ saga, status, direction string }
	missing, stuck, oldest := make(map[version]int64), make(map[group]int64), make(map[group]float64)
	live := make(map[version]bool)
	for _, d := range s.definitions {
		v := version{d.Saga, d.Version}
		live[v] = live[v] || len(d.Processes) > 0
		missing[v] = 0
		for _, direction := range []store.SagaDirection{store.SagaForward, store.SagaBack} {
			stuck[group{saga: d.Saga, direction: string(direction)}] = 0
		}
	}
	active := make(map[[4]string]int64)
	for _, c := range s.sagas {
		v := version{c.Saga, c.Version}
		if !live[v] {
			missing[v] += c.Count
		}
		if c.Status == store.SagaStuck {
			stuck[group{saga: c.Saga, direction: string(c.Direction)}] += c.Count
		}
		g := group{c.Saga, string(c.Status), string(c.Direction)}
		oldest[g] = max(oldest[g], c.Oldest.Seconds())
		active[[4]string{c.Saga, strconv.Itoa(c.Version), string(c.Status), string(c.Direction)}] += c.Count
	}
	name := w.of.Name
	for labels, n := range active {
		r.set("postrider_saga_active", float64(n), and([]string{name}, labels[:]...)...)
	}
	for g, age := range oldest {
		r.set("postrider_saga_oldest_seconds", age, name, g.saga, g.status, g.direction)
	}
	for g, n := range stuck {
		r.set("postrider_saga_stuck", float64(n), name, g.saga, g.direction)
	}
	for v, n := range missing {
		r.set("postrider_saga_definition_missing", float64(n), name, v.saga, strconv.Itoa(v.version))
	}
}
