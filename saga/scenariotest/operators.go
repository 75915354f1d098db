package scenariotest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

func ask[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), saga.Ask[order]{
		Name: "release", Question: func(o order) string { return "Release " + o.ID + "?" }, Options: []string{"release", "reject"},
		Roles: []string{"finance", "legal"}, Timeout: 48 * time.Hour, Answered: func(o *order, a saga.Answer) error {
			o.Reviewed = a.Actor
			if a.Option == "reject" {
				return saga.Refuse("rejected", nil)
			}
			return nil
		},
	}))
	w.runEngine()
	w.runParticipants()
	asked := func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "release" }
	for id, option := range map[string]string{"41": "release", "42": "reject"} {
		w.start(s, order{ID: id})
		w.becomes(s, id, "waiting for the answer", asked)
		if refused := w.operate(id, saga.Operation{Verb: saga.AnswerAsk, Step: "release", Option: "maybe"}); !strings.Contains(refused, "not an option") {
			w.Errorf("an answer that is not an option: %q", refused)
		}
		w.asks(id, "Release "+id+"?", 48*time.Hour)
		if refused := w.operate(id, saga.Operation{Verb: saga.AnswerAsk, Step: "release", Option: option, Actor: "ann", Role: "finance"}); refused != "" {
			w.Errorf("the first answer was refused: %s", refused)
		}
		if refused := w.operate(id, saga.Operation{Verb: saga.AnswerAsk, Step: "release", Option: "release", Actor: "bob"}); refused == "" {
			w.Error("the second answer was not refused")
		}
		w.has(id, "answer release", 1)
		w.has(id, "answer.role release", 1)
		w.asks(id, "", 0)
	}
	if r := w.ends(s, "41", saga.Completed); r.Data.Reviewed != "ann" {
		w.Errorf("data %+v, want ann's answer", r.Data)
	}
	if r := w.ends(s, "42", saga.Compensated); r.Cause.Reason != "rejected" {
		w.Errorf("cause %+v, want the rejection", r.Cause)
	}
	unanswered := define(saga.Ask[order]{
		Name: "release", Question: func(order) string { return "Release it?" }, Options: []string{"yes"}, Timeout: scaled(w, time.Minute, time.Second)})
	unanswered.Name = "unanswered"
	patient := w.register(unanswered)
	w.start(patient, order{ID: "43"})
	if r := w.ends(patient, "43", saga.Compensated); r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "release" {
		w.Errorf("cause %+v, want that nobody answered", r.Cause)
	}
	w.ledger(map[string]int{"reserve": 1})
}

func signals[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.MaxSignals = 2 })
	s := w.register(define(w.localStep("book", nil), reserveStep(), reviewStep(time.Hour)))
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.signal("42", "early") // reserve has not been done
	w.signal("42", "second")
	w.signal("42", "too many")
	if reason := w.dead("engine"); reason != saga.ReasonNotApplicable {
		w.Errorf("the third signal was dead-lettered for %q, want %q", reason, saga.ReasonNotApplicable)
	}
	w.runParticipants()
	if r := w.ends(s, "42", saga.Completed); r.Data.Reviewed != "early" {
		w.Errorf("data %+v, want the first signal", r.Data)
	}
	w.signal("42", "after the end")
	w.has42Late("review")
}

func forced[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), shipStep(), chargeStep()))
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	if refused := w.operate("42", saga.Operation{Verb: saga.Compensate}); !strings.Contains(refused, "past its pivot") {
		w.Errorf("compensate past the pivot: %q", refused)
	}
	if refused := w.operate("42", saga.Operation{Verb: saga.Compensate, Force: true}); refused != "" {
		w.Errorf("forced compensation was refused: %s", refused)
	}
	r := w.becomes(s, "42", "stuck at ship", func(r saga.Result[order]) bool {
		return r.Status == saga.Stuck && len(r.Waiting) == 1 && r.Waiting[0] == "ship"
	})
	if refused := w.operate("42", saga.Operation{Verb: saga.Skip, Step: "ship", Rev: r.Rev}); refused != "" {
		w.Errorf("the release of ship was refused: %s", refused)
	}
	w.ends(s, "42", saga.Abandoned)
	w.ledger(map[string]int{"ship": 1})
	w.has("42", "step.released ship", 1)
}

func twoOperators[Tx any](w *world[Tx]) {
	s := w.register(define(reviewStep(time.Hour)))
	w.runEngine()
	w.start(s, order{ID: "42"})
	r := w.becomes(s, "42", "waiting", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 })
	if refused := w.operate("42", saga.Operation{Verb: saga.Pause, Rev: r.Rev, Actor: "ann"}); refused != "" {
		w.Errorf("the first operation was refused: %s", refused)
	}
	if refused := w.operate("42", saga.Operation{Verb: saga.Abandon, Rev: r.Rev, Actor: "bob"}); !strings.Contains(refused, "moved on") {
		w.Errorf("the second operation on the same revision: %q", refused)
	}
	if refused := w.operate("42", saga.Operation{Verb: saga.Abandon}); refused != "" {
		w.Errorf("abandon was refused: %s", refused)
	}
	w.ends(s, "42", saga.Abandoned)
}

func edit[Tx any](w *world[Tx]) {
	s := w.register(define(reviewStep(time.Hour), reserveStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42", Method: "card"})
	if refused := w.operate("42", saga.Operation{Verb: saga.Edit, Patch: json.RawMessage(`{"method": 7}`)}); refused == "" {
		w.Error("data of the wrong type were not refused")
	}
	if refused := w.operate("42", saga.Operation{Verb: saga.Edit, Patch: json.RawMessage(`{"method": "account"}`)}); refused != "" {
		w.Errorf("edit was refused: %s", refused)
	}
	w.signal("42", "s1")
	if r := w.ends(s, "42", saga.Completed); r.Data.Method != "account" {
		w.Errorf("data %+v, want the edited method", r.Data)
	}
	patches := ""
	for t, err := range w.engine.History(w.Context(), "42") {
		w.must(err)
		patches += string(t.Patch)
	}
	if want := `[{"path":["method"],"before":"card","after":"account"}]`; !strings.Contains(patches, want) {
		w.Errorf("the history's patches are %s, want %s among them", patches, want)
	}
	w.methodsOf("42")
}

// methodsOf checks that the data before an edit are those of the start, and the last ones those that are stored.
func (w *world[Tx]) methodsOf(id string) {
	w.Helper()
	o := saga.NewOperator(w.store)
	in, err := w.store.ShowSaga(w.Context(), id)
	w.must(err)
	var first, last order
	for rev, to := range map[int64]*order{1: &first, in.Rev: &last} {
		data, err := o.DataAt(w.Context(), id, rev)
		w.must(err)
		w.must(json.Unmarshal(data, to))
	}
	var stored order
	w.must(json.Unmarshal(in.Data, &stored))
	if first.Method != "card" || !reflect.DeepEqual(last, stored) {
		w.Errorf("the first data are %+v and the last %+v, want those of the start and %+v", first, last, stored)
	}
	for _, rev := range []int64{0, -1, in.Rev + 1} {
		if data, err := o.DataAt(w.Context(), id, rev); !errors.Is(err, saga.ErrNotFound) {
			w.Errorf("revision %d is %s (%v)", rev, data, err)
		}
	}
}

func skipAndDone[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), chargeStep(), reviewStep(time.Hour)))
	w.onDo("reserve", func(Tx, *postrider.Message) error { return postrider.Dead("broken", nil) })
	w.onDo("charge", func(Tx, *postrider.Message) error { return postrider.Dead("broken", nil) })
	w.runEngine()
	w.start(s, order{ID: "42"})
	w.runParticipants()
	if refused := w.operate("42", saga.Operation{Verb: saga.Skip, Step: "reserve"}); refused != "" {
		w.Errorf("skip was refused: %s", refused)
	}
	w.becomes(s, "42", "waiting for charge", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "charge" })
	if refused := w.operate("42", saga.Operation{Verb: saga.Done, Step: "charge", Patch: json.RawMessage(`{"payment": "by hand"}`)}); refused != "" {
		w.Errorf("done was refused: %s", refused)
	}
	w.signal("42", "s1")
	if r := w.ends(s, "42", saga.Completed); r.Data.Payment != "by hand" {
		w.Errorf("data %+v, want the payment by hand", r.Data)
	}
	w.has("42", "undo.sent reserve", 1) // its command was sent
	w.has("42", "step.undone reserve", 1)
	w.ledger(nil)
}

// versionMissing: an instance waits for a process that has its version.
func versionMissing[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep()))
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.engine = w.newEngine()
	w.runEngine()
	time.Sleep(200 * time.Millisecond)
	if r, err := s.Get(w.Context(), "42"); err != nil || r.Status != saga.Running {
		w.Fatalf("the instance is %s (%v), want it to wait", r.Status, err)
	}
	w.stop["engine"]()
	w.engine = w.newEngine()
	s = w.register(define(reserveStep()))
	w.run("engine", []string{w.engine.Topic()}, func(r *relay.Relay) error { return w.engine.Relay(r) })
	w.endsAnyhow(s, "42")
}

// endsAnyhow waits for the end of an instance: completed, or compensated because its reply had to wait for too long.
func (w *world[Tx]) endsAnyhow(s *saga.Saga[Tx, order], id string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	r, err := s.Wait(ctx, id)
	w.must(err)
	switch r.Status {
	case saga.Completed:
		w.ledger(map[string]int{"reserve": 1})
	case saga.Compensated:
		w.ledger(nil)
	default:
		w.Errorf("instance %s ended %s", id, r.Status)
	}
}

// builderPanics: a builder that panics makes its step stuck; it is retried after a fix.
func builderPanics[Tx any](w *world[Tx]) {
	charged := chargeStep()
	charged.Command = func(o order) item {
		if o.Method == "" {
			panic("no method")
		}
		return item{o.ID}
	}
	s := w.register(define(reserveStep(), charged))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	w.becomes(s, "42", "stuck", func(r saga.Result[order]) bool { return r.Status == saga.Stuck })
	for _, o := range []saga.Operation{{Verb: saga.Edit, Patch: json.RawMessage(`{"method": "card"}`)}, {Verb: saga.Retry, Step: "charge"}} {
		if refused := w.operate("42", o); refused != "" {
			w.Errorf("%s was refused: %s", o.Verb, refused)
		}
	}
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}

// pauseAndResume: while an instance is paused, nothing is sent and its times stand still.
func pauseAndResume[Tx any](w *world[Tx]) {
	wait := reviewStep(10 * time.Second)
	s := w.register(define(wait, reserveStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "42"})
	if refused := w.operate("42", saga.Operation{Verb: saga.Pause}); refused != "" {
		w.Errorf("pause was refused: %s", refused)
	}
	time.Sleep(11 * time.Second) // longer than the step's timeout
	w.signal("42", "s1")
	w.becomes(s, "42", "reviewed", func(r saga.Result[order]) bool { return r.Data.Reviewed == "s1" })
	w.has("42", "command.sent reserve", 0)
	if refused := w.operate("42", saga.Operation{Verb: saga.Resume}); refused != "" {
		w.Errorf("resume was refused: %s", refused)
	}
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"reserve": 1})
}

func cancel[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), reviewStep(time.Hour), shipStep(), saga.Await[order, item]{
		Name: "received", Signal: postrider.Define[item]("order.received"), Timeout: saga.NoTimeout}))
	w.runEngine()
	w.runParticipants()
	for _, id := range []string{"41", "42"} {
		w.start(s, order{ID: id})
		w.becomes(s, id, "in review", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "review" })
	}
	if refused := w.operate("41", saga.Operation{Verb: saga.Cancel, Reason: "changed her mind"}); refused != "" {
		w.Errorf("cancel before the pivot was refused: %s", refused)
	}
	if r := w.ends(s, "41", saga.Compensated); r.Cause.Kind != saga.CauseCancelled || r.Cause.Reason != "changed her mind" {
		w.Errorf("cause %+v, want the cancellation", r.Cause)
	}
	w.signal("42", "s1")
	w.becomes(s, "42", "shipped", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "received" })
	if refused := w.operate("42", saga.Operation{Verb: saga.Cancel}); !strings.Contains(refused, "past its pivot") {
		w.Errorf("cancel after the pivot: %q", refused)
	}
	w.ledger(map[string]int{"reserve": 1, "ship": 1})
}

// operate performs an operation on an instance; it waits for the outcome and returns why it was refused.
func (w *world[Tx]) operate(id string, o saga.Operation) string {
	w.Helper()
	o.Actor, o.Reason = cmp.Or(o.Actor, "ann"), cmp.Or(o.Reason, "test")
	var operation string
	w.inTx(func(ctx context.Context, tx Tx) (err error) {
		operation, err = w.engine.Operate(ctx, tx, id, o)
		return err
	})
	for begun := time.Now(); time.Since(begun) < patience; rest(begun) {
		outcome, err := w.engine.Outcome(w.Context(), id, operation)
		w.must(err)
		if outcome.Handled {
			return outcome.Refused
		}
	}
	w.Fatalf("operation %+v on %s was not handled", o, id)
	return ""
}
