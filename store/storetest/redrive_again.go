package storetest

import (
	"errors"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// dieAgain dead-letters all due messages, which were redriven, again.
func (w *worker) dieAgain(cause string) {
	w.t.Helper()
	for _, run := range w.due().Runs {
		for _, rec := range run.Entries {
			w.settle(store.Settlement{Partition: run.Partition, Dead: []store.DeadOutcome{{
				Sequence: rec.Message.Sequence, Key: rec.Message.Key, Reason: "rejected again", Cause: cause, Attempts: 1,
			}}})
		}
	}
}

func redrivesAreBounded(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/1"))
	for range deadletter.DefaultMaxRedrives {
		e.redrive(everyOpen, 1)
		w.dieAgain("still bad")
	}
	young := w.deadLetter("rejected", e.message("order/2"))
	number := e.deadLetters(store.DeadFilter{Key: "order/1"})[0].Number
	if n, err := e.RedriveDead(e.ctx, store.DeadFilter{Numbers: []int64{number}}, "olga", 0); n != 0 || !errors.Is(err, deadletter.ErrRedrivenTooOften) {
		e.t.Errorf("redrive of a letter by number beyond the bound: %d, %v", n, err)
	}
	e.redrive(store.DeadFilter{Key: "order/1"}, 0)
	e.wantRedrive(e.drive(e.startRedrive(everyOpen).ID), store.RedriveFinished, 2, 1, 1, 0)
	e.wantSet("due", w.dueIDs(), young)
	four := store.DeadFilter{MaxRedrives: deadletter.DefaultMaxRedrives + 1}
	e.wantRedrive(e.drive(e.startRedrive(four).ID), store.RedriveFinished, 1, 1, 0, 0)
	w.dieAgain("still bad")
	e.redrive(store.DeadFilter{Key: "order/1", MaxRedrives: deadletter.Unbounded}, 1)
	if r := w.due().Runs[0].Entries[0]; r.Redrives != deadletter.DefaultMaxRedrives+2 {
		e.t.Errorf("message was sent back %d times", r.Redrives)
	}
	w.dieAgain("still bad")
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Key: "order/1"}, "olga", "hopeless", 0); n != 1 || err != nil {
		e.t.Errorf("discard beyond the bound: %d, %v", n, err)
	}
}

func redriveOfHeld(e *env) {
	w := e.worker("r", "a")
	early := e.message("order/1")
	w.deadLetter("rejected", early)
	records := w.hold("order/1", 3, time.Hour)
	e.redrive(everyOpen, 1)
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Fatalf("due while the key is held: %+v", due.Runs)
	}
	_, parked, err := held.New(e).ShowHeld(e.ctx, "r", "order/1", 10)
	e.must(err, "show held")
	var got []string
	for _, p := range parked {
		got = append(got, p.Message.ID)
	}
	want := append([]string{early.ID}, recordIDs(records)...)
	e.wantIDs("behind the key", got, want)
	e.must(e.retry("r", "order/1"), "retry")
	e.wantIDs("due", w.dueIDs(), want)
	// A key that waits for a decision about one dead letter does not resume for another.
	second := e.message("order/2")
	w.deadLetter("rejected", second)
	w.undecided("order/2", 1)
	first := e.deadLetters(store.DeadFilter{MessageID: second.ID})[0].Number
	e.redrive(store.DeadFilter{Numbers: []int64{first}}, 1)
	for _, run := range w.due().Runs {
		if run.Key == "order/2" || run.Entries[0].Message.Key == "order/2" {
			e.t.Errorf("due although its key waits for a decision: %+v", run)
		}
	}
	e.redrive(store.DeadFilter{Key: "order/2"}, 1)
	for _, run := range w.due().Runs {
		if run.Key == "order/2" && (len(run.Entries) != 3 || run.Entries[0].Message.ID != second.ID) {
			e.t.Errorf("due after both were sent back: %v", recordIDs(run.Entries))
		}
	}
}

func settledEarlierTry(e *env) {
	w := e.worker("r", "a")
	key, p := "order/1", e.partition("order/1")
	e.publishKeys(key)
	seq := w.drain()[0].Message.Sequence
	w.park(key, store.ParkOutcome{Sequence: seq, Reason: store.ParkSlow})
	dead := store.Settlement{Partition: p, Dead: []store.DeadOutcome{{Sequence: seq, Key: key, Reason: "rejected", Cause: "bad", Attempts: 1}}}
	w.settle(dead)
	e.redrive(everyOpen, 1)
	w.repeat(dead) // the response was lost
	if n := len(e.deadLetters(everyDead)); n != 1 {
		e.t.Errorf("%d dead letters, want the first only", n)
	}
	due := w.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 {
		e.t.Fatalf("due: %+v, want the redriven message", due.Runs)
	}
	if r := due.Runs[0].Entries[0]; r.Reason != store.ParkRedriven || r.Attempts != 0 || r.Redrives != 1 {
		e.t.Errorf("redriven message: %+v", r)
	}
	// A message that was delivered after all stays delivered.
	w.settle(store.Settlement{Partition: p, Removed: []int64{seq}})
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due after it was delivered: %+v", due.Runs)
	}
}
