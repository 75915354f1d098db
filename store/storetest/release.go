package storetest

import (
	"time"

	"github.com/postrider/postrider/store"
)

func heldSinceIsKept(e *env) {
	w := e.worker("r", "a")
	seq := w.hold("order/1", 2, 0)[0].Message.Sequence
	before := e.held("r")[0]
	e.clockMoves(2 * time.Millisecond)
	w.settle(store.Settlement{Partition: before.Partition, Held: []store.HeldKey{
		{Key: "order/1", Sequence: seq, Reason: store.ParkSnoozed, Cause: "second", Attempts: 2, After: time.Hour},
	}})
	after := e.held("r")[0]
	if !after.Since.Equal(before.Since) {
		e.t.Errorf("held since %s, before %s", after.Since, before.Since)
	}
	if after.Reason != store.ParkSnoozed || after.Cause != "second" || after.Attempts != 2 || time.Until(after.NextAttempt) < 50*time.Minute {
		e.t.Errorf("held key is %+v", after)
	}
}

// decisionMadeMeanwhile: an operator skips the blocking message while a process still handles it. The process then dead-letters
// the message and holds its key for a decision that has already been made.
func decisionMadeMeanwhile(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, 0)
	head := records[0].Message.Sequence
	e.must(e.skip("r", "order/1", "not needed"), "skip")
	w.settle(store.Settlement{Partition: e.partition("order/1"),
		Dead: []store.DeadOutcome{{Sequence: head, Key: "order/1", Reason: "attempts exhausted", Attempts: 2}},
		Held: []store.HeldKey{{Key: "order/1", Sequence: head, Reason: store.ParkDead, Attempts: 2, UntilDecided: true}},
	})
	w.wantRun("order/1", records[1:])
}

func undecidedIsNotDue(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 2, 0)
	w.settle(store.Settlement{Partition: e.partition("order/1"),
		Dead: []store.DeadOutcome{{Sequence: records[0].Message.Sequence, Key: "order/1", Reason: "attempts exhausted", Attempts: 10}},
		Held: []store.HeldKey{{Key: "order/1", Sequence: records[0].Message.Sequence, Reason: store.ParkDead, Attempts: 10, UntilDecided: true}},
	})
	if due := w.due(); len(due.Runs) > 0 || due.Next >= 0 {
		e.t.Errorf("due: %+v, want nothing that waits for a time", due)
	}
	if h := e.held("r"); len(h) != 1 || !h[0].NextAttempt.IsZero() || h[0].Parked != 1 {
		e.t.Errorf("held keys: %+v, want one without a next attempt and one parked message", h)
	}
}

func releaseEndsHolding(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 2, 0)
	p := e.partition("order/1")
	out := w.settle(store.Settlement{Partition: p, DeliveredCount: 2, Release: []string{"order/1", "never held"},
		Removed: []int64{records[0].Message.Sequence, records[1].Message.Sequence}})
	e.wantSet("released", out.Released, []string{"order/1", "never held"})
	if h := e.held("r"); len(h) > 0 {
		e.t.Errorf("held keys after the release: %+v", h)
	}
	if due := w.due(); len(due.Runs) > 0 || due.Next >= 0 {
		e.t.Errorf("due after the release: %+v", due)
	}
}

func releaseWithQueued(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	p := e.partition("order/1")
	out := w.settle(store.Settlement{Partition: p, Release: []string{"order/1"}, Removed: []int64{records[0].Message.Sequence}})
	e.wantIDs("released", out.Released, nil)
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "order/1" {
		e.t.Fatalf("due: %+v, want the key at once", due)
	}
	e.wantIDs("run", recordIDs(due.Runs[0].Entries), recordIDs(records[1:]))
	if h := e.held("r"); len(h) != 1 || h[0].Sequence != records[1].Message.Sequence || h[0].Parked != 2 {
		e.t.Errorf("held keys: %+v, want the key with its first next as head", h)
	}
}

// releaseIsLast: a message that is queued from the log in the same settlement that releases its key is not left behind.
func releaseIsLast(e *env) {
	w := e.worker("r", "a")
	head := w.hold("order/1", 1, time.Hour)[0].Message.Sequence
	next := e.publishKeys("order/1")
	p, seq := e.partition("order/1"), w.drain()[0].Message.Sequence
	out := w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Removed: []int64{head}, Release: []string{"order/1"},
		Parked: []store.ParkOutcome{{Sequence: seq, Key: "order/1", FromLog: true, Waits: true, Reason: store.ParkHeld}}})
	e.wantIDs("released", out.Released, nil)
	due := w.due()
	if len(due.Runs) != 1 {
		e.t.Fatalf("due: %+v, want the next", due)
	}
	e.wantIDs("run", recordIDs(due.Runs[0].Entries), next)
}
