package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var settleTests = []test{
	{name: "ParkedMessageIsDueWithItsAttempts", run: parkedMessageIsDue},
	{name: "ParkedMessageWaitsForItsTime", run: parkedMessageWaits},
	{name: "ParkingAgainKeepsHistoryAndSince", run: parkingAgain},
	{name: "RemovedMessageIsParkedNoLonger", run: removedMessage},
	{name: "WhatAnOperatorTookAwayStaysAway", run: takenAwayStaysAway, statements: true},
	{name: "DeadLetterHasTheWholeMessageAndItsHistory", run: deadLetterIsWhole},
	{name: "DiscardedMessageIsOnRecord", run: discardedIsOnRecord},
	{name: "LongCausesAndHistoriesAreCut", run: longCausesAreCut, statements: true},
	{name: "HeldKeySinceIsKept", run: heldSinceIsKept},
	{name: "KeyThatWaitsForADecisionIsNotDue", run: undecidedIsNotDue},
	{name: "KeyIsNotHeldForADecisionThatWasMadeMeanwhile", run: decisionMadeMeanwhile},
	{name: "ReleaseEndsHolding", run: releaseEndsHolding},
	{name: "ReleaseWithFollowersLeftMakesTheKeyDue", run: releaseWithQueued},
	{name: "ReleaseIsAppliedLast", run: releaseIsLast},
	{name: "SettlingTwiceChangesNothing", run: settlingTwice},
	{name: "ThousandsOfOutcomesInOneSettlement", run: thousandsOfOutcomes, statements: true},
	{name: "CountersAddUp", run: countersAddUp},
}

// park parks messages from the log and moves the cursor past everything read in their partition.
func (w *worker) park(key string, parked ...store.ParkOutcome) {
	w.t.Helper()
	p := w.partition(key)
	for i := range parked {
		parked[i].Key, parked[i].FromLog = key, true
	}
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: parked})
}

// hold publishes n messages of a key, parks them and holds the key, its blocking message due after a time.
func (w *worker) hold(key string, n int, after time.Duration) []store.Entry {
	w.t.Helper()
	want := w.publish(w.messages(key, n)...)
	records := w.drain()
	w.wantIDs("fetched", recordIDs(records), want)
	var parked []store.ParkOutcome
	for i, r := range records {
		p := store.ParkOutcome{Sequence: r.Message.Sequence, Waits: true, Reason: store.ParkHeld}
		if i == 0 {
			p.Reason, p.Attempts, p.Cause = store.ParkRetry, 1, "first failure"
		}
		parked = append(parked, p)
	}
	w.park(key, parked...)
	w.settle(store.Settlement{Partition: w.partition(key), FailedCount: 1, Held: []store.HeldKey{{
		Key: key, Sequence: records[0].Message.Sequence, Reason: store.ParkRetry, Cause: "first failure", Attempts: 1, After: after,
	}}})
	return records
}

func parkedMessageIsDue(e *env) {
	w := e.worker("r", "a")
	m := e.message("order/1")
	m.Headers = map[string]string{"h": "ö"}
	e.publish(m)
	seq := w.drain()[0].Message.Sequence
	w.park("order/1", store.ParkOutcome{Sequence: seq, Reason: store.ParkSlow, Attempts: 2, Cause: "too slow"})
	w = w.takeOver("b")
	e.wantSet("fetched from the log behind the parked message", recordIDs(w.drain()), nil)
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "" || due.Runs[0].Partition != e.partition("order/1") || len(due.Runs[0].Entries) != 1 {
		e.t.Fatalf("due: %+v, want one message that waits for itself", due.Runs)
	}
	r := due.Runs[0].Entries[0]
	e.wantSame(r.Message, m)
	if r.Message.Sequence != seq || r.Attempts != 2 || r.Reason != store.ParkSlow || r.Delay > 0 || r.ParkedFor < 0 {
		e.t.Errorf("due record is %+v", r)
	}
}

func parkedMessageWaits(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1")
	seq := w.drain()[0].Message.Sequence
	began := time.Now() // the database reads its clock between now and the end of the settlement
	w.park("order/1", store.ParkOutcome{Sequence: seq, Reason: store.ParkDelayed, After: shortTTL})
	due := w.due()
	if waited := time.Since(began); len(due.Runs) > 0 && waited < shortTTL*8/10 {
		e.t.Fatalf("due at once: %+v, parked for %s", due.Runs, shortTTL)
	}
	if due.Next > shortTTL || len(due.Runs) == 0 && due.Next < 0 {
		e.t.Errorf("next is due in %s, parked for %s", due.Next, shortTTL)
	}
	e.until("parked message due", func() bool { return len(w.due().Runs) == 1 })
	if waited := time.Since(began); waited < shortTTL*8/10 {
		e.t.Errorf("due after %s, parked for %s", waited, shortTTL)
	}
}

func parkingAgain(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	seq := w.hold(key, 2, 0)[0].Message.Sequence
	_, before, err := held.New(e).ShowHeld(e.ctx, "r", key, 10)
	e.must(err, "show held")
	again := func(reason store.ParkReason, attempts int, cause string) {
		w.settle(store.Settlement{Partition: e.partition(key), Parked: []store.ParkOutcome{
			{Sequence: seq, Key: key, Waits: true, Reason: reason, Attempts: attempts, Cause: cause},
		}})
	}
	again(store.ParkRetry, 2, "second failure")
	again(store.ParkSnoozed, 2, "snoozed for a while")
	again(store.ParkRetry, 3, "third failure")
	_, parked, err := held.New(e).ShowHeld(e.ctx, "r", key, 10)
	e.must(err, "show held")
	if len(parked) != 2 {
		e.t.Fatalf("%d parked messages of the key, want 2", len(parked))
	}
	head := parked[0]
	var history []string
	for _, a := range head.History {
		history = append(history, fmt.Sprintf("%d %s", a.Attempt, a.Cause))
		if ago := time.Since(a.At).Abs(); ago > time.Minute {
			e.t.Errorf("entry %+v of the history is %s from now", a, ago)
		}
	}
	e.wantIDs("history", history, []string{"1 first failure", "2 second failure", "0 snoozed for a while", "3 third failure"})
	if head.Reason != store.ParkRetry || head.Attempts != 3 || !head.DueAt.IsZero() || !head.ParkedAt.Equal(before[0].ParkedAt) {
		e.t.Errorf("head is %+v, want retry after 3 attempts, no time of its own, and parked since %s", head, before[0].ParkedAt)
	}
	if len(parked[1].History) > 0 || parked[1].Reason != store.ParkHeld {
		e.t.Errorf("next is %+v", parked[1])
	}
}

func removedMessage(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1")
	seq := w.drain()[0].Message.Sequence
	w.park("order/1", store.ParkOutcome{Sequence: seq, Reason: store.ParkSlow})
	for range 2 {
		w.settle(store.Settlement{Partition: e.partition("order/1"), Removed: []int64{seq, 987_654_321}, DeliveredCount: 1})
	}
	if due := w.due(); len(due.Runs) > 0 || due.Next >= 0 {
		e.t.Errorf("due after it was removed: %+v", due)
	}
}

func takenAwayStaysAway(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	seq := w.hold(key, 1, 0)[0].Message.Sequence
	e.must(e.skip("r", key, "not needed"), "skip")
	// Meanwhile the process was handling the message, and only now learns what the operator did.
	w.settle(store.Settlement{Partition: e.partition(key),
		Parked: []store.ParkOutcome{{Sequence: seq, Key: key, Waits: true, Reason: store.ParkRetry, Attempts: 2, Cause: "second failure"}},
	})
	w.settle(store.Settlement{Partition: e.partition(key),
		Dead: []store.DeadOutcome{{Sequence: seq, Key: key, Reason: "attempts exhausted", Attempts: 2}},
	})
	out := w.settle(store.Settlement{Partition: e.partition(key), Release: []string{key}})
	e.wantIDs("released", out.Released, []string{key})
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due: %+v, want nothing", due.Runs)
	}
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 || deadLetters[0].State != store.DeadDiscarded {
		e.t.Errorf("dead letters: %+v, want only the skipped one", deadLetters)
	}
}

func deadLetterIsWhole(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	m := e.message(key)
	m.Headers = map[string]string{"h": "ö"}
	m.Tenant, m.Subject, m.SchemaVersion = "acme", "s", 3
	next := e.message(key)
	e.publish(m, next)
	records := w.drain()
	seq := records[0].Message.Sequence
	w.park(key, store.ParkOutcome{Sequence: seq, Waits: true, Reason: store.ParkRetry, Attempts: 1, Cause: "first failure"})
	w.settle(store.Settlement{Partition: e.partition(key), Dead: []store.DeadOutcome{
		{Sequence: seq, Key: key, Reason: "attempts exhausted", Cause: "last failure", Attempts: 2},
		{Sequence: records[1].Message.Sequence, Key: key, FromLog: true, Reason: "rejected", Cause: "no such order", Attempts: 1},
	}})
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 2 {
		e.t.Fatalf("%d dead letters, want 2", len(deadLetters))
	}
	for i, want := range []struct {
		reason, cause string
		attempts      int
	}{{"attempts exhausted", "last failure", 2}, {"rejected", "no such order", 1}} {
		l := deadLetters[i]
		if l.Relay != "r" || l.Partition != e.partition(key) || l.Reason != want.reason || l.Cause != want.cause ||
			l.Attempts != want.attempts || l.State != store.DeadOpen || l.Redrives != 0 || time.Since(l.DiedAt).Abs() > time.Minute {
			e.t.Errorf("dead letter is %+v, want %+v", l, want)
		}
	}
	e.wantSame(deadLetters[0].Message, m)
	e.wantSame(deadLetters[1].Message, next)
	if deadLetters[0].Message.Sequence != seq {
		e.t.Errorf("sequence %d in the dead letter, want %d", deadLetters[0].Message.Sequence, seq)
	}
	if h := deadLetters[0].History; len(h) != 2 || h[0].Cause != "first failure" || h[1].Attempt != 2 || h[1].Cause != "last failure" {
		e.t.Errorf("history is %+v", h)
	}
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due: %+v, want nothing after both died", due.Runs)
	}
}

func longCausesAreCut(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	seq := w.hold(key, 1, 0)[0].Message.Sequence
	whole, long := strings.Repeat("é", 2_000), "x"+strings.Repeat("😀", 2_000)
	for i := range 30 {
		w.settle(store.Settlement{Partition: e.partition(key), Parked: []store.ParkOutcome{{
			Sequence: seq, Key: key, Waits: true, Reason: store.ParkRetry, Attempts: i + 2, Cause: fmt.Sprintf("failure %d", i),
		}}})
	}
	w.settle(store.Settlement{Partition: e.partition(key),
		Parked: []store.ParkOutcome{{Sequence: seq, Key: key, Waits: true, Reason: store.ParkRetry, Attempts: 32, Cause: whole}},
		Held:   []store.HeldKey{{Key: key, Sequence: seq, Reason: store.ParkRetry, Cause: whole, Attempts: 32}},
	})
	info, parked, err := held.New(e).ShowHeld(e.ctx, "r", key, 10)
	e.must(err, "show held")
	h := parked[0].History
	if len(h) != 20 || h[19].Cause != whole || info.Cause != whole || h[0].Cause != "failure 11" {
		e.t.Fatalf("history has %d entries from %.20q to one of %d bytes, held for %d bytes; want 20 from failure 11 to 4000 bytes",
			len(h), h[0].Cause, len(h[len(h)-1].Cause), len(info.Cause))
	}
	w.settle(store.Settlement{Partition: e.partition(key), Dead: []store.DeadOutcome{
		{Sequence: seq, Key: key, Reason: "attempts exhausted", Cause: long, Attempts: 33},
	}})
	l := e.deadLetters(everyDead)[0]
	for what, cause := range map[string]string{"cause": l.Cause, "history": l.History[len(l.History)-1].Cause} {
		if len(cause) > 4_000 || len(cause) < 3_990 || !strings.HasPrefix(long, cause) {
			e.t.Errorf("%s of the dead letter has %d bytes, want at most 4000 of %d and whole characters", what, len(cause), len(long))
		}
	}
	if len(l.History) != 20 {
		e.t.Errorf("%d entries in the dead letter's history, want 20", len(l.History))
	}
}

func settlingTwice(e *env) {
	keys := e.keysOf(0, 3)
	w := e.worker("r", "a")
	e.publishKeys(keys[0], keys[1], keys[2])
	r := w.drain()
	st := store.Settlement{
		Partition: 0, Cursor: w.read[0], Moved: true,
		Parked: []store.ParkOutcome{{Sequence: r[0].Message.Sequence, Key: keys[0], FromLog: true, Waits: true, Reason: store.ParkRetry, Attempts: 1, Cause: "no"}},
		Held:   []store.HeldKey{{Key: keys[0], Sequence: r[0].Message.Sequence, Reason: store.ParkRetry, Cause: "no", Attempts: 1}},
		Dead:   []store.DeadOutcome{{Sequence: r[1].Message.Sequence, Key: keys[1], FromLog: true, Reason: "rejected", Cause: "bad", Attempts: 1}},
	}
	w.settle(st)
	w.repeat(st)
	if _, parked, err := held.New(e).ShowHeld(e.ctx, "r", keys[0], 10); err != nil || len(parked) != 1 || len(parked[0].History) != 1 {
		e.t.Errorf("held after settling twice: %+v, %v; want one message with one entry in its history", parked, err)
	}
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 1 || len(deadLetters[0].History) != 1 {
		e.t.Errorf("dead letters after settling twice: %+v; want one with one entry in its history", deadLetters)
	}
	// The same for a message that is dead-lettered after it was parked.
	st = store.Settlement{Partition: 0, Release: []string{keys[0]}, Dead: []store.DeadOutcome{
		{Sequence: r[0].Message.Sequence, Key: keys[0], Reason: "attempts exhausted", Cause: "no again", Attempts: 2},
	}}
	w.number[0]++
	for range 2 {
		if out := w.repeat(st); !slices.Equal(out.Released, keys[:1]) {
			e.t.Errorf("released %v, want %v", out.Released, keys[:1])
		}
	}
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 2 || len(deadLetters[1].History) != 2 {
		e.t.Errorf("dead letters: %+v; want two, the second with two entries in its history", deadLetters)
	}
}

func thousandsOfOutcomes(e *env) {
	const n = 3_000
	key := e.keysOf(0, 1)[0]
	w := e.worker("r", "a")
	e.publish(e.messages(key, n)...)
	st := store.Settlement{Moved: true}
	for i, r := range w.drain() {
		seq := r.Message.Sequence
		switch i % 3 {
		case 0:
			st.Delivered = append(st.Delivered, seq)
		case 1:
			st.Parked = append(st.Parked, store.ParkOutcome{Sequence: seq, Key: key, FromLog: true, Reason: store.ParkSlow})
		case 2:
			st.Dead = append(st.Dead, store.DeadOutcome{Sequence: seq, Key: key, FromLog: true, Reason: "rejected"})
		}
	}
	st.Cursor = w.read[0]
	w.settle(st)
	if due := w.due(); len(due.Runs) != n/3 {
		e.t.Errorf("%d parked messages are due, want %d", len(due.Runs), n/3)
	}
	if count, err := e.CountDead(e.ctx, everyDead); count != n/3 || err != nil {
		e.t.Errorf("%d dead letters, %v; want %d", count, err, n/3)
	}
	st = store.Settlement{}
	for _, r := range w.due().Runs {
		st.Removed = append(st.Removed, r.Entries[0].Message.Sequence)
	}
	w.settle(st)
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("%d runs are due after all were removed", len(due.Runs))
	}
}

func countersAddUp(e *env) {
	w := e.worker("r", "a")
	for p := range e.partitions {
		w.settle(store.Settlement{Partition: p, DeliveredCount: 3, FailedCount: 1})
		w.settle(store.Settlement{Partition: p, DeliveredCount: 4})
	}
	n := int64(e.partitions)
	if st := e.status("r"); st.Delivered != 7*n || st.Failed != n {
		e.t.Errorf("%d delivered and %d failed, want %d and %d", st.Delivered, st.Failed, 7*n, n)
	}
}
