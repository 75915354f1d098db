package scenariotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

func declined[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep(), shipStep()))
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", errors.New("over 10,000")) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	r := w.ends(s, "42", saga.Compensated)
	if want := (saga.Cause{Kind: saga.CauseRefused, Step: "charge", Reason: "limit", Text: "over 10,000"}); r.Cause == nil || *r.Cause != want {
		w.Errorf("cause %+v, want %+v", r.Cause, want)
	}
	w.equal("history", w.history("42"), []string{
		"started", "command.sent reserve", "step.done reserve", "command.sent charge", "step.refused charge", "turned back charge",
		"undo.sent reserve", "step.undone reserve", "compensated",
	})
	w.ledger(nil)
	w.announced(1)
	all, err := w.store.ListSagas(w.Context(), store.SagaFilter{}, "", 10)
	w.must(err)
	if took := w.longest(all); took > time.Second && w.kit.Bubble {
		w.Errorf("it took %s, as if a timeout had been waited for", took)
	}
}

func firstRefused[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep()))
	w.onDo("reserve", func(Tx, *postrider.Message) error { return saga.Refuse("out of stock", nil) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	w.has("42", "undo.sent reserve", 0)
	w.ledger(nil)
}

// participantDown: the participant receives command and undo only after the saga has turned back.
func participantDown[Tx any](w *world[Tx]) {
	s := w.register(define(within(time.Second, reserveStep())))
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "compensating", func(r saga.Result[order]) bool { return r.Status == saga.Compensating })
	w.runParticipants()
	if r := w.ends(s, "42", saga.Compensated); r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "reserve" {
		w.Errorf("cause %+v, want a timeout of reserve", r.Cause)
	}
	w.ledger(nil)
	w.has("42", "late reserve", 1) // done, while its undo was under way
}

// lateCompletion: the step is done after its timeout, and undone once.
func lateCompletion[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), within(time.Second, chargeStep())))
	release := make(chan struct{})
	w.onDo("charge", func(Tx, *postrider.Message) error { <-release; return nil })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "compensating", func(r saga.Result[order]) bool { return r.Status == saga.Compensating })
	close(release)
	w.ends(s, "42", saga.Compensated)
	w.ledger(nil)
	w.mu.Lock()
	done := maps.Clone(w.done)
	w.mu.Unlock()
	if done["charge"] != 1 {
		w.Errorf("charge was done %d times, want once", done["charge"])
	}
	w.has("42", "step.undone charge", 1)
	w.has("42", "late charge", 1)
}

// duplicates: a command is delivered five times and has one effect; its replies arrive five times, and are equal.
func duplicates[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep()))
	w.onDo("reserve", func(tx Tx, m *postrider.Message) error {
		for range 4 {
			again := *m
			again.ID = ""
			if _, err := w.box.Publish(w.Context(), tx, &again); err != nil {
				return err
			}
		}
		return nil
	})
	replies := make(map[string]bool)
	w.tamper("postrider.saga.reply", func(m *postrider.Message) {
		if m.Headers["postrider-saga-step"] == "reserve" {
			replies[fmt.Sprint(m.Headers, string(m.Payload))] = true
		}
	})
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Completed)
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		if n := len(slices.DeleteFunc(w.history("42"), func(e string) bool { return e != "late reserve" })); n == 4 {
			break
		}
	}
	w.has("42", "late reserve", 4)
	w.has("42", "step.done reserve", 1)
	if w.mu.Lock(); len(replies) != 1 {
		w.Errorf("the replies differ: %v", replies)
	}
	w.mu.Unlock()
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}

// unknownPivotDone: the pivot is done, its reply comes after its timeout; the saga continues forward.
func unknownPivotDone[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), within(time.Second, shipStep()), chargeStep()))
	release := make(chan struct{})
	w.onDo("ship", func(Tx, *postrider.Message) error { <-release; return nil })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "compensating", func(r saga.Result[order]) bool { return r.Status == saga.Compensating })
	close(release)
	if r := w.ends(s, "42", saga.Completed); r.Data.Parcel != "ship of 42" || r.Cause != nil {
		w.Errorf("data %+v, cause %v", r.Data, r.Cause)
	}
	w.has("42", "turned forward ship", 1)
	w.has("42", "undo.sent reserve", 0)
	w.ledger(map[string]int{"reserve": 1, "ship": 1, "charge": 1})
}

// unknownPivotNotDone: the pivot's command does not arrive in time; it is blocked, and all is undone.
func unknownPivotNotDone[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), within(time.Second, shipStep())))
	fails := true
	w.onDo("ship", func(Tx, *postrider.Message) error {
		if fails {
			return postrider.Dead("broken", errors.New("for this command"))
		}
		return nil
	})
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	w.ledger(nil)
	fails = false
	w.redrive() // the dead command is refused
	w.has42Late("ship")
	w.ledger(nil)
}

// has42Late waits until a late reply of a step of instance 42 was recorded.
func (w *world[Tx]) has42Late(step string) {
	w.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		if slices.Contains(w.history("42"), "late "+step) {
			return
		}
	}
	w.has("42", "late "+step, 1)
}

// dead waits for a dead letter and returns its reason.
func (w *world[Tx]) dead(relay string) string {
	w.Helper()
	d := deadletter.New(w.store)
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		for l, err := range d.ListDead(w.Context(), store.DeadFilter{Relay: relay}, 0, 1) {
			w.must(err)
			return l.Reason
		}
	}
	w.Fatalf("relay %s has no dead letter", relay)
	return ""
}

// redrive sends the dead letters of the participants back.
func (w *world[Tx]) redrive() {
	w.Helper()
	w.dead("participants")
	_, err := deadletter.New(w.store).RedriveDead(w.Context(), store.DeadFilter{Relay: "participants"}, "ann", 10)
	w.must(err)
}

// undoFailsThenSucceeds: an undo fails three times, and is sent again after its timeout and a random wait that doubles.
func undoFailsThenSucceeds[Tx any](w *world[Tx]) {
	timeout, base := 2*time.Second, scaled(w, 10*time.Second, 20*time.Millisecond)
	w.engine = w.newEngine(func(c *saga.Config) {
		c.UndoTimeout, c.UndoAttempts, c.BackoffBase, c.BackoffMax = timeout, scaled(w, 4, 1000), base, time.Hour
	})
	s := w.register(define(reserveStep(), chargeStep()))
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	failures := 0
	w.onUndo("reserve", func() error {
		if failures++; failures <= 3 {
			return postrider.Dead("broken", errors.New("connection refused"))
		}
		return nil
	})
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	w.ledger(nil)
	attempt, last := 0, time.Time{}
	for t, err := range w.engine.History(w.Context(), "42") {
		w.must(err)
		for _, e := range t.Entries {
			if e.Name != "undo.sent" || e.Step != "reserve" {
				continue
			}
			attempt++
			if want := fmt.Sprint("attempt ", attempt); e.Text != want {
				w.Errorf("undo %d is recorded as %q, want %q", attempt, e.Text, want)
			}
			var least, most time.Duration
			if attempt > 1 {
				most = base << (attempt - 2)
				least, most = timeout+most/2, timeout+most
			}
			if waited := t.At.Sub(last); attempt > 1 && (waited < least || waited > most+time.Second) && w.kit.Bubble {
				w.Errorf("attempt %d came after %s, want %s to %s", attempt, waited, least, most)
			}
			last = t.At
		}
	}
	if attempt < 4 || attempt > 4 && w.kit.Bubble {
		w.Errorf("the undo was sent %d times, want 4", attempt)
	}
}

func undoFailsForGood[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.UndoTimeout = 5 * time.Second })
	s := w.register(define(saga.Parallel[order]{Name: "both", Steps: []step{reserveStep(), chargeStep()}}, shipStep()))
	w.onDo("ship", func(Tx, *postrider.Message) error { return saga.Refuse("no carrier", nil) })
	w.onUndo("reserve", func() error { return postrider.Dead("broken", errors.New("for good")) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	w.ledger(map[string]int{"reserve": 1}) // the other branch is undone too
	w.onUndo("reserve", nil)
	if refused := w.operate("42", saga.Operation{Verb: saga.Retry}); refused != "" {
		w.Errorf("retry was refused: %s", refused)
	}
	w.ends(s, "42", saga.Compensated)
	w.ledger(nil)
}

func parallel[Tx any](w *world[Tx]) {
	s := w.register(define(saga.Parallel[order]{Name: "all", Steps: []step{reserveStep(), chargeStep(), w.localStep("book", nil)}}))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "41"})
	w.ends(s, "41", saga.Completed)
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "book": 1})
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "book": 1})
}

func cannotUndo[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep()))
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.onUndo("reserve", func() error { return saga.ErrCannotUndo })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	w.ledger(map[string]int{"reserve": 1})
	if refused := w.operate("42", saga.Operation{Verb: saga.Skip, Step: "reserve"}); refused != "" {
		w.Errorf("skip was refused: %s", refused)
	}
	w.ends(s, "42", saga.Abandoned)
}

// expired: a command that is older than the participant's records is not executed, and its undo makes the instance stuck.
func expired[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep()))
	w.runEngine()
	w.tamper("stock.reserve", func(m *postrider.Message) { m.Headers["postrider-saga-since"] = "1990-01-01T00:00:00Z" })
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	w.ledger(nil)
}

// wrongToken: a reply that does not echo the token of its instance is dead-lettered.
func wrongToken[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep()))
	w.runEngine()
	w.tamper("postrider.saga.reply", func(m *postrider.Message) { m.Headers["postrider-saga-token"] = "guessed" })
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if reason := w.dead("engine"); reason != saga.ReasonNotApplicable {
		w.Errorf("the reply was dead-lettered for %q, want %q", reason, saga.ReasonNotApplicable)
	}
	if r, err := s.Get(context.WithoutCancel(w.Context()), "42"); err != nil || r.Status == saga.Completed {
		w.Errorf("the instance is %s (%v)", r.Status, err)
	}
}

// deadlock: two participants wait for each other's row. The transaction that the database rolls back is run again, and nobody notices.
func deadlock[Tx any](w *world[Tx]) {
	update := w.kit.Rows(w, w.store)
	s := w.register(define(saga.Parallel[order]{Name: "both", Steps: []step{reserveStep(), chargeStep()}}))
	var rolledBack atomic.Int32
	crossing := func(first, second int, mine, other chan struct{}) func(Tx, *postrider.Message) error {
		arrive := sync.OnceFunc(func() { close(mine) })
		return func(tx Tx, m *postrider.Message) error {
			if m.Attempt > 1 {
				w.Errorf("%s is tried for the %dth time: the deadlock was counted", m.Type, m.Attempt)
			}
			if err := update(w.Context(), tx, first); err != nil {
				return err
			}
			arrive()
			<-other
			err := update(w.Context(), tx, second)
			if err != nil {
				rolledBack.Add(1)
			}
			return err
		}
	}
	one, two := make(chan struct{}), make(chan struct{})
	w.onDo("reserve", crossing(0, 1, one, two))
	w.onDo("charge", crossing(1, 0, two, one))
	w.runEngine()
	for _, topic := range []string{"stock", "cards"} {
		w.run(topic, []string{topic}, w.newParticipant(w.store, w.box).Relay)
	}
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Completed)
	if rolledBack.Load() == 0 {
		w.Error("there was no deadlock")
	}
	w.has("42", "command.sent both/reserve", 1)
	w.has("42", "command.sent both/charge", 1)
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}
