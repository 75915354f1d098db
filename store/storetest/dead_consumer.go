package storetest

import (
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

func consumerTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "DeadLettersSayTheirSide", run: deadLettersSayTheirSide[Tx]},
		{name: "RedriveIsNotSwallowedByTheClaim", run: redriveOfAConsumer[Tx]},
		{name: "StatusTellsWhatConsumersRemember", run: consumersAreDescribed[Tx]},
	}
}

// claimAndDeadLetter claims and dead-letters messages in a transaction, as a consumer does.
func (e *inboxEnv[Tx]) claimAndDeadLetter(consumer string, msgs ...*postrider.Message) {
	e.t.Helper()
	e.inTx(func(tx Tx) {
		var dead []store.ParkRequest
		for _, m := range msgs {
			e.claim(tx, consumer, m.ID)
			dead = append(dead, store.ParkRequest{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "cause of " + m.ID})
		}
		e.must(e.store.Park(e.ctx, tx, consumer, dead), "dead-letter")
	})
}

func deadLettersSayTheirSide[Tx any](e *inboxEnv[Tx]) {
	e.consumer("c")
	w := e.worker("r", "a")
	out := w.deadLetter("rejected", e.message("order/1"))
	in := e.message("order/1")
	e.claimAndDeadLetter("c", in)
	for _, l := range e.deadLetters(everyOpen) {
		want := map[string]store.Kind{"r": store.KindRelay, "c": store.KindConsumer}[l.Relay]
		if l.Side != want {
			e.t.Errorf("letter of %s is on side %q", l.Relay, l.Side)
		}
	}
	e.wantIDs("of relays", e.deadIDs(store.DeadFilter{Side: store.KindRelay}), out)
	e.wantIDs("of consumers", e.deadIDs(store.DeadFilter{Side: store.KindConsumer}), []string{in.ID})
	e.redrive(store.DeadFilter{Side: store.KindConsumer}, 1)
	e.wantIDs("left", e.deadIDs(everyOpen), out)
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due at a relay that has given up nothing: %+v", due.Runs)
	}
}

func redriveOfAConsumer[Tx any](e *inboxEnv[Tx]) {
	w, other := e.consumer("c"), e.consumer("other")
	m := e.message("order/1")
	e.claimAndDeadLetter("c", m)
	r := e.startRedrive(store.DeadFilter{Relay: "c"})
	e.drive(r.ID)
	again := w.firstDue()
	e.inTx(func(tx Tx) {
		if !e.take(tx, "c", again) {
			e.t.Error("a redriven message is not there")
		}
	})
	if again.ID != m.ID || len(other.due().Runs) > 0 {
		e.t.Errorf("due: %+v, and at another consumer of the topic: %+v", again, other.due().Runs)
	}
	shown, err := e.ShowRedrive(e.ctx, r.ID)
	if e.must(err, "show"); *shown.Outcome != (store.RedriveOutcome{Delivered: 1}) {
		e.t.Errorf("outcome: %+v", shown.Outcome)
	}
}

func consumersAreDescribed[Tx any](e *inboxEnv[Tx]) {
	status, ok := any(e.store).(store.StatusReader)
	if !ok {
		e.t.Fatalf("%T is no store.StatusReader", e.store)
	}
	e.worker("r", "a")
	e.consumer("ids")
	e.consumer("none")
	for range store.CountLimit/1_000 + 1 {
		ids := make([]store.ClaimRequest, 1_000)
		for i := range ids {
			ids[i].ID = e.message("").ID
		}
		e.inTx(func(tx Tx) {
			_, err := e.store.Claim(e.ctx, tx, "ids", ids)
			e.must(err, "claim")
		})
	}
	e.clockMoves(5 * time.Millisecond)
	got, err := status.Consumers(e.ctx)
	e.must(err, "status of consumers")
	if len(got) != 2 || got[0].Name != "ids" || got[1].Name != "none" {
		e.t.Fatalf("consumers: %+v", got)
	}
	id, none := got[0], got[1]
	if id.Remembered != (store.Count{N: store.CountLimit, AtLeast: true}) || id.Oldest <= 0 || id.Oldest > time.Minute || len(id.Watermarks) > 0 {
		e.t.Errorf("consumer with IDs: %+v", id)
	}
	if none.Remembered.N != 0 || none.Oldest != 0 || len(none.Watermarks) > 0 {
		e.t.Errorf("consumer that has consumed nothing: %+v", none)
	}
}
