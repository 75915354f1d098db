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
	e.consumer("by-id")
	e.consumer("by-mark")
	for range store.CountLimit/1_000 + 1 {
		ids := make([]store.ClaimRequest, 1_000)
		for i := range ids {
			ids[i].ID = e.message("").ID
		}
		e.inTx(func(tx Tx) {
			_, err := e.store.Claim(e.ctx, tx, "by-id", ids)
			e.must(err, "claim")
		})
	}
	e.inTx(func(tx Tx) {
		for _, at := range []postrider.Position{{Partition: "b", Incarnation: "1", Offset: 7}, {Partition: "a", Incarnation: "2", Offset: 3}, {Partition: "a", Incarnation: "1", Offset: 9}, {Partition: "b", Incarnation: "1", Offset: 8}} {
			_, err := e.store.Watermark(e.ctx, tx, "by-mark", at)
			e.must(err, "watermark")
			e.must(e.store.SetWatermark(e.ctx, tx, "by-mark", at, nil), "set watermark")
		}
	})
	e.clockMoves(5 * time.Millisecond)
	got, err := status.Consumers(e.ctx)
	e.must(err, "status of consumers")
	if len(got) != 2 || got[0].Name != "by-id" || got[1].Name != "by-mark" {
		e.t.Fatalf("consumers: %+v", got)
	}
	id, mark := got[0], got[1]
	if id.Remembered != (store.Count{N: store.CountLimit, AtLeast: true}) || id.Oldest <= 0 || id.Oldest > time.Minute || len(id.Watermarks) > 0 {
		e.t.Errorf("consumer by ID: %+v", id)
	}
	want := []store.WatermarkStatus{{Partition: "a", Incarnation: "1", Offset: 9}, {Partition: "a", Incarnation: "2", Offset: 3}, {Partition: "b", Incarnation: "1", Offset: 8}}
	if len(mark.Watermarks) != len(want) || mark.Remembered.N != 0 || mark.Oldest != 0 {
		e.t.Fatalf("consumer by watermark: %+v", mark)
	}
	for i, w := range want {
		got := mark.Watermarks[i]
		if got.Moved <= 0 || got.Moved > time.Minute {
			e.t.Errorf("watermark %d moved %s ago, want a moment", i, got.Moved)
		}
		if got.Moved = 0; got != w {
			e.t.Errorf("watermark %d: %+v, want %+v", i, got, w)
		}
	}
}
