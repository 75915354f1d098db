package scenariotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// process runs a process of the engine with some definitions, in place of the one that had the name before.
func (w *world[Tx]) process(name string, definitions ...saga.Definition[order]) (sagas []*saga.Saga[Tx, order]) {
	w.Helper()
	if stop := w.stop[name]; stop != nil {
		stop()
	}
	w.engine = w.newEngine()
	for _, d := range definitions {
		sagas = append(sagas, w.register(d))
	}
	r, err := relay.New(w.store, relayConfig("engine", []string{w.engine.Topic()}))
	w.must(err)
	w.must(w.engine.Relay(r))
	w.keepRunning(name, r.Run)
	return sagas
}

// deploy: a second version is rolled out over three processes while instances of the first are running, rolled back, and rolled out
// again. Every instance ends by its own version.
func deploy[Tx any](w *world[Tx]) {
	n := scaled(w, 50, 10)
	first := define(reserveStep(), reviewStep(time.Hour))
	second := define(reserveStep(), chargeStep(), reviewStep(time.Hour))
	second.Version = 2
	processes := []string{"first process", "second process", "third process"}
	start := func(s *saga.Saga[Tx, order], version string) {
		for i := range n {
			w.start(s, order{ID: fmt.Sprint(version, i)})
		}
	}
	var sagas []*saga.Saga[Tx, order]
	for _, name := range processes {
		sagas = w.process(name, first)
	}
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	start(sagas[0], "v1 ")
	for _, name := range processes {
		sagas = w.process(name, first, second)
	}
	start(sagas[1], "v2 ")
	for _, name := range processes {
		sagas = w.process(name, first)
	}
	for i := range n {
		w.signal(fmt.Sprint("v1 ", i), "s")
	}
	for i := range n {
		w.ends(sagas[0], fmt.Sprint("v1 ", i), saga.Completed)
	}
	for _, name := range processes {
		sagas = w.process(name, first, second)
	}
	for i := range n {
		w.signal(fmt.Sprint("v2 ", i), "s")
	}
	for i := range n {
		w.ends(sagas[1], fmt.Sprint("v2 ", i), saga.Completed)
	}
	w.ledger(map[string]int{"reserve": 2 * n, "charge": n})
}

// migrate: the only process does not have the version of an instance any more, and an operator lets it continue with the next one, behind
// whose back a signal waits. What was done is not done again, and it is undone by the new version.
func migrate[Tx any](w *world[Tx]) {
	first := define(reserveStep(), reviewStep(time.Hour))
	second := define(reserveStep(), reviewStep(time.Hour), chargeStep())
	second.Version = 2
	second.Upgrade = func(from int, data json.RawMessage) (o order, err error) {
		err = json.Unmarshal(data, &o)
		o.Method = fmt.Sprint("upgraded from ", from)
		return o, err
	}
	s := w.process("engine", first)[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	for _, id := range []string{"41", "42"} {
		w.start(s, order{ID: id})
		w.becomes(s, id, "waiting for a signal", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
	}
	w.reported(1)
	s = w.process("engine", second)[0]
	w.signal("41", "s")
	w.onDo("charge", func(_ Tx, m *postrider.Message) error {
		if strings.Contains(string(m.Payload), "42") {
			return saga.Refuse("limit", nil)
		}
		return nil
	})
	for _, id := range []string{"41", "42"} {
		if why := w.operate(id, saga.Operation{Verb: saga.Migrate, To: 2}); why != "" {
			w.Errorf("the migration of %s is refused: %s", id, why)
		}
		w.has(id, "migrated", 1)
	}
	if why := w.operate("42", saga.Operation{Verb: saga.Migrate, To: 9}); why != "no running process has version 9 of saga fulfilment" {
		w.Errorf("the migration to a version that nobody has: refused %q", why)
	}
	w.signal("42", "s")
	if r := w.ends(s, "41", saga.Completed); r.Data.Payment != "charge of 41" || r.Data.Method != "upgraded from 1" {
		w.Errorf("data %+v, want those of version 2", r.Data)
	}
	w.ends(s, "42", saga.Compensated)
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
	in, err := w.store.ShowSaga(w.Context(), "41")
	w.must(err)
	if in.Version != 2 {
		w.Errorf("the instance has version %d, want 2", in.Version)
	}
}

// timerMeetsReply: replies arrive about when the timeout does, at two processes of the engine. The first that commits decides.
func timerMeetsReply[Tx any](w *world[Tx]) {
	const timeout = time.Second
	n, tick := scaled(w, 200, 100), scaled(w, time.Microsecond, 5*time.Millisecond)
	if w.kit.torture {
		n = 10_000
	}
	d := define(within(timeout, reserveStep()), chargeStep())
	late := 0
	w.tamper("postrider.saga.reply", func(m *postrider.Message) {
		if m.Headers["postrider-saga-step"] == "reserve" && m.Headers["postrider-saga-outcome"] == "done" {
			late++
			m.DeliverAfter = timeout + time.Duration(late%20-10)*tick
		}
	})
	s := w.process("first process", d)[0]
	w.process("second process", d)
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	for i := range n {
		w.start(s, order{ID: fmt.Sprint(i)})
	}
	completed := 0
	for i := range n {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		r, err := s.Wait(ctx, fmt.Sprint(i))
		cancel()
		w.must(err)
		switch {
		case r.Status == saga.Completed:
			completed++
		case r.Status != saga.Compensated || r.Cause == nil || r.Cause.Kind != saga.CauseTimedOut:
			w.Errorf("instance %d is %s, because of %v", i, r.Status, r.Cause)
		}
	}
	w.Logf("%d of %d replies came first", completed, n)
	if completed == 0 {
		w.ledger(nil)
	} else {
		w.ledger(map[string]int{"reserve": completed, "charge": completed})
	}
}

// timersSurvive: the engine is stopped while instances sleep. Each timer fires once, and not before its time.
func timersSurvive[Tx any](w *world[Tx]) {
	const n, asleep = 50, 2 * time.Second
	wait := reviewStep(asleep)
	wait.TimedOut = func(*order) {}
	d := define(wait, chargeStep())
	s := w.process("engine", d)[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	for i := range n {
		w.start(s, order{ID: fmt.Sprint(i)})
	}
	w.stop["engine"]()
	delete(w.stop, "engine")
	s = w.process("engine", d)[0]
	for i := range n {
		id := fmt.Sprint(i)
		w.ends(s, id, saga.Completed)
		w.has(id, "timed out review", 1)
		var started time.Time
		for t, err := range w.engine.History(w.Context(), id) {
			w.must(err)
			if started.IsZero() {
				started = t.At
			}
			if t.Input == "timer" && t.Rev == 2 && t.At.Sub(started) < asleep {
				w.Errorf("the timer of instance %s fired after %s, want %s or more", id, t.At.Sub(started), asleep)
			}
		}
	}
	w.ledger(map[string]int{"charge": n})
}

// maintains: processes report their definitions while they run, and remove instances that ended long enough ago.
func maintains[Tx any](w *world[Tx]) {
	d := define(reserveStep())
	s := w.process("engine", d)[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Completed)
	w.reported(1)
	w.stop["engine"]()
	delete(w.stop, "engine")
	w.reported(0)
	if _, err := s.Get(w.Context(), "42"); err != nil {
		w.Errorf("an instance that ended just now: %v", err)
	}
	w.engine = w.newEngine(func(c *saga.Config) { c.KeepEnded = time.Millisecond })
	s = w.register(d)
	w.run("engine", []string{w.engine.Topic()}, w.engine.Relay)
	for begun := time.Now(); ; rest(begun) {
		_, err := s.Get(w.Context(), "42")
		if errors.Is(err, saga.ErrNotFound) {
			return
		}
		w.must(err)
		if time.Since(begun) > patience {
			w.Fatal("an instance that ended is not removed")
		}
	}
}

// reported waits until a number of processes report the only definition.
func (w *world[Tx]) reported(want int) {
	w.Helper()
	for begun := time.Now(); ; rest(begun) {
		all, err := w.store.SagaDefinitions(w.Context())
		w.must(err)
		if len(all) == 1 && len(all[0].Processes) == want {
			if !strings.Contains(string(all[0].Graph), "reserve") {
				w.Errorf("the graph is %s", all[0].Graph)
			}
			return
		}
		if time.Since(begun) > patience {
			w.Fatalf("the definitions are %+v, want one of %d processes", all, want)
		}
	}
}

// localTakesTooLong: a local step whose statements are cancelled by its timeout fails as often as it may; its message does not.
func localTakesTooLong[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.LocalTimeout = 200 * time.Millisecond })
	runs := 0
	s := w.register(define(w.localStep("book", nil), saga.Local[order, Tx]{Name: "slow", NoUndo: true, Do: func(ctx context.Context, tx Tx, _ *order) error {
		runs++
		for ctx.Err() == nil {
			if err := effect(ctx, tx, w.box, "do", "slow"); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}}))
	w.runEngine()
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Compensated); r.Cause == nil || r.Cause.Kind != saga.CauseFailed || r.Cause.Step != "slow" {
		w.Errorf("cause %+v, want the failure of slow", r.Cause)
	}
	if runs != 3 {
		w.Errorf("the step ran %d times, want LocalAttempts (3)", runs)
	}
	w.ledger(nil)
}
