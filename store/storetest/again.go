package storetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// againTests repeat settlements, and try settlements that must be refused.
var againTests = []test{
	{name: "LeaseSaysWhatIsParkedBeyondItsCursor", run: leaseSaysWhatIsParked},
	{name: "RemovedIsAppliedAfterParkedAndDead", run: removedAfterParked},
	{name: "LastEntryOfAMessageCounts", run: lastEntryCounts},
	{name: "NumberThatWasUsedForSomethingElseIsLost", run: numberUsedTwice},
	{name: "OneBadSettlementDoesNotHinderAnother", run: oneBadSettlement},
	{name: "RepetitionDoesNotNeedTheLog", run: repetitionWithoutLog, statements: true},
	{name: "WhatCannotBeFoundIsRefused", run: notFoundIsRefused},
	{name: "RepetitionDoesNotUndoADecision", run: repetitionAfterDecision},
	{name: "RepetitionLeavesARedrivenMessageAlone", run: repetitionAfterRedrive},
	{name: "DecisionsActOnTheFirstParkedMessage", run: decisionsOnFirstParked},
}

func sequences(records ...store.Entry) []int64 {
	var out []int64
	for _, r := range records {
		out = append(out, r.Message.Sequence)
	}
	return out
}

// leaseSaysWhatIsParked: with a cursor after each message in turn, a lease has the sequences of those after it.
func leaseSaysWhatIsParked(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	other := e.keysOf((e.partition(key)+1)%e.partitions, 1)[0]
	e.publish(e.messages(key, 7)...)
	r := w.drain()
	st := store.Settlement{Partition: e.partition(key),
		Held: []store.HeldKey{{Key: key, Sequence: r[1].Message.Sequence, Reason: store.ParkDead, UntilDecided: true}}}
	for _, rec := range r[1:3] {
		st.Parked = append(st.Parked, store.ParkOutcome{Sequence: rec.Message.Sequence, Key: key, FromLog: true, Waits: true, Reason: store.ParkHeld})
	}
	for _, rec := range r[3:6] {
		st.Dead = append(st.Dead, store.DeadOutcome{Sequence: rec.Message.Sequence, Key: key, FromLog: true, Reason: "rejected"})
	}
	w.settle(st)
	deadLetters := e.deadLetters(everyDead)
	for i, resolve := range []func(f store.DeadFilter) (int, error){
		func(f store.DeadFilter) (int, error) { return e.RedriveDead(e.ctx, f, "olga", 0) },
		func(f store.DeadFilter) (int, error) { return e.DiscardDead(e.ctx, f, "olga", "why", 0) },
	} {
		_, err := resolve(store.DeadFilter{Numbers: []int64{deadLetters[i].Number}})
		e.must(err, "resolve")
	}
	two := e.worker("two", "a")
	two.drain()
	two.settle(store.Settlement{Partition: e.partition(key), Parked: []store.ParkOutcome{
		{Sequence: r[6].Message.Sequence, Key: key, FromLog: true, Reason: store.ParkSlow}}})
	w.hold(other, 2, time.Hour)
	p, read := e.partition(key), w.read[e.partition(key)]
	for after := range r {
		w.settle(store.Settlement{Partition: p, Cursor: store.Cursor{Position: r[after].Message.Sequence, Snapshot: read.Snapshot}, Moved: true})
		w = w.takeOver(strconv.Itoa(after))
		got := w.leases[p].Parked
		e.wantIDs("held keys", got.Keys, []string{key})
		var want []int64
		if after < 6 {
			want = sequences(r[after+1 : 6]...)
		}
		e.wantSequences("parked", got.Sequences, want)
	}
	if got := two.takeOver("b").leases[p].Parked; len(got.Keys) > 0 || !slices.Equal(got.Sequences, sequences(r[6])) {
		e.t.Errorf("parked for another relay, whose cursor has not moved: %+v", got)
	}
}

func (e *env) wantSequences(what string, got, want []int64) {
	e.t.Helper()
	texts := func(seqs []int64) (out []string) {
		for _, seq := range seqs {
			out = append(out, strconv.FormatInt(seq, 10))
		}
		return out
	}
	e.wantIDs(what, texts(got), texts(want))
}

func removedAfterParked(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	e.publish(e.messages(key, 3)...)
	r := sequences(w.drain()...)
	parked := func(seq int64) store.ParkOutcome {
		return store.ParkOutcome{Sequence: seq, Key: key, FromLog: true, Reason: store.ParkSlow, Attempts: 1}
	}
	w.settle(store.Settlement{Partition: e.partition(key), Cursor: w.read[e.partition(key)], Moved: true,
		Parked:  []store.ParkOutcome{parked(r[0]), parked(r[1]), parked(r[2])},
		Dead:    []store.DeadOutcome{{Sequence: r[1], Key: key, Reason: "rejected", Attempts: 1}, {Sequence: r[2], Key: key, FromLog: true, Reason: "rejected", Attempts: 1}},
		Removed: []int64{r[0], r[2]},
	})
	if st := e.status("r"); st.Parked.N != 0 || st.Dead.N != 2 {
		e.t.Errorf("%d parked and %d dead, want none and two", st.Parked.N, st.Dead.N)
	}
}

// lastEntryCounts: a message is parked while it is processed, and fails before that is recorded.
func lastEntryCounts(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	e.publishKeys(key)
	seq := w.drain()[0].Message.Sequence
	w.settle(store.Settlement{Partition: e.partition(key), Parked: []store.ParkOutcome{
		{Sequence: seq, Key: key, FromLog: true, Waits: true, Reason: store.ParkSlow},
		{Sequence: seq, Key: key, Waits: true, Reason: store.ParkRetry, Attempts: 1, Cause: "first failure"},
	}, Held: []store.HeldKey{
		{Key: key, Sequence: seq, Reason: store.ParkSlow, After: time.Hour},
		{Key: key, Sequence: seq, Reason: store.ParkRetry, Cause: "first failure", Attempts: 1, After: 2 * time.Hour},
	}})
	info, parked, err := held.New(e).ShowHeld(e.ctx, "r", key, 10)
	e.must(err, "show held")
	if len(parked) != 1 || parked[0].Attempts != 1 || parked[0].Reason != store.ParkRetry || len(parked[0].History) != 1 ||
		info.Reason != store.ParkRetry || time.Until(info.NextAttempt) < time.Hour {
		e.t.Errorf("held: %+v, parked: %+v, want one message after its first attempt", info, parked)
	}
}

// repetitionWithoutLog: retention drops parked messages from the log before the settlement is repeated.
func repetitionWithoutLog(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	p := e.partition(key)
	e.publish(e.messages(key, 3)...)
	r := sequences(w.drain()...)
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true,
		Parked:         []store.ParkOutcome{{Sequence: r[0], Key: key, FromLog: true, Reason: store.ParkSlow}, {Sequence: r[1], Key: key, FromLog: true, Reason: store.ParkSlow}},
		Dead:           []store.DeadOutcome{{Sequence: r[2], Key: key, FromLog: true, Reason: "rejected"}},
		DeliveredCount: 5, FailedCount: 7,
	})
	last := store.Settlement{Partition: p, Removed: r[:1], Release: []string{"not held"}, DeliveredCount: 1}
	answer := w.settle(last)
	for range 2 {
		e.maintain(store.Retention{})
		e.wantIDs("released by the repetition", w.repeat(last).Released, answer.Released)
	}
	if st := e.status("r"); st.Parked.N != 1 || st.Dead.N != 1 || st.Delivered != 6 || st.Failed != 7 {
		e.t.Errorf("%d parked, %d dead, %d delivered and %d failed, want 1, 1, 6 and 7", st.Parked.N, st.Dead.N, st.Delivered, st.Failed)
	}
}

// numberUsedTwice: a settlement that the network delivers late has a number that has been used since.
func numberUsedTwice(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	p := e.partition(key)
	e.publish(e.messages(key, 2)...)
	r := sequences(w.drain()...)
	first := store.Settlement{Partition: p, Parked: []store.ParkOutcome{{Sequence: r[0], Key: key, FromLog: true, Reason: store.ParkSlow}}, FailedCount: 1}
	w.settle(first)
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Removed: r[:1], DeliveredCount: 2})
	for _, st := range []store.Settlement{first, {Partition: p, DeliveredCount: 3}} {
		if out := w.send(st); len(out.Lost) != 1 {
			e.t.Errorf("another settlement with the last number: %+v, want it lost", out)
		}
	}
	w.number[p]--
	if out := w.send(first); len(out.Lost) != 1 {
		e.t.Errorf("the settlement before the last one: %+v, want it lost", out)
	}
	if st := e.status("r"); st.Parked.N != 0 || st.Delivered != 2 || st.Failed != 1 {
		e.t.Errorf("%d parked, %d delivered and %d failed, want 0, 2 and 1", st.Parked.N, st.Delivered, st.Failed)
	}
}

// oneBadSettlement: a settlement that fails in one partition does not block the others of the same call.
func oneBadSettlement(e *env) {
	a, b := e.keysOf(0, 1)[0], e.keysOf(1, 1)[0]
	e.publishKeys(a, b)
	w := e.worker("r", "a")
	w.drain()
	good := store.Settlement{Partition: 1, Token: w.leases[1].Token, Number: 1, Cursor: w.read[1], Moved: true, DeliveredCount: 1}
	bad := store.Settlement{Partition: 0, Token: w.leases[0].Token, Number: 1, Cursor: w.read[0], Moved: true,
		Dead: []store.DeadOutcome{{Sequence: 1_000_000, Key: a, FromLog: true, Reason: "rejected"}}}
	for range 2 { // the second time, the good one is already applied
		out, err := e.Settle(e.ctx, "r", []store.Settlement{bad, good})
		if err != nil || len(out.Lost) > 0 || len(out.Failed) != 1 || out.Failed[0] == nil {
			e.t.Fatalf("settled: %+v, %v; want partition 0 failed and the other applied", out, err)
		}
	}
	if st := e.status("r"); st.Delivered != 1 || st.Backlog.N != 1 {
		e.t.Errorf("%d delivered, backlog %d, want one each", st.Delivered, st.Backlog.N)
	}
}

func notFoundIsRefused(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	p := e.partition(key)
	e.publishKeys(key)
	seq := w.drain()[0].Message.Sequence
	for name, st := range map[string]store.Settlement{
		"parked": {Parked: []store.ParkOutcome{{Sequence: seq + 1_000, Key: key, FromLog: true, Reason: store.ParkSlow}}},
		"dead":   {Dead: []store.DeadOutcome{{Sequence: seq + 1_000, Key: key, FromLog: true, Reason: "rejected"}}},
	} {
		st.Partition, st.Cursor, st.Moved = p, w.read[p], true
		w.number[p]++
		if out := w.send(st); out.Failed[p] == nil {
			e.t.Errorf("%s: settled what is not in the log: %+v", name, out)
		}
		w.number[p]--
	}
	if got := w.takeOver("b").drain(); len(got) != 1 {
		e.t.Errorf("fetched %d messages after settlements that were refused, want 1", len(got))
	}
}

// repetitionAfterDecision: after the settlement that parked a message, an operator decides about it; then the settlement is
// repeated.
func repetitionAfterDecision(e *env) {
	keys := e.keysOf(0, 3)
	w := e.worker("r", "a")
	e.publish(append(append(e.messages(keys[0], 2), e.messages(keys[1], 2)...), e.messages(keys[2], 2)...)...)
	r := sequences(w.drain()...)
	st := store.Settlement{Cursor: w.read[0], Moved: true}
	for i, key := range keys {
		st.Parked = append(st.Parked,
			store.ParkOutcome{Sequence: r[2*i], Key: key, FromLog: true, Waits: true, Reason: store.ParkRetry, Attempts: 1, Cause: "no"},
			store.ParkOutcome{Sequence: r[2*i+1], Key: key, FromLog: true, Waits: true, Reason: store.ParkHeld})
		st.Held = append(st.Held, store.HeldKey{Key: key, Sequence: r[2*i], Reason: store.ParkRetry, Cause: "no", Attempts: 1, After: time.Hour})
	}
	w.settle(st)
	e.must(e.skip("r", keys[0], "why"), "skip")
	_, err := e.dead("r", keys[1], "why", false)
	e.must(err, "dead")
	w.repeat(st)
	if n := len(e.deadLetters(everyDead)); n != 2 {
		e.t.Errorf("%d dead letters, want 2", n)
	}
	runs := map[string][]int64{}
	for _, run := range w.due().Runs {
		runs[run.Key] = sequences(run.Entries...)
	}
	e.wantSequences("due of the key whose head was skipped", runs[keys[0]], r[1:2])
	e.wantSequences("due of the key whose head was given up", runs[keys[1]], r[3:4])
	if len(runs) != 2 {
		e.t.Errorf("due: %v, want two keys", runs)
	}
	if n := e.status("r").Parked.N; n != 4 {
		e.t.Errorf("%d parked, want 4", n)
	}
}

// repetitionAfterRedrive: an operator redrives the dead letter before the settlement that wrote it is repeated.
func repetitionAfterRedrive(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	p := e.partition(key)
	e.publishKeys(key)
	seq := w.drain()[0].Message.Sequence
	st := store.Settlement{Partition: p, Cursor: w.read[p], Moved: true,
		Dead: []store.DeadOutcome{{Sequence: seq, Key: key, FromLog: true, Reason: "rejected", Cause: "bad", Attempts: 1}}}
	w.settle(st)
	if n, err := e.RedriveDead(e.ctx, store.DeadFilter{Relay: "r"}, "olga", 0); n != 1 || err != nil {
		e.t.Fatalf("redrove %d, %v", n, err)
	}
	w.repeat(st)
	if n := len(e.deadLetters(everyDead)); n != 1 {
		e.t.Errorf("%d dead letters, want the first only", n)
	}
	due := w.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 || due.Runs[0].Entries[0].Reason != store.ParkRedriven {
		e.t.Errorf("due: %+v, want the redriven message", due.Runs)
	}
}

// decisionsOnFirstParked: messages were queued for a key while it was being released, so the held key names no parked message.
func decisionsOnFirstParked(e *env) {
	w := e.worker("r", "a")
	key := "order/1"
	p := e.partition(key)
	e.publish(e.messages(key, 4)...)
	r := w.drain()
	st := store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Held: []store.HeldKey{{Key: key, Reason: store.ParkHeld, Cause: "of another", After: time.Hour}}}
	for _, rec := range r[1:] {
		st.Parked = append(st.Parked, store.ParkOutcome{Sequence: rec.Message.Sequence, Key: key, FromLog: true, Waits: true, Reason: store.ParkHeld})
	}
	w.settle(st)
	e.must(e.skip("r", key, "why"), "skip")
	w.wantRun(key, r[2:])
	// The named blocking message is gone: it was delivered, but the key is not released yet.
	st = store.Settlement{Partition: p, Held: []store.HeldKey{{Key: key, Sequence: r[0].Message.Sequence, Reason: store.ParkRetry, Cause: "of another", After: time.Hour}}}
	w.settle(st)
	if n, err := e.dead("r", key, "given up", false); n != 1 || err != nil {
		e.t.Errorf("dead-lettered %d, %v; want 1", n, err)
	}
	w.wantRun(key, r[3:])
	var got []string
	for _, l := range e.deadLetters(everyDead) {
		got = append(got, l.Message.ID)
		if l.Cause != "" || l.Attempts != 0 {
			e.t.Errorf("dead letter %+v has the cause or attempts of another message", l)
		}
	}
	e.wantIDs("dead letters", got, recordIDs(r[1:3]))
}
