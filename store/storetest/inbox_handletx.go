package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// HandleTx tests a store against the contract of store.TxSettler. The stores that the harness opens must implement it and
// store.Inbox.
func HandleTx[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	s := newSuite(f, h)
	for _, test := range []inboxTest[Tx]{
		{name: "EffectAndCursorCommitTogether", run: effectAndCursor[Tx]},
		{name: "LostLeaseUndoesBoth", run: lostLeaseUndoes[Tx]},
		{name: "StaleTokenUndoesBoth", run: staleTokenUndoes[Tx]},
		{name: "OutcomesOfOthersGoAlong", run: outcomesGoAlong[Tx]},
		{name: "ParkedMessageIsRemovedWithItsEffect", run: removedWithEffect[Tx]},
		{name: "WhatIsNotParkedUndoesTheEffect", run: notParkedUndoes[Tx]},
		{name: "MessageThatCannotBeFoundUndoesTheEffect", run: notFoundUndoes[Tx]},
		{name: "FailedTransactionIsNotCommitted", run: endedIsNotCommitted[Tx]},
		{name: "UnroutedMessagesAreCountedWithTheEffect", run: unroutedWithEffect[Tx]},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, test.erase())
		})
	}
}

// txStore returns the store under test as a store.TxSettler.
func (e *inboxEnv[Tx]) txStore() store.TxSettler[Tx] {
	e.t.Helper()
	s, ok := e.store.(store.TxSettler[Tx])
	if !ok {
		e.t.Fatalf("%T is no store.TxSettler", e.store)
	}
	return s
}

// withEffect commits a transaction that publishes a message, together with a settlement of a worker.
func (e *inboxEnv[Tx]) withEffect(w *worker, id string, st store.Settlement) ([]string, error) {
	e.t.Helper()
	tx := e.begin()
	m := e.message("effects")
	m.ID = id
	e.must(e.insert(e.ctx, tx, []*postrider.Message{m}), "publish the effect")
	if st.Token == "" {
		st.Token = w.leases[st.Partition].Token
	}
	moves := st.Moved || len(st.Parked)+len(st.Dead)+len(st.Held)+len(st.Release) > 0
	if moves && st.Number == 0 {
		st.Number = w.number[st.Partition] + 1
	}
	released, err := e.txStore().CommitSettled(e.ctx, tx, w.relay, st)
	if err == nil && moves {
		w.number[st.Partition]++
	}
	if e.store.Commit(e.ctx, tx) == nil {
		e.t.Error("the transaction has not ended")
	}
	return released, err
}

// wantEffects checks which effects were committed.
func (e *inboxEnv[Tx]) wantEffects(want ...string) {
	e.t.Helper()
	e.wantSet("effects", slices.DeleteFunc(e.logged("effects"), func(id string) bool { return !strings.HasPrefix(id, "effect") }), want)
}

func unroutedWithEffect[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	st := store.Settlement{Partition: 1, Number: 1, Unrouted: []store.UnroutedCount{{Topic: "x", Count: 5}}}
	_, err := e.withEffect(w, "effect-1", st)
	e.must(err, "settle")
	if _, err := e.withEffect(w, "effect-2", st); !errors.Is(err, store.ErrLeaseLost) {
		e.t.Errorf("the same number again: %v", err)
	}
	e.wantEffects("effect-1")
	if all := e.unroutedTopics(); len(all) != 1 || all[0].Topic != "x" || all[0].Count != 5 {
		e.t.Errorf("unrouted: %+v, want 5 of x", all)
	}
}

func effectAndCursor[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	key := e.keysOf(0, 1)[0]
	e.publishKeys(key, key)
	records := w.drain()
	st := store.Settlement{Partition: 0, Cursor: w.read[0], Moved: true, DeliveredCount: 2}
	for _, r := range records {
		st.Delivered = append(st.Delivered, r.Message.Sequence)
	}
	_, err := e.withEffect(w, "effect", st)
	e.must(err, "commit with the settlement")
	e.wantEffects("effect")
	if n := e.status("r").Delivered; n != 2 {
		e.t.Errorf("%d messages count as delivered, want 2", n)
	}
	w = w.takeOver("b")
	if got := slices.DeleteFunc(recordIDs(w.drain()), func(id string) bool { return id == "effect" }); len(got) > 0 {
		e.t.Errorf("read again: %v", got)
	}
}

func lostLeaseUndoes[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	key := e.keysOf(0, 1)[0]
	want := e.publishKeys(key)
	w.drain()
	next := w.takeOver("b")
	_, err := e.withEffect(w, "effect", store.Settlement{Partition: 0, Cursor: w.read[0], Moved: true})
	if !errors.Is(err, store.ErrLeaseLost) {
		e.t.Errorf("got %v, want ErrLeaseLost", err)
	}
	e.wantEffects()
	e.wantIDs("read by the other", recordIDs(next.drain()), want)
}

func staleTokenUndoes[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	old := w.leases[0].Token
	next := w.takeOver("a")
	_, err := e.withEffect(next, "effect", store.Settlement{Partition: 0, Token: old, Number: 1})
	if !errors.Is(err, store.ErrLeaseLost) || next.leases[0].Token == old {
		e.t.Errorf("got %v, want ErrLeaseLost", err)
	}
	e.wantEffects()
}

func outcomesGoAlong[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	keys := e.keysOf(0, 4)
	e.publishKeys(keys...)
	records := w.drain()
	seq := func(i int) int64 { return records[i].Message.Sequence }
	released, err := e.withEffect(w, "effect", store.Settlement{
		Partition: 0, Cursor: w.read[0], Moved: true, DeliveredCount: 1, FailedCount: 2, Delivered: []int64{seq(3)},
		Parked: []store.ParkOutcome{
			{Sequence: seq(0), Key: keys[0], FromLog: true, Reason: store.ParkRetry, Waits: true, Attempts: 1, Cause: "boom"},
			{Sequence: seq(1), Key: keys[1], FromLog: true, Reason: store.ParkDelayed, After: longTTL},
		},
		Dead:    []store.DeadOutcome{{Sequence: seq(2), Key: keys[2], FromLog: true, Reason: "refused", Cause: "boom", Attempts: 1}},
		Held:    []store.HeldKey{{Key: keys[0], Sequence: seq(0), Reason: store.ParkRetry, Cause: "boom", Attempts: 1}},
		Release: []string{keys[3], keys[0]},
	})
	e.must(err, "commit with the settlement")
	e.wantEffects("effect")
	e.wantSet("released", released, keys[3:])
	if due := w.firstDue(); due.Key != keys[0] {
		e.t.Errorf("due is the message of %s, want that of %s", due.Key, keys[0])
	}
	if got := e.deadLetters(store.DeadFilter{Relay: "r"}); len(got) != 1 || got[0].Message.Sequence != seq(2) || got[0].Reason != "refused" {
		e.t.Errorf("dead letters: %+v", got)
	}
	if st := e.status("r"); st.Parked.N != 2 || st.Held.N != 1 || st.Failed != 2 {
		e.t.Errorf("status: %+v", st)
	}
}

func removedWithEffect[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	key := e.keysOf(0, 1)[0]
	records := w.hold(key, 2, 0)
	_, err := e.withEffect(w, "effect", store.Settlement{Partition: 0, Removed: []int64{records[0].Message.Sequence}, DeliveredCount: 1})
	e.must(err, "commit with the settlement")
	e.wantEffects("effect")
	if got := w.firstDue().Sequence; got != records[1].Message.Sequence {
		e.t.Errorf("due is message %d, want the second, %d", got, records[1].Message.Sequence)
	}
	if n := e.status("r").Delivered; n != 1 {
		e.t.Errorf("%d messages count as delivered, want 1", n)
	}
}

func notParkedUndoes[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	key := e.keysOf(0, 1)[0]
	seq := w.hold(key, 1, 0)[0].Message.Sequence
	_, err := e.dead("r", key, "given up", true)
	e.must(err, "give up")
	_, err = e.withEffect(w, "effect", store.Settlement{Partition: 0, Removed: []int64{seq}, DeliveredCount: 1})
	if !errors.Is(err, store.ErrNotParked) {
		e.t.Errorf("got %v, want ErrNotParked", err)
	}
	e.wantEffects()
	if n := e.status("r").Delivered; n != 0 {
		e.t.Errorf("%d messages count as delivered", n)
	}
}

func notFoundUndoes[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	_, err := e.withEffect(w, "effect", store.Settlement{Partition: 0, Parked: []store.ParkOutcome{
		{Sequence: 1 << 40, Key: "k", FromLog: true, Reason: store.ParkRetry},
	}})
	if err == nil {
		e.t.Error("a message that is nowhere was parked")
	}
	e.wantEffects()
}

// endedIsNotCommitted: a handler has ended the transaction.
func endedIsNotCommitted[Tx any](e *inboxEnv[Tx]) {
	w := e.worker("r", "a")
	key := e.keysOf(0, 1)[0]
	want := e.publishKeys(key)
	w.drain()
	tx := e.begin()
	e.rollback(tx)
	_, err := e.txStore().CommitSettled(e.ctx, tx, "r", store.Settlement{
		Partition: 0, Token: w.leases[0].Token, Number: 1, Cursor: w.read[0], Moved: true,
	})
	if err == nil {
		e.t.Error("a transaction that had ended was committed")
	}
	e.wantIDs("read again", recordIDs(w.takeOver("b").drain()), want)
}
