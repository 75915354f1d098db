package storetest

import (
	"errors"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/store"
)

// consumed makes a consumer that has something in every table.
func (e *inboxEnv[Tx]) consumed(name string) {
	e.t.Helper()
	w := e.consumer(name)
	e.inTx(func(tx Tx) {
		e.claim(tx, name, "one", "two")
		e.must(e.store.SetVersion(e.ctx, tx, name, "order/1", 7), "set a version")
		e.must(e.store.MovePosition(e.ctx, tx, name, store.LogPosition{Partition: "orders/1", Number: 1, Incarnation: "i", Offset: 6}), "move a position")
	})
	e.deadLetter(name, true, store.ParkRequest{Message: e.message("order/4"), Dead: &store.DeadRequest{Reason: "refused"}})
	e.parkHead(name, time.Hour, e.message("order/3"))
	e.record(time.Hour, attempt("one", name, 1))
	w.leave()
}

func (e *env) kept(name string) store.KeptRecords {
	e.t.Helper()
	k, err := held.New(e).CountKept(e.ctx, name)
	e.must(err, "count what is kept")
	return k
}

func removedLeavesNothing[Tx any](e *inboxEnv[Tx]) {
	e.consumed("c")
	e.consumed("other")
	if err := held.New(e).RemoveKept(e.ctx, "c"); !errors.Is(err, store.ErrRegistered) {
		e.t.Errorf("of a consumer that is registered: %v, want %v", err, store.ErrRegistered)
	}
	_, err := held.New(e).RemoveRelay(e.ctx, "c", "olga", "rebuilt", true)
	e.must(err, "remove")
	want := store.KeptRecords{DeadLetters: 2, Attempts: 1, Processed: 3, Positions: 1}
	if got := e.kept("c"); got != want {
		e.t.Errorf("kept %+v, want %+v", got, want)
	}
	hold, err := legalhold.New(e).Place(e.ctx, "olga", "case 17")
	e.must(err, "place a hold")
	if err := held.New(e).RemoveKept(e.ctx, "c"); !errors.Is(err, legalhold.ErrHeld) || e.kept("c") != want {
		e.t.Errorf("under a legal hold: %v, kept %+v", err, e.kept("c"))
	}
	_, err = legalhold.New(e).Release(e.ctx, hold.ID, "olga", "closed")
	e.must(err, "release")
	for range 2 {
		e.must(held.New(e).RemoveKept(e.ctx, "c"), "remove the rest")
		if got := e.kept("c"); got != (store.KeptRecords{}) {
			e.t.Errorf("kept %+v, want nothing", got)
		}
	}
	if got := e.kept("other"); got.Total() != 6 { // its second dead letter is still parked
		e.t.Errorf("kept of another consumer %+v", got)
	}
	e.consumer("c")
	e.inTx(func(tx Tx) {
		e.wantIDs("claimed by a successor", e.claim(tx, "c", "one", "two"), []string{"fresh", "fresh"})
		v, err := e.store.Version(e.ctx, tx, "c", "order/1")
		p, positionErr := e.store.Position(e.ctx, tx, "c", "orders/1")
		if err := errors.Join(err, positionErr); err != nil || v != 0 || p != nil {
			e.t.Errorf("a successor sees version %d, position %+v, %v", v, p, err)
		}
	})
	if dead, _ := e.CountDead(e.ctx, store.DeadFilter{Relay: "c", State: store.DeadAny}); dead != 0 {
		e.t.Errorf("%d dead letters of the consumer", dead)
	}
}
