package storetest

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// discardedIsOnRecord: a message discarded from the log, and one discarded while it was parked, are dead discarded that nobody has
// to decide about. They hold no key, and an open dead letter of the same settlement stays open.
func discardedIsOnRecord(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1", "order/1", "order/1")
	read := w.drain()
	p := e.partition("order/1")
	w.park("order/1", store.ParkOutcome{Sequence: read[0].Message.Sequence, Reason: store.ParkSlow, Attempts: 1, Cause: "first failure"})
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Dead: []store.DeadOutcome{
		{Sequence: read[0].Message.Sequence, Key: "order/1", Reason: "obsolete", Cause: "second failure", Attempts: 2, Discarded: true},
		{Sequence: read[1].Message.Sequence, Key: "order/1", FromLog: true, Reason: "ignored error", Attempts: 1, Discarded: true},
		{Sequence: read[2].Message.Sequence, Key: "order/1", FromLog: true, Reason: "refused", Cause: "bad", Attempts: 1},
	}})
	discarded := e.deadLetters(store.DeadFilter{State: store.DeadDiscarded})
	if len(discarded) != 2 {
		e.t.Fatalf("discarded: %+v, want two", discarded)
	}
	first, second := discarded[0], discarded[1]
	e.wantSame(first.Message, read[0].Message)
	if first.Reason != "obsolete" || first.Cause != "second failure" || first.Attempts != 2 || len(first.History) != 2 ||
		first.ResolvedBy != "r" || first.Resolution != "obsolete" || time.Since(first.ResolvedAt).Abs() > time.Minute {
		e.t.Errorf("discarded while parked: %+v", first)
	}
	if second.Reason != "ignored error" || second.Cause != "" || len(second.History) != 0 || second.ResolvedBy != "r" || second.ResolvedAt.IsZero() {
		e.t.Errorf("discarded from the log: %+v", second)
	}
	open := e.deadLetters(store.DeadFilter{})
	if len(open) != 1 || open[0].Reason != "refused" || open[0].ResolvedBy != "" || !open[0].ResolvedAt.IsZero() {
		e.t.Errorf("open: %+v, want the refused message", open)
	}
	if st := e.status("r"); st.Dead.N != 1 || st.Parked.N != 0 || st.Held.N != 0 {
		e.t.Errorf("dead %d, parked %d, held %d; want one open dead letter", st.Dead.N, st.Parked.N, st.Held.N)
	}
}

// consumerDiscards: also with hold, a discarded message holds no key.
func consumerDiscards[Tx any](e *inboxEnv[Tx]) {
	e.consumer("c")
	list := make([]store.ParkRequest, 3)
	for i := range list {
		list[i] = store.ParkRequest{
			Message: e.message(fmt.Sprint("order/", i)), Dead: &store.DeadRequest{Reason: "refused", Discarded: i < 2}, Cause: "why",
			Attempts: []store.FailedAttempt{{Cause: "why"}},
		}
	}
	e.deadLetter("c", true, list...)
	discarded := e.deadLetters(store.DeadFilter{Relay: "c", State: store.DeadDiscarded})
	if len(discarded) != 2 {
		e.t.Fatalf("discarded: %+v, want two", discarded)
	}
	for i, l := range discarded {
		e.wantSame(l.Message, list[i].Message)
		if l.ResolvedBy != "c" || l.Resolution != "refused" || l.ResolvedAt.IsZero() || l.Cause != "why" || l.Attempts != 1 {
			e.t.Errorf("discarded: %+v", l)
		}
	}
	if held := e.held("c"); len(held) != 1 || held[0].Key != "order/2" {
		e.t.Errorf("held: %+v, want only the key of the open dead letter", held)
	}
}
