package scenariotest

import (
	"errors"
	"strings"
	"time"

	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// graphChanged: a process whose definition has another structure than its version had is refused when it starts, with the difference. The
// processes that have the old one continue, a process with both versions is accepted, and so is one that is rolled back.
func graphChanged[Tx any](w *world[Tx]) {
	first := define(reserveStep(), reviewStep(time.Hour))
	s := w.process("first process", first)[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	w.reported(1)
	for _, id := range []string{"41", "42"} {
		w.start(s, order{ID: id})
	}
	old := w.engine

	changed := define(reserveStep(), chargeStep(), reviewStep(time.Hour))
	w.engine = w.newEngine()
	w.register(changed)
	w.refusedAtStart("saga fulfilment v1: ", "step charge was added after step reserve", "Give it version 2")
	w.engine = w.newEngine()
	w.register(define(reviewStep(time.Hour)))
	w.refusedAtStart("step reserve was removed")
	w.reported(1) // nothing of them is left
	w.engine = old
	w.signal("41", "s")
	w.ends(s, "41", saga.Completed)

	changed.Version = 2
	both := w.process("second process", first, changed)
	w.stop["first process"]()
	delete(w.stop, "first process")
	w.start(both[1], order{ID: "43"})
	w.signal("43", "s")
	w.ends(both[1], "43", saga.Completed)
	w.process("second process", first)
	s = w.process("first process", first)[0]
	w.signal("42", "s")
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"reserve": 3, "charge": 1})
}

// refusedAtStart starts a relay and a consumer of the engine.
func (w *world[Tx]) refusedAtStart(why ...string) {
	w.Helper()
	r, err := relay.New(w.store, relayConfig("refused", []string{w.engine.Topic()}))
	w.must(err)
	w.must(w.engine.Relay(r))
	broker, err := memorybroker.New(memorybroker.Config{})
	w.must(err)
	c := w.newConsumer("refused replies", w.store, []string{w.engine.Topic()}, broker)
	w.must(w.engine.Consume(c))
	for what, err := range map[string]error{"relay": r.Run(w.Context()), "consumer": c.Run(w.Context()), "check": w.engine.CheckDefinitions(w.Context())} {
		if !errors.Is(err, saga.ErrRedefined) {
			w.Errorf("the %s is not refused: %v", what, err)
			continue
		}
		for _, text := range why {
			if !strings.Contains(err.Error(), text) {
				w.Errorf("the error of the %s is %q, want it to say %q", what, err, text)
			}
		}
	}
}

// redefine: with AllowRedefine, a process runs the other structure, and leaves instances of the first one alone.
func redefine[Tx any](w *world[Tx]) {
	s := w.process("engine", define(reserveStep()))[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.reported(1)
	w.start(s, order{ID: "41"})
	w.stop["engine"]()
	delete(w.stop, "engine")
	w.runParticipants()
	w.engine = w.newEngine(func(c *saga.Config) { c.AllowRedefine = true })
	other := w.register(define(reserveStep(), chargeStep()))
	w.run("engine", []string{w.engine.Topic()}, w.engine.Relay)
	w.start(other, order{ID: "42"})
	w.ends(other, "42", saga.Completed)
	if r, err := s.Get(w.Context(), "41"); err != nil || r.Status != saga.Running || r.Data.Stock != "" {
		w.Errorf("the instance of the first structure is %+v (%v), want it to wait", r, err)
	}
	w.engine = w.newEngine()
	w.register(define(reserveStep(), chargeStep()))
	w.refusedAtStart() // the first structure is that of the version, still
	s = w.process("engine", define(reserveStep()))[0]
	w.ends(s, "41", saga.Completed)
	w.ledger(map[string]int{"reserve": 2, "charge": 1})
}

// contractChanged: the same for a contract.
func contractChanged[Tx any](w *world[Tx]) {
	w.must(saga.Track(w.engine, byEvents()))
	w.run("engine", []string{w.engine.Topic()}, w.engine.Relay)
	w.reported(1)
	w.engine = w.newEngine()
	w.must(saga.Track(w.engine, byEvents(func(c *saga.Contract) { c.Events[2].After = saga.Defs{orderCreated} })))
	w.refusedAtStart("saga by-events v1: ", `event card.charged: after was [["stock.reserved"]], and is [["order.created"]]`)
}
