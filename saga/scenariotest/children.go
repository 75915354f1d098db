package scenariotest

import (
	"errors"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// payment is a saga of these steps that an order starts.
func payment(steps ...step) saga.Definition[order] {
	return saga.Definition[order]{Name: "payment", Version: 1, Steps: steps}
}

// paymentStep starts a payment.
func paymentStep(d saga.Definition[order]) saga.Child[order, order] {
	return saga.Child[order, order]{
		Name: "pay", Saga: d, Data: func(o order) order { return order{ID: o.ID, Method: o.Method} },
		Done: func(o *order, child order) { o.Payment = child.Payment },
	}
}

// childOf waits until an instance has started one in its step "pay", and returns it.
func (w *world[Tx]) childOf(id string) store.SagaSummary {
	w.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		parent, err := w.store.ShowSaga(w.Context(), id)
		w.must(err)
		found, err := w.store.ListSagas(w.Context(), store.SagaFilter{ParentRun: parent.Run}, "", 2)
		w.must(err)
		if len(found) == 1 && found[0].ParentStep == "pay" && found[0].CorrelationID == parent.CorrelationID {
			return found[0]
		}
		if len(found) > 1 {
			w.Fatalf("instance %s has started %+v", id, found)
		}
	}
	w.Fatalf("instance %s has started no other; history:\n%s", id, w.historyText(id))
	return store.SagaSummary{}
}

func child[Tx any](w *world[Tx]) {
	paying := payment(chargeStep(), w.localStep("book", nil))
	pay := w.register(paying)
	s := w.register(define(reserveStep(), paymentStep(paying), shipStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "41"})
	if r := w.ends(s, "41", saga.Completed); r.Data.Payment != "book" || r.Data.Parcel != "ship of 41" {
		w.Errorf("data %+v, want those of the payment", r.Data)
	}
	w.ends(pay, w.childOf("41").ID, saga.Completed)
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "book": 1, "ship": 1})
	w.purges(3) // also the record of the payment's step

	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.start(s, order{ID: "42"})
	if r := w.ends(s, "42", saga.Compensated); r.Cause.Step != "pay" || r.Cause.Reason != "limit" {
		w.Errorf("cause %+v, want the refusal of the payment", r.Cause)
	}
	w.ends(pay, w.childOf("42").ID, saga.Compensated)
	w.ledger(map[string]int{"reserve": 1, "charge": 1, "book": 1, "ship": 1})
}

// childUndone: an order that is compensated takes its payment back, completed or not.
func childUndone[Tx any](w *world[Tx]) {
	paying := payment(chargeStep(), reviewStep(saga.NoTimeout))
	pay := w.register(paying)
	s := w.register(define(paymentStep(paying), shipStep()))
	w.onDo("ship", func(Tx, *postrider.Message) error { return saga.Refuse("no parcels", nil) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "41"})
	paid := w.childOf("41").ID
	if why := w.operate(paid, saga.Operation{Verb: saga.Cancel}); why == "" {
		w.Error("the payment of an order was cancelled by itself")
	}
	w.signal(paid, "s1")
	w.ends(s, "41", saga.Compensated)
	w.ends(pay, paid, saga.Compensated)
	w.ledger(nil)

	w.start(s, order{ID: "42"})
	paid = w.childOf("42").ID
	w.becomes(pay, paid, "waiting for a signal", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
	w.operate("42", saga.Operation{Verb: saga.Cancel})
	w.ends(s, "42", saga.Compensated)
	if r := w.ends(pay, paid, saga.Compensated); r.Cause.Kind != saga.CauseCancelled {
		w.Errorf("cause %+v, want it cancelled", r.Cause)
	}
	w.ledger(nil)
}

// childPastPivot: a payment that is past its pivot cannot be undone, so the order continues.
func childPastPivot[Tx any](w *world[Tx]) {
	pivot := chargeStep()
	pivot.Pivot = true
	paying := payment(pivot, reviewStep(saga.NoTimeout))
	pay := w.register(paying)
	step := paymentStep(paying)
	if _, err := saga.Register(w.newEngine(), define(step, shipStep())); err == nil {
		w.Error("a child with a pivot is accepted in front of a step that can fail")
	}
	step.Pivot = true
	s := w.register(define(step, reserveStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	paid := w.childOf("42").ID
	w.becomes(pay, paid, "waiting for a signal", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
	w.operate("42", saga.Operation{Verb: saga.Cancel})
	w.signal(paid, "s1")
	w.ends(pay, paid, saga.Completed)
	if r := w.ends(s, "42", saga.Completed); r.Data.Payment != "charge of 42" {
		w.Errorf("data %+v, want the payment", r.Data)
	}
	w.has("42", "turned forward pay", 1)
	w.ledger(map[string]int{"charge": 1, "reserve": 1})
}

// childStuck: an order waits for its payment as long as that is stuck.
func childStuck[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.UndoTimeout, c.UndoAttempts = time.Millisecond, 1 })
	paying := payment(chargeStep(), shipStep())
	step := paymentStep(paying)
	step.Pivot = true
	pay, s := w.register(paying), w.register(define(step))
	w.onUndo("charge", func() error { return errors.New("the refund is broken") })
	w.onDo("ship", func(Tx, *postrider.Message) error { return saga.Refuse("no parcels", nil) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	paid := w.childOf("42").ID
	w.becomes(pay, paid, "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	if r, err := s.Get(w.Context(), "42"); err != nil || r.Status != saga.Running || len(r.Waiting) != 1 || r.Waiting[0] != "pay" {
		w.Errorf("the order is %s and waits for %q (%v), want it to wait for its payment", r.Status, r.Waiting, err)
	}
	w.operate(paid, saga.Operation{Verb: saga.Undone, Step: "charge"})
	w.ends(pay, paid, saga.Compensated)
	w.ends(s, "42", saga.Compensated)
}

// childAbandoned: nobody knows what an abandoned payment has done, so that an operator decides about the order, too.
func childAbandoned[Tx any](w *world[Tx]) {
	paying := payment(reviewStep(saga.NoTimeout))
	w.register(paying)
	s := w.register(define(reserveStep(), paymentStep(paying)))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.operate(w.childOf("42").ID, saga.Operation{Verb: saga.Abandon})
	stuck := func(r saga.Result[order]) bool { return r.Status == saga.Stuck }
	r := w.becomes(s, "42", "stuck", stuck)
	w.operate("42", saga.Operation{Verb: saga.Retry})
	w.becomes(s, "42", "stuck again", func(again saga.Result[order]) bool { return stuck(again) && again.Rev > r.Rev+1 })
	w.childOf("42") // the same
	w.operate("42", saga.Operation{Verb: saga.Compensate})
	w.becomes(s, "42", "stuck while compensating", func(r saga.Result[order]) bool { return stuck(r) && r.Cause != nil })
	w.operate("42", saga.Operation{Verb: saga.Undone, Step: "pay"})
	w.ends(s, "42", saga.Compensated)
	w.ledger(nil)
}

// childKeyHeld: the step is refused if another instance has the key of the one to start.
func childKeyHeld[Tx any](w *world[Tx]) {
	paying := payment(reviewStep(saga.NoTimeout))
	paying.Key = func(o order) string { return o.Method }
	pay := w.register(paying)
	s := w.register(define(reserveStep(), paymentStep(paying)))
	w.runEngine()
	w.runParticipants()
	w.start(pay, order{ID: "own", Method: "card"})
	w.start(s, order{ID: "42", Method: "card"})
	if r := w.ends(s, "42", saga.Compensated); r.Cause.Step != "pay" || r.Cause.Reason != "key" {
		w.Errorf("cause %+v, want the refusal of the key", r.Cause)
	}
	w.ledger(nil)
	w.signal("own", "s1")
	w.ends(pay, "own", saga.Completed)
}
