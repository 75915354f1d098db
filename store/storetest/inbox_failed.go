package storetest

import (
	"errors"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

func parkOf(m *postrider.Message) store.ParkRequest {
	return store.ParkRequest{Message: m, Reason: store.ParkRetry, Cause: "not yet"}
}

func deadOf(m *postrider.Message, hold bool) store.ParkRequest {
	return store.ParkRequest{Message: m, Cause: "no message", Dead: &store.DeadRequest{Reason: "undecodable", Hold: hold}}
}

func (e *inboxEnv[Tx]) write(failed ...store.ParkRequest) {
	e.t.Helper()
	e.inTx(func(tx Tx) { e.must(e.store.Park(e.ctx, tx, "c", failed), "park") })
}

// failedInOrder: parked and dead messages of one call are handled in its order once the dead ones are redriven.
func failedInOrder[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	m, others := e.messages("order/1", 5), e.messages("order/2", 2)
	e.write(deadOf(m[0], false), parkOf(m[1]), parkOf(others[0]), deadOf(m[2], false), deadOf(e.message(""), false), parkOf(m[3]),
		parkOf(e.message("")), deadOf(others[1], false), deadOf(m[4], false))
	for _, h := range e.held("c") {
		if want := map[string]string{"order/1": m[1].ID, "order/2": others[0].ID}[h.Key]; h.MessageID != want || h.Reason != store.ParkRetry {
			e.t.Errorf("held: %+v, want it blocked by the message %s that is parked", h, want)
		}
	}
	e.wantIDs("dead letters", e.deadIDs(store.DeadFilter{Key: "order/1"}), []string{m[0].ID, m[2].ID, m[4].ID})
	e.redrive(everyOpen, 5)
	seen := 0
	for _, run := range w.due().Runs {
		if want := map[string][]*postrider.Message{"order/1": m, "order/2": others}[run.Key]; want != nil {
			e.wantIDs(run.Key, recordIDs(run.Entries), ids(want))
			seen++
		}
	}
	if seen != 2 {
		e.t.Errorf("%d of the keys are due, want both", seen)
	}
}

// deadOnHeldKey: a dead letter that would not block its key, since another message does, is not written.
func deadOnHeldKey[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.park("c", store.ParkRetry, 0, e.message("order/1"))
	w.settle(store.Settlement{Partition: w.partition("order/2"), Held: []store.HeldKey{{Key: "order/2", Reason: store.ParkHeld}}})
	for name, failed := range map[string][]store.ParkRequest{
		"a key that is held":                         {deadOf(e.message("order/3"), true), deadOf(e.message("order/1"), true)},
		"a key that is held without a message":       {deadOf(e.message("order/2"), true)},
		"a key that a message of the call holds":     {parkOf(e.message("order/4")), deadOf(e.message("order/4"), true)},
		"a key that a dead letter of the call holds": {deadOf(e.message("order/5"), true), deadOf(e.message("order/5"), true)},
	} {
		tx := e.begin()
		if err := e.store.Park(e.ctx, tx, "c", failed); !errors.Is(err, store.ErrKeyHeld) {
			e.t.Errorf("%s: %v, want %v", name, err, store.ErrKeyHeld)
		}
		e.rollback(tx)
	}
	if n := e.countAny(); n != 0 || len(e.held("c")) != 2 {
		e.t.Errorf("%d dead letters, held: %+v; want none, and two keys", n, e.held("c"))
	}
	m := e.messages("order/6", 3)
	discarded := deadOf(m[0], true)
	discarded.Dead.Discarded = true
	e.write(discarded, deadOf(m[1], true), parkOf(m[2]), deadOf(e.message("order/1"), false))
	for _, h := range e.held("c") {
		if h.Key == "order/6" && (h.MessageID != m[1].ID || !h.NextAttempt.IsZero()) {
			e.t.Errorf("held: %+v, want it blocked by the open dead letter", h)
		}
	}
	e.redrive(store.DeadFilter{Key: "order/6"}, 1)
	for _, run := range w.due().Runs {
		if run.Key == "order/6" {
			e.wantIDs("after the redrive", recordIDs(run.Entries), ids(m[1:]))
		}
	}
}

// deadAgainstPark: another transaction holds the key meanwhile.
func deadAgainstPark[Tx any](e *inboxEnv[Tx]) {
	e.consumer("c")
	first := e.begin()
	e.must(e.store.Park(e.ctx, first, "c", []store.ParkRequest{parkOf(e.message("order/1"))}), "park")
	written := make(chan error, 1)
	second := deadOf(e.message("order/1"), true)
	go func() {
		tx, err := e.store.Begin(e.ctx)
		if err == nil {
			err = e.store.Park(e.ctx, tx, "c", []store.ParkRequest{second})
			err = errors.Join(err, e.store.Rollback(e.ctx, tx))
		}
		written <- err
	}()
	e.commit(first)
	if err := <-written; !errors.Is(err, store.ErrKeyHeld) {
		e.t.Errorf("a dead letter for a key that another transaction has held: %v, want %v", err, store.ErrKeyHeld)
	}
}

// failedAtItsTurn: with its redrive, a message that failed on arrival is a message like any other.
func failedAtItsTurn[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	m := e.messages("order/1", 3)
	e.write(parkOf(m[0]), store.ParkRequest{Message: m[1], Reason: store.ParkFailed, Cause: "no message"}, store.ParkRequest{Message: m[2], Reason: store.ParkHeld})
	reasons := func(want ...store.ParkReason) []store.Entry {
		e.t.Helper()
		runs := w.due().Runs
		if len(runs) != 1 || len(runs[0].Entries) != len(want) {
			e.t.Fatalf("due: %+v, want one run with %v", runs, want)
		}
		for i, r := range runs[0].Entries {
			if r.Reason != want[i] {
				e.t.Errorf("message %d is parked as %q, want %q", i, r.Reason, want[i])
			}
		}
		return runs[0].Entries
	}
	found := reasons(store.ParkRetry, store.ParkFailed, store.ParkHeld)
	turn := found[1].Message.Sequence
	w.settle(store.Settlement{
		Partition: w.partition("order/1"), Removed: []int64{found[0].Message.Sequence},
		Dead: []store.DeadOutcome{{Sequence: turn, Key: "order/1", Reason: "undecodable", Cause: "no message", Attempts: 1}},
		Held: []store.HeldKey{{Key: "order/1", Sequence: turn, Reason: store.ParkDead, UntilDecided: true}},
	})
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due past the open dead letter: %+v", due.Runs)
	}
	e.redrive(everyOpen, 1)
	if again := reasons(store.ParkRedriven, store.ParkHeld); again[0].Message.ID != m[1].ID || again[0].Redrives != 1 {
		e.t.Errorf("after the redrive: %+v", again[0])
	}
}
