package scenariotest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// longScenarios are about hours, or about thousands of steps. Where time is not virtual, they are shorter.
func longScenarios[Tx any]() map[string]func(w *world[Tx]) {
	return map[string]func(w *world[Tx]){
		"A05 clock of the database jumps": clockJumps[Tx],
		"A23 many lines":                  manyLines[Tx],
		"A45 out of stock for everybody":  soldOut[Tx],
		"A46 payments down":               paymentsDown[Tx],
		"A47 many wait":                   manyWait[Tx],
	}
}

// scaled is a number, or a duration, for virtual time, or another one for real time.
func scaled[Tx any, N int | time.Duration](w *world[Tx], virtual, otherwise N) N {
	if w.kit.Bubble {
		return virtual
	}
	return otherwise
}

// jumping is a store whose database has a clock that jumps.
type jumping[Tx any] struct {
	Store[Tx]
	by atomic.Int64 // a time.Duration
}

func (j *jumping[Tx]) LoadSagas(ctx context.Context, tx Tx, runs []string) ([]store.SagaInstance, error) {
	found, err := j.Store.LoadSagas(ctx, tx, runs)
	for i := range found {
		found[i].Age += time.Duration(j.by.Load())
	}
	return found, err
}

// clockJumps: a timer that comes before its time by the database's clock does nothing, and comes again; what arrives is taken, however
// late it seems to be.
func clockJumps[Tx any](w *world[Tx]) {
	clock, own := &jumping[Tx]{Store: w.store}, w.store
	w.store = clock
	w.engine = w.newEngine()
	w.store = own
	limit := scaled(w, time.Minute, 3*time.Second)
	s := w.register(define(reserveStep(), reviewStep(limit)))
	patient := define(reserveStep(), reviewStep(time.Hour))
	patient.Name = "patient"
	forth := w.register(patient)
	w.runEngine()
	w.runParticipants()
	waits := func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" }
	w.start(s, order{ID: "back"})
	w.becomes(s, "back", "waiting for a signal", waits)
	clock.by.Store(int64(-limit))
	w.records("back", "timer", 1)
	w.has("back", "timed out review", 0)
	w.ends(s, "back", saga.Compensated)
	w.has("back", "timer", 2)
	w.has("back", "timed out review", 1)

	clock.by.Store(0)
	w.start(forth, order{ID: "forth"})
	w.becomes(forth, "forth", "waiting for a signal", waits)
	clock.by.Store(int64(2 * time.Hour))
	w.signal("forth", "s")
	w.ends(forth, "forth", saga.Completed)
	w.ledger(map[string]int{"reserve": 1})
}

// manyLines: no more lines than the window are worked on at a time, and all are.
func manyLines[Tx any](w *world[Tx]) {
	const window = 16
	n := scaled(w, 1000, 200)
	s := w.register(define(linesStep(0), chargeStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42", Lines: n})
	if r := w.ends(s, "42", saga.Completed); strings.Count(r.Data.Stock, ";") != n {
		w.Errorf("the data have %d lines, want %d", strings.Count(r.Data.Stock, ";"), n)
	}
	w.ledger(map[string]int{"reserve": n, "charge": 1})
	open, most := 0, 0
	for t, err := range w.engine.History(w.Context(), "42") {
		w.must(err)
		for _, e := range t.Entries {
			switch {
			case e.Name == "command.sent" && e.Step != "charge":
				open++
			case e.Name == "step.done" && saga.StepName(e.Step) == "lines/reserve":
				open--
			}
		}
		most = max(most, open)
	}
	if most != window {
		w.Errorf("%d lines were open at a time, want %d", most, window)
	}
}

// soldOut: while most goods are missing, their orders are refused at once and nothing times out; goods that are there still sell, and
// what has ended does not pile up.
func soldOut[Tx any](w *world[Tx]) {
	const every = 6 * time.Second
	n := scaled(w, int(soldOutFor/every), 10)
	w.sellOut(n, func(int) { time.Sleep(scaled(w, every, 0)) })
	if !w.kit.Bubble {
		return
	}
	const left = 2 * int((soldOutKeep+2*time.Minute)/every) // ended, and not yet removed
	all, err := w.store.ListSagas(w.Context(), store.SagaFilter{}, "", 2*n)
	w.must(err)
	if len(all) > left || len(all) == 0 {
		w.Errorf("%d instances of %d are kept, want at most %d", len(all), 2*n, left)
	}
	if took := w.longest(all); took > 5*time.Second {
		w.Errorf("an instance took %s", took)
	}
}

const soldOutFor, soldOutKeep = 5 * time.Minute, time.Minute

// sellOut starts n orders of goods that are missing, and n of goods that are there, one after the other.
func (w *world[Tx]) sellOut(n int, then func(i int)) {
	w.Helper()
	w.engine = w.newEngine(func(c *saga.Config) { c.StepTimeout, c.KeepEnded = 30*time.Second, soldOutKeep })
	s := w.register(define(reserveStep(), chargeStep()))
	w.onDo("reserve", func(_ Tx, m *postrider.Message) error {
		if strings.Contains(string(m.Payload), "gone") {
			return saga.Refuse("out of stock", nil)
		}
		return nil
	})
	w.runEngine()
	w.runParticipants()
	for i := range n {
		id := fmt.Sprint("gone ", i)
		w.start(s, order{ID: id})
		if r := w.ends(s, id, saga.Compensated); r.Cause.Reason != "out of stock" {
			w.Fatalf("cause %+v, want that the goods are out of stock", r.Cause)
		}
		id = fmt.Sprint("there ", i)
		w.start(s, order{ID: id})
		w.ends(s, id, saga.Completed)
		w.has(id, "timer", 0)
		then(i)
	}
	w.ledger(map[string]int{"reserve": n, "charge": n})
}

// longest is the longest time from the start of an instance to its last change.
func (w *world[Tx]) longest(all []store.SagaSummary) (took time.Duration) {
	for _, s := range all {
		took = max(took, s.UpdatedAt.Sub(s.StartedAt))
	}
	return took
}

// loading is a store that counts how often the engine reads instances.
type loading[Tx any] struct {
	Store[Tx]
	loads atomic.Int64
}

func (l *loading[Tx]) LoadSagas(ctx context.Context, tx Tx, runs []string) ([]store.SagaInstance, error) {
	l.loads.Add(1)
	return l.Store.LoadSagas(ctx, tx, runs)
}

// manyWait: nobody reads instances that wait, and when all their timers are due at once, each fires once while others start and end. The
// benchmarks saga-waiting and saga-timers have a million and 100,000.
func manyWait[Tx any](w *world[Tx]) {
	n, limit := scaled(w, 100, 30), scaled(w, 20*time.Minute, 3*time.Second)
	counted, own := &loading[Tx]{Store: w.store}, w.store
	w.store = counted
	w.engine = w.newEngine()
	w.store = own
	waiting := w.register(define(saga.Await[order, item]{Name: "sleep", Signal: reviewed, Timeout: limit, TimedOut: func(*order) {}}))
	brief := define(reserveStep())
	brief.Name = "stocktaking"
	others := w.register(brief)
	w.runEngine()
	w.runParticipants()
	for i := range n {
		w.start(waiting, order{ID: fmt.Sprint("waiting ", i)})
	}
	if w.kit.Bubble {
		time.Sleep(time.Minute) // timers are parked
		before := counted.loads.Load()
		time.Sleep(limit - 2*time.Minute)
		if loads := counted.loads.Load() - before; loads > 0 {
			w.Errorf("instances were read %d times while all were waiting", loads)
		}
	}
	for i := range scaled(w, 60, 10) {
		id := fmt.Sprint("other ", i)
		w.start(others, order{ID: id})
		w.ends(others, id, saga.Completed)
		time.Sleep(scaled(w, 2*time.Second, 0))
	}
	for i := range n {
		id := fmt.Sprint("waiting ", i)
		w.ends(waiting, id, saga.Completed)
		w.has(id, "timed out sleep", 1)
		w.has(id, "timer", 1)
	}
	all, err := w.store.ListSagas(w.Context(), store.SagaFilter{}, "", 2*n)
	w.must(err)
	for _, s := range all {
		took := s.UpdatedAt.Sub(s.StartedAt)
		late := s.Saga == brief.Name && took > 5*time.Second || s.Saga != brief.Name && took > limit+time.Minute
		if s.Saga != brief.Name && took < limit || late && w.kit.Bubble {
			w.Errorf("instance %s ended after %s", s.ID, took)
		}
	}
}
