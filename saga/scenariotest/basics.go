package scenariotest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

func happyPath[Tx any](w *world[Tx]) {
	timers := make(map[string]bool)
	w.tamper("postrider.saga.timer", func(m *postrider.Message) { timers[m.Headers["postrider-saga-timer"]] = true })
	s := w.register(define(reserveStep(), chargeStep(), shipStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	r := w.ends(s, "42", saga.Completed)
	if len(timers) != 1 {
		w.Errorf("%d timers were set, want the first one only", len(timers))
	}
	if want := (order{ID: "42", Stock: "reserve of 42", Payment: "charge of 42", Parcel: "ship of 42"}); !reflect.DeepEqual(r.Data, want) || r.Cause != nil {
		w.Errorf("data %+v, cause %v; want %+v and none", r.Data, r.Cause, want)
	}
	w.equal("history", w.history("42"), []string{
		"started", "command.sent reserve", "step.done reserve", "command.sent charge", "step.done charge",
		"command.sent ship", "step.done ship", "completed",
	})
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "ship": 1})
	w.announced(1)
	w.purges(3)
}

// purges removes records until a number of them is gone: those of steps that are done go only after the end of their saga.
func (w *world[Tx]) purges(want int) {
	w.Helper()
	n := 0
	for begun := time.Now(); n < want && time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		removed, err := w.store.PurgeSagaRecords(w.Context(), "shop", 0, 100)
		w.must(err)
		n += removed
	}
	if n != want {
		w.Errorf("%d records were removed, want %d", n, want)
	}
}

// announced waits for a number of announcements of ends.
func (w *world[Tx]) announced(want int) {
	w.Helper()
	got := 0
	for begun := time.Now(); time.Since(begun) < patience && got != want; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		got = w.effects[""]
		w.mu.Unlock()
	}
	if got != want {
		w.Errorf("%d ends were announced, want %d", got, want)
	}
}

func startIsAtomic[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep()))
	w.runEngine()
	w.runParticipants()
	undone := errors.New("undone")
	_, err := w.box.InTx(w.Context(), func(ctx context.Context, tx Tx) error {
		_, err := s.Start(ctx, tx, order{ID: "gone"}, saga.ID("gone"))
		return errors.Join(err, undone)
	})
	if !errors.Is(err, undone) {
		w.Fatal(err)
	}
	w.inTx(func(ctx context.Context, tx Tx) error {
		err := w.store.Savepoint(ctx, tx, func(ctx context.Context, tx Tx) error {
			_, err := s.Start(ctx, tx, order{ID: "also gone"}, saga.ID("also gone"))
			return errors.Join(err, undone)
		})
		if !errors.Is(err, undone) {
			return err
		}
		_, err = s.Start(ctx, tx, order{ID: "here"}, saga.ID("here"))
		return err
	})
	w.ends(s, "here", saga.Completed)
	for _, id := range []string{"gone", "also gone"} {
		if _, err := s.Get(w.Context(), id); !errors.Is(err, saga.ErrNotFound) {
			w.Errorf("get %q: %v, want %v", id, err, saga.ErrNotFound)
		}
	}
	w.ledger(map[string]int{"reserve": 1})
}

func duplicateStart[Tx any](w *world[Tx]) {
	d := define(reserveStep(), reviewStep(time.Hour))
	d.Key = func(o order) string { return "order/" + o.ID }
	sagas := w.registerFourTimes(d)
	s := sagas[0]
	w.runEngine()
	w.runParticipants()
	var all sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for i := range 10 {
		s := sagas[i%len(sagas)]
		all.Go(func() {
			_, err := w.box.InTx(w.Context(), func(ctx context.Context, tx Tx) error {
				started, err := s.Start(ctx, tx, order{ID: "42"}, saga.ID("42"))
				mu.Lock()
				defer mu.Unlock()
				if started.New {
					fresh++
				}
				if err == nil && started.ID != "42" {
					err = fmt.Errorf("the instance is %q", started.ID)
				}
				return err
			})
			if err != nil {
				w.Errorf("start: %v", err)
			}
		})
	}
	all.Wait()
	if fresh != 1 {
		w.Errorf("%d of 10 starts made an instance, want 1", fresh)
	}
	for _, options := range [][]saga.StartOption{{saga.ID("42")}, {saga.ID("other")}} { // the same ID, and the same key
		_, err := w.box.InTx(w.Context(), func(ctx context.Context, tx Tx) error {
			started, err := s.Start(ctx, tx, order{ID: "42", Method: "other"}, options...)
			if started.New || started.ID != "42" {
				w.Errorf("start with other data: %+v", started)
			}
			return err
		})
		if !errors.Is(err, saga.ErrConflict) {
			w.Errorf("start with other data: %v, want %v", err, saga.ErrConflict)
		}
	}
	w.signal("42", "s1")
	w.ends(s, "42", saga.Completed)
	w.inTx(func(ctx context.Context, tx Tx) error {
		started, err := s.Start(ctx, tx, order{ID: "42"}, saga.ID("second"))
		if !started.New {
			w.Error("after its end, an instance still holds its key")
		}
		return err
	})
	w.signal("second", "s2")
	w.ends(s, "second", saga.Completed)
	w.ledger(map[string]int{"reserve": 2})
}

// registerFourTimes registers a definition with the engine, and with those of three other processes.
func (w *world[Tx]) registerFourTimes(d saga.Definition[order]) []*saga.Saga[Tx, order] {
	w.Helper()
	sagas, first := []*saga.Saga[Tx, order]{w.register(d)}, w.engine
	for range 3 {
		w.engine = w.newEngine()
		sagas = append(sagas, w.register(d))
	}
	w.engine = first
	return sagas
}

// signal sends the signal of reviewStep.
func (w *world[Tx]) signal(id, text string) {
	w.Helper()
	w.inTx(func(ctx context.Context, tx Tx) error {
		return saga.Signal(ctx, tx, w.box, "shop", id, reviewed, item{text})
	})
}

func deadline[Tx any](w *world[Tx]) {
	d := define(reserveStep(), reviewStep(time.Hour), shipStep())
	d.Deadline = time.Second
	s := w.register(d)
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	r := w.ends(s, "42", saga.Compensated)
	if r.Cause == nil || r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "" {
		w.Errorf("cause %v, want the deadline", r.Cause)
	}
	w.ledger(nil)
	w.has("42", "undo.sent reserve", 1)
}

// restart: another engine, as after a restart of the process, continues the instances; in the end, one that has a newer version, too.
func restart[Tx any](w *world[Tx]) {
	d := define(reserveStep(), reviewStep(48*time.Hour), chargeStep())
	s := w.register(d)
	second := define(chargeStep(), reserveStep())
	second.Version = 2
	w.pollMax = time.Minute // nothing happens meanwhile
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if n, err := w.store.PurgeSagaRecords(w.Context(), "shop", 0, 100); err != nil || n != 0 {
		w.Errorf("%d records of a running saga were removed (%v)", n, err)
	}
	for i := range 3 {
		w.becomes(s, "42", "waiting for the review", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
		time.Sleep(scaled(w, 15*time.Minute, 0))
		w.stop["engine"]()
		w.engine = w.newEngine()
		s = w.register(d)
		if i == 2 {
			w.register(second)
		}
		w.run("engine", []string{w.engine.Topic()}, w.engine.Relay)
	}
	w.signal("42", "s1")
	if r := w.ends(s, "42", saga.Completed); r.Data.Reviewed != "s1" {
		w.Errorf("data %+v", r.Data)
	}
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}

func localStep[Tx any](w *world[Tx]) {
	fails, attempts := errors.New("fails"), 0
	s := w.register(define(w.localStep("book", nil), w.localStep("close", func() error {
		attempts++
		if attempts < 3 {
			return fails
		}
		return saga.Refuse("closed", nil)
	})))
	w.runEngine()
	w.start(s, order{ID: "42"})
	r := w.ends(s, "42", saga.Compensated)
	if r.Cause == nil || r.Cause.Kind != saga.CauseRefused || r.Cause.Step != "close" || r.Cause.Reason != "closed" {
		w.Errorf("cause %+v, want a refusal of step close", r.Cause)
	}
	if attempts != 3 || r.Data.Payment != "" {
		w.Errorf("%d attempts, data %+v; want 3, and what book wrote undone", attempts, r.Data)
	}
	w.ledger(nil)
	w.has("42", "attempt.failed close", 2)

	s2 := w.register(saga.Definition[order]{Name: "failing", Version: 1, Steps: []step{
		w.localStep("book", nil), w.localStep("close", func() error { panic("broken") })}})
	w.start(s2, order{ID: "43"})
	if r := w.ends(s2, "43", saga.Compensated); r.Cause.Kind != saga.CauseFailed || !strings.Contains(r.Cause.Text, "broken") {
		w.Errorf("cause %+v, want the panic", r.Cause)
	}
	w.ledger(nil)
}

// localTooLarge: a local step whose data cannot be kept has no effect, however often it is tried.
func localTooLarge[Tx any](w *world[Tx]) {
	s := w.register(define(w.localStep("book", nil), saga.Local[order, Tx]{
		Name: "grow", NoUndo: true,
		Do: func(ctx context.Context, tx Tx, o *order) error {
			o.Parcel = strings.Repeat("x", 300<<10) // more than MaxState
			return effect(ctx, tx, w.box, "do", "grow")
		},
	}))
	w.runEngine()
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Compensated); r.Cause == nil || r.Cause.Kind != saga.CauseFailed || !strings.Contains(r.Cause.Text, "MaxState") {
		w.Errorf("cause %+v, want the size of the data", r.Cause)
	}
	w.has("42", "attempt.failed grow", 3)
	w.ledger(nil)
}

// localMessageLost: the message that runs a local step is dead-lettered; the step is run again after its timeout.
func localMessageLost[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.StepTimeout = 2 * time.Second })
	s := w.register(define(w.localStep("book", nil)))
	broken := false
	w.tamper("postrider.saga.local", func(m *postrider.Message) {
		if !broken {
			broken, m.Headers["postrider-saga-attempt"] = true, "none"
		}
	})
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.dead("engine")
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"book": 1})
	w.hasSome("42", "command.sent book", 2)
}

func endsAtOnce[Tx any](w *world[Tx]) {
	never := reserveStep()
	never.OnlyIf = func(order) bool { return false }
	s := w.register(define(never))
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Completed)
	w.announced(1)
	w.ledger(nil)
}

func timer[Tx any](w *world[Tx]) {
	wait := reviewStep(500 * time.Millisecond)
	wait.TimedOut = func(o *order) { o.Reviewed = "nobody" }
	s := w.register(define(reserveStep(), wait, chargeStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Completed); r.Data.Reviewed != "nobody" {
		w.Errorf("data %+v, want the timeout", r.Data)
	}
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}

func continues[Tx any](w *world[Tx]) {
	charged := chargeStep()
	charged.Refused = func(o *order, r saga.Refusal) { o.Payment = r.Reason }
	s := w.register(define(reserveStep(), charged))
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Completed); r.Data.Payment != "limit" {
		w.Errorf("data %+v, want the refusal", r.Data)
	}
	w.ledger(map[string]int{"reserve": 1})
}
