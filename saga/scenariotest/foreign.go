package scenariotest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// foreign is a participant that is not one of package saga: it keeps no records, and answers as a test says.
type foreign[Tx any] struct {
	*world[Tx]
	mu       sync.Mutex
	commands map[string]*postrider.Message // by instance, step and attempt
	answers  func(m *postrider.Message) (outcome string, payload any)
}

// runForeign runs a foreign participant that does all steps of the shop. An outcome of "" is no answer.
func (w *world[Tx]) runForeign(answers func(m *postrider.Message) (outcome string, payload any)) *foreign[Tx] {
	f := &foreign[Tx]{world: w, commands: make(map[string]*postrider.Message), answers: answers}
	w.run("foreign", participantTopics, func(r *relay.Relay) error {
		for _, step := range []string{"stock.reserve", "card.charge", "parcel.ship"} {
			for _, suffix := range []string{"", ".undo", ".closed"} {
				if err := relay.HandleTxFunc(r, step+suffix, f.handle); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return f
}

func (f *foreign[Tx]) handle(ctx context.Context, tx Tx, m *postrider.Message) error {
	if strings.HasSuffix(m.Type, ".closed") {
		return nil
	}
	f.mu.Lock()
	f.commands[m.Headers["postrider-saga"]+" "+m.Type+" "+m.Headers["postrider-saga-attempt"]] = m
	f.mu.Unlock()
	if outcome, payload := f.answers(m); outcome != "" {
		return f.answer(ctx, tx, m, outcome, payload)
	}
	return nil
}

// answer publishes the answer to a command or an undo.
func (f *foreign[Tx]) answer(ctx context.Context, tx Tx, m *postrider.Message, outcome string, payload any) error {
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	reply := &postrider.Message{
		Type: "postrider.saga.reply", Topic: m.Headers["postrider-saga-reply"], Key: m.Headers["postrider-saga-key"], Payload: text,
		Headers: map[string]string{"postrider-saga-outcome": outcome},
	}
	for _, name := range []string{"", "-run", "-step", "-token", "-attempt"} {
		reply.Headers["postrider-saga"+name] = m.Headers["postrider-saga"+name]
	}
	_, err = f.box.Publish(ctx, tx, reply)
	return err
}

// foreignIsLate: a participant without records does each of two attempts of a step after it has confirmed the undo of the step, one while
// the other steps are being undone, and one after the end. Each time the obligation is open again, and the step is undone again; but not when
// the participant repeats what it has said about an attempt.
func foreignIsLate[Tx any](w *world[Tx]) {
	reserve := reserveStep()
	reserve.Attempts, reserve.Timeout = 2, 20*time.Millisecond
	s := w.register(define(saga.Parallel[order]{Name: "both", Steps: []step{reserve, chargeStep()}}))
	f := w.runForeign(func(m *postrider.Message) (string, any) {
		if m.Type == "stock.reserve.undo" {
			return "undone", nil
		}
		return "", nil
	})
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.records("42", "step.undone both/reserve", 1)
	f.answerAttempt("stock.reserve", 1, "done")
	w.records("42", "step.undone both/reserve", 2)
	f.answerAttempt("stock.reserve", 1, "done")
	w.records("42", "late both/reserve", 1)
	f.answerAttempt("card.charge", 1, "done") // its undo has not been confirmed: that takes back what it did
	f.answerAttempt("card.charge.undo", 1, "undone")
	w.ends(s, "42", saga.Compensated)
	f.answerAttempt("stock.reserve", 2, "done")
	w.records("42", "step.undone both/reserve", 3)
	w.ends(s, "42", saga.Compensated)
	f.answerAttempt("stock.reserve", 2, "done")
	w.records("42", "late both/reserve", 2)
	w.ends(s, "42", saga.Compensated)
	w.has("42", "late.effect both/reserve", 2)
	w.has("42", "late.effect both/charge", 0)
	w.has("42", "undo.sent both/reserve", 3)
	w.announced(1)
}

// foreignRepeats: a participant without records says again that it did a step, which has been undone since. That is no second effect,
// unless it does not say which attempt it is about.
func foreignRepeats[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep()))
	f := w.runForeign(func(m *postrider.Message) (string, any) {
		switch m.Type {
		case "stock.reserve":
			return "done", item{"7"}
		case "card.charge":
			return "refused", saga.Refusal{Reason: "limit"}
		default:
			return "undone", nil
		}
	})
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.ends(s, "42", saga.Compensated)
	f.answerAttempt("stock.reserve", 1, "done")
	w.records("42", "late reserve", 1)
	w.ends(s, "42", saga.Compensated)
	w.has("42", "late.effect reserve", 0)
	w.has("42", "undo.sent reserve", 1)

	unnumbered := *f.attempt("stock.reserve", 1)
	unnumbered.Headers = maps.Clone(unnumbered.Headers)
	delete(unnumbered.Headers, "postrider-saga-attempt")
	w.inTx(func(ctx context.Context, tx Tx) error { return f.answer(ctx, tx, &unnumbered, "done", item{"late"}) })
	w.records("42", "step.undone reserve", 2)
	w.ends(s, "42", saga.Compensated)
	w.has("42", "late.effect reserve", 1)
}

// attempt returns an attempt of a command or undo for instance 42, once there is one.
func (f *foreign[Tx]) attempt(messageType string, number int) (m *postrider.Message) {
	f.Helper()
	f.await(messageType, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		m = f.commands[fmt.Sprint("42 ", messageType, " ", number)]
		return m != nil
	})
	return m
}

// answerAttempt answers an attempt of a command or undo for instance 42.
func (f *foreign[Tx]) answerAttempt(messageType string, number int, outcome string) {
	f.Helper()
	m := f.attempt(messageType, number)
	f.inTx(func(ctx context.Context, tx Tx) error { return f.answer(ctx, tx, m, outcome, item{"late"}) })
}
