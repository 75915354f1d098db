package storetest

import (
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var fetchTests = []test{
	{name: "LimitIsKeptAndMoreSaysThatThereIsMore", run: limitIsKept},
	{name: "MaxBytesIsKeptOverAllPartitions", run: maxBytesIsKept},
	{name: "AMessageLargerThanMaxBytesComesAlone", run: largeMessageComesAlone},
	{name: "EveryCursorInsideABatchIsValid", run: cursorsInsideABatch},
	{name: "FetchingAheadWithoutSettlingForgetsNothing", run: fetchingAhead},
	{name: "IdleFetchFindsNothing", run: idleFetch},
	{name: "OnlyTheAskedPartitionsAreRead", run: onlyAskedPartitions},
	{name: "RelaysReadTheLogEachForItself", run: relaysReadEachForItself},
	{name: "ARelayStartsWithTheOldestOrFromNow", run: relayStarts},
	{name: "ARelayStartsInAllPartitionsAtOnce", run: relayStartsEverywhere},
	{name: "DelayedMessagesSayHowLongTheyWait", run: delayedMessages},
	{name: "UndecodableRowIsReportedAndStopsNothingElse", run: undecodableRow},
	{name: "UndecodableRowStaysSoThroughARedrive", run: undecodableIsRedriven, statements: true},
}

func limitIsKept(e *env) {
	keys := e.keysOf(1, 2)
	want := e.publish(append(e.messages(keys[0], 5), e.messages(keys[1], 5)...)...)
	w := e.worker("r", "a")
	var got []string
	for _, n := range []int{4, 4, 2} {
		batches := w.fetch(4, 1<<20)
		var records []store.Entry
		more := false
		for _, b := range batches {
			records = append(records, b.Entries...)
			more = more || b.More
		}
		if len(records) != n || more != (n == 4) {
			e.t.Fatalf("a fetch of at most 4 after %d of 10 returned %d and more %v", len(got), len(records), more)
		}
		got = append(got, recordIDs(records)...)
	}
	e.wantIDs("fetched", got, want)
}

func maxBytesIsKept(e *env) {
	var msgs []*postrider.Message
	for p := range e.partitions {
		for _, key := range e.keysOf(p, 3) {
			m := e.message(key)
			m.Payload = []byte(strings.Repeat("x", 1_000))
			msgs = append(msgs, m)
		}
	}
	e.publish(msgs...)
	w := e.worker("r", "a")
	var got []string
	for range len(msgs) {
		size, more := 0, false
		for _, b := range w.fetch(100, 3_500) {
			for _, r := range b.Entries {
				size += r.Message.Size()
				got = append(got, r.Message.ID)
			}
			more = more || b.More
		}
		if size > 3_500 {
			e.t.Fatalf("fetched %d bytes, asked for at most 3500", size)
		}
		if size == 0 || !more && len(got) < len(msgs) {
			e.t.Fatalf("fetched %d bytes and more %v when %d of %d messages had come", size, more, len(got), len(msgs))
		}
		if len(got) == len(msgs) {
			break
		}
	}
	e.wantSet("fetched", got, ids(msgs))
}

func largeMessageComesAlone(e *env) {
	large := e.message("order/1")
	large.Payload = []byte(strings.Repeat("x", 50_000))
	want := e.publish(large, e.message("order/1"), e.message("order/1"))
	w := e.worker("r", "a")
	var got []string
	more := false
	for _, b := range w.fetch(100, 100) {
		got, more = append(got, recordIDs(b.Entries)...), more || b.More
	}
	e.wantIDs("fetched with room for less than one message", got, want[:1])
	if !more {
		e.t.Error("the fetch does not say that there is more")
	}
	got = append(got, recordIDs(w.drain())...)
	e.wantIDs("fetched", got, want)
}

// cursorsInsideABatch settles a batch up to each of its records; each time, another process continues right after it.
func cursorsInsideABatch(e *env) {
	key := e.keysOf(2, 1)[0]
	want := e.publish(e.messages(key, 6)...)
	w := e.worker("r", "w0")
	for i := range want {
		var batch store.Batch
		for _, b := range w.fetch(100, 1<<20) {
			if len(b.Entries) > 0 {
				batch = b
			}
		}
		e.wantIDs("fetched", recordIDs(batch.Entries), want[i:])
		settled := store.Cursor{Position: batch.Entries[0].Message.Sequence, Snapshot: batch.Next.Snapshot}
		w.settle(store.Settlement{Partition: 2, Cursor: settled, Moved: true, Delivered: []int64{settled.Position}})
		w = w.takeOver("w" + want[i])
	}
	e.wantSet("fetched when all was settled", recordIDs(w.drain()), nil)
}

func fetchingAhead(e *env) {
	w := e.worker("r", "a")
	var want []string
	for range 5 {
		want = append(want, e.publishKeys("order/1", "order/2", "order/3", "")...)
		w.fetch(2, 1<<20)
	}
	w.drain()
	e.wantSet("fetched by the next process, since nothing was settled", recordIDs(w.takeOver("b").drain()), want)
}

func idleFetch(e *env) {
	w := e.worker("r", "a")
	for range 3 {
		for _, b := range w.fetch(10, 1<<20) {
			if len(b.Entries) > 0 || b.More {
				e.t.Fatalf("partition %d of an empty log: %d records, more %v", b.Partition, len(b.Entries), b.More)
			}
		}
	}
	want := e.publishKeys("order/1")
	e.wantSet("fetched after idling", recordIDs(w.drain()), want)
	w.settleRead()
	e.wantSet("fetched by the next process", recordIDs(w.takeOver("b").drain()), nil)
}

func onlyAskedPartitions(e *env) {
	a, b := e.keysOf(0, 1)[0], e.keysOf(3, 1)[0]
	e.publishKeys(a, b)
	w := e.worker("r", "a")
	batches, err := e.Fetch(e.ctx, "r", store.FetchRequest{
		Partitions: []store.FetchPartition{{LeaseRef: w.ref(3), After: w.read[3]}}, Limit: 10, MaxBytes: 1 << 20,
	})
	e.must(err, "fetch")
	if len(batches) != 1 || len(batches[0].Entries) != 1 || batches[0].Entries[0].Message.Key != b {
		e.t.Fatalf("asked for partition 3, got %+v", batches)
	}
}

func relaysReadEachForItself(e *env) {
	want := e.publishKeys("order/1", "order/2", "", "")
	one := e.worker("to-broker", "a")
	e.wantSet("fetched by one relay", recordIDs(one.drain()), want)
	one.settleRead()
	two := e.worker("to-handlers", "a")
	e.wantSet("fetched by another relay", recordIDs(two.drain()), want)
	more := e.publishKeys("order/1")
	e.wantSet("fetched later by one relay", recordIDs(one.drain()), more)
	e.wantSet("fetched later by another relay, which has settled nothing", recordIDs(two.takeOver("b").drain()), append(want, more...))
}

// Where a relay that is new to the outbox begins: AcquireRequest.FromNow.
const fromOldest, fromNow = false, true

func relayStarts(e *env) {
	before := e.publishKeys("order/1", "order/2", "")
	late := e.workerFrom("from-now", "a", fromNow)
	after := e.publishKeys("order/1", "order/2", "")
	e.wantSet("fetched from now", recordIDs(late.drain()), after)
	e.wantSet("fetched from the oldest", recordIDs(e.worker("from-oldest", "a").drain()), append(before, after...))
	e.must(e.Leave(e.ctx, "from-now", late.owner), "leave")
	again := e.workerFrom("from-now", "b", fromOldest)
	e.wantSet("fetched when the relay, which has begun already, is told to start with the oldest", recordIDs(again.drain()), after)
}

// relayStartsEverywhere: messages published after the relay began, but before a partition's first lease, are not skipped.
func relayStartsEverywhere(e *env) {
	for name, partitions := range map[string][]int{"asked for one": {0}, "asked for none": nil} {
		e.publishKeys("order/1", "order/2", "order/3", "order/4", "")
		_, err := e.Acquire(e.ctx, name, owner("a"), store.AcquireRequest{Claims: claims(partitions...), TTL: longTTL, FromNow: true})
		e.must(err, "acquire")
		if leases, err := e.Acquire(e.ctx, name, owner("b"), store.AcquireRequest{Claims: claims(partitions...), TTL: longTTL, FromNow: true}); len(leases) > 0 || err != nil {
			e.t.Fatalf("acquired what another holds: %+v, %v", leases, err)
		}
		view, err := e.Heartbeat(e.ctx, name, owner("a"), longTTL)
		e.must(err, "heartbeat")
		if len(view.Partitions) != len(partitions) {
			e.t.Errorf("partitions that were ever leased: %+v, want %v", view.Partitions, partitions)
		}
		after := e.publishKeys("order/1", "order/2", "order/3", "order/4", "")
		e.must(e.Leave(e.ctx, name, owner("a")), "leave")
		e.wantSet("fetched when "+name, recordIDs(e.workerFrom(name, "c", fromNow).drain()), after)
	}
}

func delayedMessages(e *env) {
	for _, c := range []struct {
		name     string
		set      func(m *postrider.Message)
		min, max time.Duration
	}{
		{"DeliverAfter an hour", func(m *postrider.Message) { m.DeliverAfter = time.Hour }, 55 * time.Minute, time.Hour},
		{"DeliverAt in two hours", func(m *postrider.Message) { m.DeliverAt = time.Now().Add(2 * time.Hour) }, 115 * time.Minute, 2*time.Hour + time.Second},
		{"DeliverAt in the past", func(m *postrider.Message) { m.DeliverAt = time.Now().Add(-time.Hour) }, -2 * time.Hour, 0},
		{"no delay", func(*postrider.Message) {}, -time.Hour, 0},
	} {
		m := e.message("order/" + c.name)
		c.set(m)
		e.publish(m)
		w := e.worker(c.name, "a")
		for _, r := range w.drain() {
			if r.Message.ID == m.ID && (r.Delay < c.min || r.Delay > c.max) {
				e.t.Errorf("%s: delay %s, want %s to %s", c.name, r.Delay, c.min, c.max)
			}
		}
	}
}

// undecodable publishes a good message, an undecodable one, and another good one, all with the same key.
func (e *env) undecodable(key string) (good []string) {
	e.t.Helper()
	first, bad, last := e.message(key), e.message(key), e.message(key)
	tx := e.open()
	e.insert(tx, first)
	e.must(tx.insertUndecodable(e.ctx, bad), "insert an undecodable row")
	e.insert(tx, last)
	e.commit(tx)
	return []string{first.ID, last.ID}
}

func undecodableRow(e *env) {
	good := e.undecodable("order/1")
	w := e.worker("r", "a")
	got := w.drain()
	if len(got) != 3 {
		e.t.Fatalf("fetched %d records, want 3 with the undecodable one", len(got))
	}
	bad := got[1]
	if bad.Err == nil || bad.Message == nil || bad.Message.Key != "order/1" || bad.Message.Sequence <= got[0].Message.Sequence {
		e.t.Fatalf("undecodable row came as %+v, want an error, the key and the sequence", bad)
	}
	e.wantIDs("decodable", []string{got[0].Message.ID, got[2].Message.ID}, good)
	if got[0].Err != nil || got[2].Err != nil {
		e.t.Errorf("decodable messages came with errors %v, %v", got[0].Err, got[2].Err)
	}
	p := e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Dead: []store.DeadOutcome{
		{Sequence: bad.Message.Sequence, Key: "order/1", FromLog: true, Reason: "undecodable", Cause: bad.Err.Error()},
	}})
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 || deadLetters[0].Message.Key != "order/1" || deadLetters[0].Reason != "undecodable" || deadLetters[0].Cause != bad.Err.Error() {
		e.t.Fatalf("dead letters %+v, want the undecodable row with what could be read and its cause", deadLetters)
	}
}

// undecodableIsRedriven moves an undecodable row to the dead letters and redrives it: it is reported each time.
func undecodableIsRedriven(e *env) {
	e.undecodable("order/1")
	w := e.worker("r", "a")
	bad := w.drain()[1]
	p := e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Dead: []store.DeadOutcome{
		{Sequence: bad.Message.Sequence, Key: "order/1", FromLog: true, Reason: "undecodable", Cause: "cannot be read"},
	}})
	if n, err := e.RedriveDead(e.ctx, everyDead, "olga", 0); n != 1 || err != nil {
		e.t.Fatalf("redrive: %d, %v; want 1", n, err)
	}
	due := w.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 || due.Runs[0].Entries[0].Err == nil {
		e.t.Fatalf("due after the redrive: %+v, want the undecodable message with its error", due.Runs)
	}
}
