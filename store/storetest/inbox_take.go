package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func takeTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "ParkedMessageIsTakenOnce", run: takenOnce[Tx]},
		{name: "MessageOfAnotherIDIsNotTaken", run: takenByID[Tx]},
		{name: "RolledBackTakeLeavesTheMessage", run: takeIsUndone[Tx]},
		{name: "OpenTakeIsWaitedFor", run: openTakeIsWaitedFor[Tx], late: true},
		{name: "OperatorsWaitForAnOpenTake", run: operatorsWait[Tx], late: true},
		{name: "OutcomesOfATakenMessageChangeNothing", run: outcomesAfterTake[Tx], statements: true},
		{name: "WhatOperatorsTookAwayIsNotThere", run: takenByOperators[Tx], statements: true},
		{name: "RedrivenMessageIsTakenAgain", run: redrivenIsTaken[Tx]},
	}
}

// firstDue returns the first due message.
func (w *worker) firstDue() *postrider.Message {
	w.t.Helper()
	due := w.due()
	if len(due.Runs) == 0 || len(due.Runs[0].Entries) == 0 {
		w.t.Fatalf("due: %+v, want a message", due)
	}
	return due.Runs[0].Entries[0].Message
}

func (e *inboxEnv[Tx]) take(tx Tx, consumer string, m *postrider.Message) bool {
	e.t.Helper()
	got, err := e.store.Take(e.ctx, tx, consumer, m)
	e.must(err, "take")
	return got.Found
}

func takenOnce[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	e.parkHead("d", 0, e.message("order/1"))
	m := w.firstDue()
	e.elapse(20 * time.Millisecond)
	e.inTx(func(tx Tx) {
		got, err := e.store.Take(e.ctx, tx, "c", m)
		e.must(err, "take")
		if !got.Found || got.ParkedFor < 10*time.Millisecond || got.ParkedFor > patience {
			e.t.Errorf("took %+v, want it there, parked a moment ago", got)
		}
		if e.take(tx, "c", m) {
			e.t.Error("it was there a second time")
		}
	})
	e.inTx(func(tx Tx) {
		if e.take(tx, "c", m) {
			e.t.Error("it was there after the commit")
		}
	})
	w.wantRun("order/1", nil)
	if held := e.held("d"); len(held) != 1 || held[0].Parked != 1 {
		e.t.Errorf("held for the other consumer: %+v, want its message", held)
	}
}

// takenByID: after a crash a server may issue a sequence twice, so a message is taken only if its ID matches too.
func takenByID[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	m := w.firstDue()
	other := *m
	other.ID = "of-another-message"
	e.inTx(func(tx Tx) {
		if e.take(tx, "c", &other) {
			e.t.Error("took a message by its sequence that has another ID")
		}
	})
	w.wantRun("order/1", []store.Entry{{Message: m}})
}

func takeIsUndone[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	m := w.firstDue()
	tx := e.begin()
	e.take(tx, "c", m)
	e.effect(tx, m.ID)
	e.rollback(tx)
	w.wantRun("order/1", []store.Entry{{Message: m}})
	e.inTx(func(tx Tx) {
		if !e.take(tx, "c", m) {
			e.t.Error("it is not there after a rollback")
		}
		e.effect(tx, m.ID)
	})
	e.wantIDs("effects", e.effects(), []string{m.ID})
}

func openTakeIsWaitedFor[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	for _, c := range []struct {
		end   func(Tx)
		there bool
	}{{e.rollback, true}, {e.commit, false}} {
		e.parkHead("c", 0, e.message("order/1"))
		m := w.firstDue()
		first, second := e.begin(), e.begin()
		e.take(first, "c", m)
		w.wantRun("order/1", []store.Entry{{Message: m}}) // an open transaction has changed nothing
		var got store.TakeResult
		e.waits("take", func() (err error) {
			got, err = e.store.Take(e.ctx, second, "c", m)
			return err
		}, func() { c.end(first) })
		if got.Found != c.there {
			e.t.Errorf("took %+v after the wait, want there %v", got, c.there)
		}
		e.commit(second)
		w.finish("order/1")
	}
}

func operatorsWait[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	m := w.firstDue()
	tx := e.begin()
	e.take(tx, "c", m)
	e.effect(tx, m.ID)
	e.waits("dead-letter the head", func() error {
		if _, err := e.dead("c", "order/1", "why", true); !errors.Is(err, held.ErrRefused) {
			return fmt.Errorf("got %w, want %w", err, held.ErrRefused)
		}
		return nil
	}, func() { e.commit(tx) })
	w.wantRun("order/1", nil) // it can be released at once
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 0 {
		e.t.Errorf("a message whose effect is committed died: %+v", deadLetters)
	}
	e.wantIDs("effects", e.effects(), []string{m.ID})
}

// outcomesAfterTake: the relay that processes parked messages reports a failure, although the effect was committed.
func outcomesAfterTake[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	m := w.firstDue()
	e.inTx(func(tx Tx) { e.take(tx, "c", m) })
	p := e.partition("order/1")
	w.settle(store.Settlement{
		Partition: p, FailedCount: 1,
		Parked: []store.ParkOutcome{{Sequence: m.Sequence, Key: "order/1", Waits: true, Reason: store.ParkRetry, Attempts: 2, Cause: "lost"}},
		Held:   []store.HeldKey{{Key: "order/1", Sequence: m.Sequence, Reason: store.ParkRetry, Cause: "lost", Attempts: 2}},
	})
	w.settle(store.Settlement{Partition: p, Dead: []store.DeadOutcome{{Sequence: m.Sequence, Key: "order/1", Reason: "attempts exhausted"}}})
	w.wantRun("order/1", nil)
	e.wantIDs("released", w.finish("order/1").Released, []string{"order/1"})
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 0 {
		e.t.Errorf("dead letters: %+v, want none", deadLetters)
	}
}

func takenByOperators[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	e.parkHead("c", 0, e.message("order/1"))
	e.park("c", store.ParkHeld, 0, e.message("order/1"))
	for _, decide := range []func() error{
		func() error { return e.skip("c", "order/1", "why") },
		func() error { _, err := e.dead("c", "order/1", "why", true); return err },
	} {
		m := w.firstDue()
		e.must(decide(), "decide")
		e.inTx(func(tx Tx) {
			if e.take(tx, "c", m) {
				e.t.Error("took a message that an operator had taken away")
			}
		})
	}
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 2 {
		e.t.Errorf("%d dead letters, want both messages", len(deadLetters))
	}
}

func redrivenIsTaken[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	m := e.message("order/1")
	e.inTx(func(tx Tx) {
		e.claim(tx, "c", m.ID)
		e.must(e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}}}), "dead-letter")
	})
	for redrives := 1; redrives <= 2; redrives++ {
		e.redrive(store.DeadFilter{}, 1)
		again := w.firstDue()
		w.settle(store.Settlement{Partition: e.partition("order/1"), Dead: []store.DeadOutcome{
			{Sequence: again.Sequence, Key: "order/1", Reason: "refused"},
		}})
		if l := e.deadLetters(everyOpen); len(l) != 1 || l[0].Redrives != redrives {
			e.t.Fatalf("open letters: %+v, want one that was redriven %d times", l, redrives)
		}
	}
	e.redrive(store.DeadFilter{}, 1)
	e.inTx(func(tx Tx) {
		if !e.take(tx, "c", w.firstDue()) {
			e.t.Error("a redriven message is not there")
		}
	})
}
