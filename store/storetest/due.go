package storetest

import (
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var dueTests = []test{
	{name: "OldestDueComesFirst", run: oldestDueFirst},
	{name: "RunsAreAtMostAsManyAsAsked", run: runsAreBounded},
	{name: "RunsAreAtMostAsLongAsAsked", run: runLengthIsBounded},
	{name: "MaxBytesIsKeptOverAllRuns", run: dueMaxBytes},
	{name: "BusyKeysAndMessagesAreLeftOut", run: busyIsLeftOut},
	{name: "DelayedMessageOfAHeldKeyStandsAlone", run: delayedStandsAlone},
	{name: "DelayIsNotTimeThatAMessageWasParkedFor", run: delayIsNotParkedFor},
	{name: "HeldKeyWithoutMessagesIsAnEmptyRun", run: emptyRun},
	{name: "NextSaysWhenMoreIsDue", run: nextSaysWhen},
	{name: "OnlyTheAskedPartitionsAreDue", run: dueOfPartitions},
	{name: "FromLeavesOutNothingThatWaits", run: fromLeavesOutNothing},
	{name: "LongQueueOfAHeldKeyIsWorkedOffInOrder", run: longHeldQueue},
}

// parkEach publishes, for each wait, a message without a key and parks it for that long.
func (w *worker) parkEach(waits ...time.Duration) []store.Entry {
	w.t.Helper()
	w.publish(w.messages("", len(waits))...)
	records := w.drain()
	for i, r := range records {
		p := postrider.PartitionOf("", r.Message.ID, w.partitions)
		w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: []store.ParkOutcome{
			{Sequence: r.Message.Sequence, FromLog: true, Reason: store.ParkRetry, After: waits[i], Attempts: 1},
		}})
	}
	return records
}

// oldestDueFirst parks messages in an order that differs from that of their sequences.
func oldestDueFirst(e *env) {
	w := e.worker("r", "a")
	e.publish(e.messages("", 3)...)
	records := w.drain()
	park := func(r store.Entry) {
		e.clockMoves(2 * time.Millisecond)
		w.settle(store.Settlement{Partition: postrider.PartitionOf("", r.Message.ID, e.partitions), Parked: []store.ParkOutcome{
			{Sequence: r.Message.Sequence, FromLog: true, Reason: store.ParkRetry, Attempts: 1},
		}})
		e.clockMoves(2 * time.Millisecond)
	}
	park(records[2])
	head := w.hold("order/1", 1, 0)[0]
	park(records[0])
	park(records[1])
	var got []string
	for _, run := range w.due().Runs {
		got = append(got, recordIDs(run.Entries)...)
	}
	e.wantIDs("due", got, recordIDs([]store.Entry{records[2], head, records[0], records[1]}))
}

// delayIsNotParkedFor: for a message that was published weeks before its delivery time, the time for which it may be without a handler
// would be over when it is due.
func delayIsNotParkedFor(e *env) {
	w := e.worker("r", "a")
	msgs := e.messages("", 2)
	early, late := msgs[0], msgs[1]
	early.DeliverAt, late.DeliverAt = early.Time.Add(time.Hour), late.Time.Add(-time.Hour)
	for _, m := range msgs {
		w.parkAlone(m, store.ParkOutcome{Reason: store.ParkUnhandled}) // due at once
	}
	e.clockMoves(2 * time.Millisecond)
	parkedFor := make(map[string]time.Duration)
	for _, run := range w.due().Runs {
		parkedFor[run.Entries[0].Message.ID] = run.Entries[0].ParkedFor
	}
	if len(parkedFor) != 2 || parkedFor[early.ID] != 0 || parkedFor[late.ID] <= 0 || parkedFor[late.ID] > 50*time.Minute {
		e.t.Errorf("parked for %v; want %s, whose delivery time is in an hour, for no time, and %s since it was parked", parkedFor, early.ID, late.ID)
	}
}

func runsAreBounded(e *env) {
	w := e.worker("r", "a")
	w.parkEach(0, 0, 0)
	w.hold("order/1", 2, 0)
	due := w.dueOf(store.DueRequest{Runs: 3, RunLength: 10, MaxBytes: 1 << 20})
	if len(due.Runs) != 3 || !due.More {
		e.t.Errorf("asked for 3 of 4: %d runs and more %v", len(due.Runs), due.More)
	}
	if due = w.dueOf(store.DueRequest{Runs: 4, RunLength: 10, MaxBytes: 1 << 20}); len(due.Runs) != 4 || due.More {
		e.t.Errorf("asked for 4 of 4: %d runs and more %v", len(due.Runs), due.More)
	}
}

func runLengthIsBounded(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 5, 0)
	due := w.dueOf(store.DueRequest{Runs: 10, RunLength: 3, MaxBytes: 1 << 20})
	if len(due.Runs) != 1 {
		e.t.Fatalf("%d runs, want 1", len(due.Runs))
	}
	e.wantIDs("run", recordIDs(due.Runs[0].Entries), recordIDs(records[:3]))
}

func dueMaxBytes(e *env) {
	w := e.worker("r", "a")
	var msgs []*postrider.Message
	for range 6 {
		m := e.message("order/1")
		m.Payload = []byte(strings.Repeat("x", 1_000))
		msgs = append(msgs, m)
	}
	large := e.message("order/2")
	large.Payload = []byte(strings.Repeat("x", 10_000))
	e.publish(append(msgs, large)...)
	for _, r := range w.drain() {
		p := w.partition(r.Message.Key)
		w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Parked: []store.ParkOutcome{
			{Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkSlow},
		}})
	}
	left := 7
	for rounds := 0; left > 0; rounds++ {
		due := w.dueOf(store.DueRequest{Runs: 100, RunLength: 100, MaxBytes: 3_500})
		size, n := 0, 0
		for _, run := range due.Runs {
			for _, r := range run.Entries {
				size, n = size+r.Message.Size(), n+1
				w.settle(store.Settlement{Partition: run.Partition, Removed: []int64{r.Message.Sequence}})
			}
		}
		if left -= n; n == 0 || n > 1 && size > 3_500 || due.More != (left > 0) || rounds > 7 {
			e.t.Fatalf("round %d: %d messages of %d bytes, more %v, %d left; asked for at most 3500 bytes", rounds, n, size, due.More, left)
		}
	}
}

func busyIsLeftOut(e *env) {
	w := e.worker("r", "a")
	parked := w.parkEach(0, 0)
	w.hold("order/1", 1, 0)
	free := w.hold("order/2", 1, 0)
	due := w.dueOf(store.DueRequest{
		Runs: 10, RunLength: 10, MaxBytes: 1 << 20,
		BusyKeys: []string{"order/1", "not held"}, BusySequences: []int64{parked[0].Message.Sequence, 987_654},
	})
	var got []string
	for _, run := range due.Runs {
		got = append(got, recordIDs(run.Entries)...)
	}
	e.wantSet("due apart from what is busy", got, recordIDs([]store.Entry{parked[1], free[0]}))
	if due.More {
		e.t.Error("more is due, apart from what is busy")
	}
}

// delayedStandsAlone: a delayed message has left the order of its key; it does not wait for its held key and is
// delivered separately.
func delayedStandsAlone(e *env) {
	w := e.worker("r", "a")
	held := w.hold("order/1", 2, time.Hour)
	m := e.message("order/1")
	e.publish(m)
	seq := w.drain()[0].Message.Sequence
	w.park("order/1", store.ParkOutcome{Sequence: seq, Reason: store.ParkDelayed})
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "" {
		e.t.Fatalf("due: %+v, want only the delayed message, for itself", due.Runs)
	}
	e.wantIDs("due", recordIDs(due.Runs[0].Entries), []string{m.ID})
	e.must(e.retry("r", "order/1"), "retry")
	for _, run := range w.due().Runs {
		if run.Key == "order/1" {
			e.wantIDs("run of the held key", recordIDs(run.Entries), recordIDs(held))
		}
	}
}

func emptyRun(e *env) {
	w := e.worker("r", "a")
	seq := w.hold("order/1", 1, 0)[0].Message.Sequence
	w.settle(store.Settlement{Partition: e.partition("order/1"), Removed: []int64{seq}})
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "order/1" || len(due.Runs[0].Entries) != 0 {
		e.t.Fatalf("due: %+v, want the key with nothing left", due.Runs)
	}
}

func nextSaysWhen(e *env) {
	w := e.worker("r", "a")
	if due := w.due(); due.Next >= 0 || due.More {
		e.t.Errorf("nothing is parked, next is %s and more %v", due.Next, due.More)
	}
	w.parkEach(2 * time.Hour)
	if due := w.due(); due.Next < 110*time.Minute || due.Next > 2*time.Hour {
		e.t.Errorf("a message is parked for two hours, next is %s", due.Next)
	}
	w.hold("order/1", 2, time.Hour)
	w.parkEach(0)
	due := w.due()
	if due.Next < 50*time.Minute || due.Next > time.Hour {
		e.t.Errorf("a key is held for an hour, next is %s", due.Next)
	}
	if len(due.Runs) != 1 || due.More {
		e.t.Errorf("one message is due: %d runs and more %v", len(due.Runs), due.More)
	}
}

func dueOfPartitions(e *env) {
	w := e.worker("r", "a")
	a, b := e.keysOf(0, 1)[0], e.keysOf(1, 1)[0]
	w.hold(a, 1, 0)
	w.hold(b, 1, time.Hour)
	due := w.dueIn(store.DueRequest{Runs: 10, RunLength: 10, MaxBytes: 1 << 20}, 1, 2)
	if len(due.Runs) != 0 || due.Next < 50*time.Minute {
		e.t.Errorf("due in partitions 1 and 2: %+v", due)
	}
	due = w.dueIn(store.DueRequest{Runs: 10, RunLength: 10, MaxBytes: 1 << 20}, 0)
	if len(due.Runs) != 1 || due.Runs[0].Partition != 0 || due.Next >= 0 {
		e.t.Errorf("due in partition 0: %+v", due)
	}
}

func longHeldQueue(e *env) {
	w := e.worker("r", "a")
	want := recordIDs(w.hold("order/1", 900, 0))
	p := e.partition("order/1")
	var got []string
	for {
		due := w.dueOf(store.DueRequest{Runs: 10, RunLength: 100, MaxBytes: 1 << 20})
		if len(due.Runs) != 1 || len(got) > len(want) {
			e.t.Fatalf("%d runs with %d of %d delivered", len(due.Runs), len(got), len(want))
		}
		st := store.Settlement{Partition: p}
		for _, r := range due.Runs[0].Entries {
			got = append(got, r.Message.ID)
			st.Removed = append(st.Removed, r.Message.Sequence)
		}
		if len(due.Runs[0].Entries) == 0 {
			break
		}
		w.settle(st)
	}
	e.wantIDs("delivered", got, want)
}

// fromLeavesOutNothing: a read that begins where the last one says finds what the last one has found or left out because it was busy,
// and what is parked since.
func fromLeavesOutNothing(e *env) {
	w := e.worker("r", "a")
	from := w.due().From // nothing is parked
	parked := w.parkEach(0, 0, time.Hour)
	head := w.hold("order/1", 1, 0)[0]
	busy := w.hold("order/2", 1, 0)[0]
	req := store.DueRequest{Runs: 10, RunLength: 10, MaxBytes: 1 << 20, From: from}
	wantDue := func(what string, entries ...store.Entry) store.DueResult {
		e.t.Helper()
		due := w.dueOf(req)
		var got []string
		for _, run := range due.Runs {
			got = append(got, recordIDs(run.Entries)...)
		}
		e.wantSet(what, got, recordIDs(entries))
		if due.Next < 50*time.Minute || due.Next > time.Hour {
			e.t.Errorf("%s: a message is parked for an hour, next is %s", what, due.Next)
		}
		return due
	}
	wantDue("due from where nothing was parked", parked[0], parked[1], head, busy)
	req.BusyKeys, req.BusySequences = []string{"order/2"}, []int64{parked[0].Message.Sequence}
	for range 3 {
		req.From = wantDue("due apart from what is busy", parked[1], head).From
	}
	req.BusyKeys, req.BusySequences = nil, nil
	req.From = wantDue("due when it is not busy any more", parked[0], parked[1], head, busy).From
	w.settle(store.Settlement{Partition: postrider.PartitionOf("", parked[0].Message.ID, e.partitions), Removed: []int64{parked[0].Message.Sequence}})
	req.From = wantDue("due when the first is removed", parked[1], head, busy).From
	again := w.parkEach(0)[0]
	req.From = wantDue("due when another is parked", parked[1], head, busy, again).From
	e.must(e.retry("r", "order/1"), "retry")
	req.From = wantDue("due when an operator has decided", parked[1], head, busy, again).From
}
