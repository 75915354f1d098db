package scenariotest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// foreign is a participant that is not one of package saga: it keeps no records, and answers as a test says.
type foreign[Tx any] struct {
	*world[Tx]
	mu       sync.Mutex
	commands map[string]*postrider.Message // by instance and step, the last one
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
	f.commands[m.Headers["postrider-saga"]+" "+m.Type] = m
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

// foreignIsLate: a participant without records does a step after it has confirmed its undo, once while the other steps are being
// undone, and once after the end. Each time the obligation is open again, and the step is undone again.
func foreignIsLate[Tx any](w *world[Tx]) {
	s := w.register(define(saga.Parallel[order]{Name: "both", Steps: []step{reserveStep(), chargeStep()}}))
	f := w.runForeign(func(m *postrider.Message) (string, any) {
		if m.Type == "stock.reserve.undo" {
			return "undone", nil
		}
		return "", nil
	})
	w.runEngine()
	w.start(s, order{ID: "42"})
	if refused := w.operate("42", saga.Operation{Verb: saga.Cancel}); refused != "" {
		w.Errorf("cancel was refused: %s", refused)
	}
	w.records("42", "step.undone both/reserve", 1)
	f.answerLast("stock.reserve", "done")
	w.records("42", "step.undone both/reserve", 2)
	f.answerLast("card.charge", "done") // its undo has not been confirmed: that takes back what it did
	f.answerLast("card.charge.undo", "undone")
	w.ends(s, "42", saga.Compensated)
	f.answerLast("stock.reserve", "done")
	w.records("42", "step.undone both/reserve", 3)
	w.ends(s, "42", saga.Compensated)
	w.has("42", "late.effect both/reserve", 2)
	w.has("42", "late.effect both/charge", 0)
	w.has("42", "undo.sent both/reserve", 3)
	w.announced(1)
}

// answerLast answers the last message of a type for instance 42, once there is one.
func (f *foreign[Tx]) answerLast(messageType, outcome string) {
	f.Helper()
	var m *postrider.Message
	f.await(messageType, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		m = f.commands["42 "+messageType]
		return m != nil
	})
	f.inTx(func(ctx context.Context, tx Tx) error { return f.answer(ctx, tx, m, outcome, item{"late"}) })
}
