package scenariotest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/saga"
)

// undoOvertakes: the undo arrives before its command, which is refused then.
func undoOvertakes[Tx any](w *world[Tx]) {
	s := w.register(define(within(time.Second, reserveStep())))
	w.tamper("stock.reserve", func(m *postrider.Message) { m.Topic = "detour" })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	w.has("42", "step.undone reserve", 1)
	w.run("detour", []string{"detour"}, w.newParticipant(w.store, w.box).Relay)
	w.records("42", "late reserve", 1) // its refusal
	w.ledger(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.done["reserve"]; n > 0 {
		w.Errorf("reserve was done %d times, want that it is refused", n)
	}
}

// replyLost: the answer to the first command is lost; the second one is answered alike, and has no effect of its own.
func replyLost[Tx any](w *world[Tx]) {
	again := within(time.Second, reserveStep())
	again.Attempts = 1000
	s := w.register(define(again))
	w.tamper("postrider.saga.reply", func(m *postrider.Message) {
		if m.Headers["postrider-saga-attempt"] == "1" {
			m.Topic = "nowhere"
		}
	})
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Completed); r.Data.Stock != "reserve of 42" {
		w.Errorf("data %+v, want the first answer", r.Data)
	}
	w.hasSome("42", "command.sent reserve", 2)
	w.ledger(map[string]int{"reserve": 1})
}

// poisonReply: a reply that cannot be decoded is dead-lettered, and the step times out and is undone.
func poisonReply[Tx any](w *world[Tx]) {
	s := w.register(define(within(time.Second, reserveStep())))
	w.runEngine()
	w.tamper("postrider.saga.reply", func(m *postrider.Message) { m.Payload = []byte("{") })
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if reason := w.dead("engine"); reason != saga.ReasonNotApplicable {
		w.Errorf("the reply was dead-lettered for %q, want %q", reason, saga.ReasonNotApplicable)
	}
	if r := w.ends(s, "42", saga.Compensated); r.Cause == nil || r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "reserve" {
		w.Errorf("cause %+v, want a timeout of reserve", r.Cause)
	}
	w.ledger(nil)
}

// deadCommand: a command that is a dead letter at its participant is one without an answer. Redriven in time, it takes the saga on; after
// its timeout the saga is compensated, and redriving has no effect any more.
func deadCommand[Tx any](w *world[Tx]) {
	patient, hasty := define(reserveStep(), chargeStep()), define(reserveStep(), within(time.Second, chargeStep()))
	hasty.Version = 2
	sagas := []*saga.Saga[Tx, order]{w.register(patient), w.register(hasty)}
	var broken atomic.Bool
	broken.Store(true)
	w.onDo("charge", func(Tx, *postrider.Message) error {
		if broken.Load() {
			return postrider.Dead("broken", errors.New("for this command"))
		}
		return nil
	})
	w.runEngine()
	w.runParticipants()
	w.start(sagas[0], order{ID: "41"})
	if reason := w.dead("participants"); reason != "broken" {
		w.Errorf("the command was dead-lettered for %q", reason)
	}
	broken.Store(false)
	w.redrive()
	w.ends(sagas[0], "41", saga.Completed)

	broken.Store(true)
	w.start(sagas[1], order{ID: "42"})
	if r := w.ends(sagas[1], "42", saga.Compensated); r.Cause == nil || r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "charge" {
		w.Errorf("cause %+v, want a timeout of charge", r.Cause)
	}
	broken.Store(false)
	w.redrive()
	w.has42Late("charge") // refused, since it was undone before
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}

func notFound[Tx any](w *world[Tx]) {
	s := w.register(define(reviewStep(time.Hour)))
	w.runEngine()
	w.signal("42", "early")
	time.Sleep(100 * time.Millisecond)
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Completed); r.Data.Reviewed != "early" {
		w.Errorf("data %+v, want the early signal", r.Data)
	}
	w.signal("nobody", "lost")
	if reason := w.dead("engine"); reason != saga.ReasonNotFound {
		w.Errorf("the signal was dead-lettered for %q, want %q", reason, saga.ReasonNotFound)
	}
}

// writing is a writer of lines.
type writing func(line string)

func (f writing) Write(line []byte) (int, error) {
	f(string(line))
	return len(line), nil
}

// removed: what comes for an instance that was removed is not dropped in silence: a reply is a
// dead letter, and a timer is counted and in the log.
func removed[Tx any](w *world[Tx]) {
	var timers, counted atomic.Int32
	w.engine = w.newEngine(func(c *saga.Config) {
		c.Observer = &observe.Saga{Ignored: func(string) { counted.Add(1) }}
		c.Logger = slog.New(slog.NewTextHandler(writing(func(line string) {
			if strings.Contains(line, "purged") && strings.Contains(line, "type=postrider.saga.timer") {
				timers.Add(1)
			}
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s := w.register(define(reserveStep()))
	var reply, timer postrider.Message
	w.tamper("postrider.saga.reply", func(m *postrider.Message) { reply = *m })
	w.tamper("postrider.saga.timer", func(m *postrider.Message) { timer = *m })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Completed)
	w.await("its removal", func() bool {
		_, err := w.store.PurgeSagas(w.Context(), "shop", 0, 10)
		w.must(err)
		_, err = s.Get(w.Context(), "42")
		return errors.Is(err, saga.ErrNotFound)
	})
	w.mu.Lock()
	late := []*postrider.Message{new(reply), new(timer)}
	w.mu.Unlock()
	for _, m := range late {
		m.ID, m.DeliverAt, m.DeliverAfter = "", time.Time{}, 0
	}
	w.inTx(func(ctx context.Context, tx Tx) error {
		_, err := w.box.Publish(ctx, tx, late...)
		return err
	})
	if reason := w.dead("engine"); reason != saga.ReasonNotFound {
		w.Errorf("the reply was dead-lettered for %q, want %q", reason, saga.ReasonNotFound)
	}
	w.await("the timer", func() bool { return timers.Load() > 0 })
	w.await("the timer's count", func() bool { return counted.Load() == timers.Load() })
	w.ledger(map[string]int{"reserve": 1})
}
