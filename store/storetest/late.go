package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var lateTests = []test{
	{name: "LateCommitIsNotLost", run: lateCommitIsNotLost, late: true},
	{name: "LateCommitsComeBeforeFreshOnes", run: lateCommitsComeFirst, late: true},
	{name: "CursorStaysUntilTheLateOnesAreSettled", run: cursorStaysForLate, late: true},
	{name: "BulkCommittedLateIsPaged", run: bulkCommittedLate, late: true, partitions: 1},
	{name: "PagingGoesOnInAnotherProcess", run: pagingContinues, late: true, partitions: 1},
	{name: "OpenTransactionHidesNothing", run: openTransactionHidesNothing, late: true},
	{name: "ParkedLateMessagesAreNamed", run: lateParked, late: true},
	{name: "FromNowIncludesWhatCommitsLater", run: fromNowIncludesLater, late: true},
	{name: "RandomTransactionsAreFetchedExactlyOnce", run: randomTransactions, statements: true},
}

func lateCommitIsNotLost(e *env) {
	w := e.worker("r", "a")
	slow := e.open()
	late := e.messages("order/slow", 2)
	e.insert(slow, late...)
	fast := e.publishKeys("order/1", "order/2", "order/3", "order/4", "order/5")
	e.wantSet("fetched while a transaction is open", recordIDs(w.drain()), fast)
	w.settleRead()
	w = w.takeOver("b")
	e.commit(slow)
	e.wantIDs("fetched after its commit", recordIDs(w.drain()), ids(late))
	w.settleRead()
	e.wantSet("fetched when all was settled", recordIDs(w.takeOver("c").drain()), nil)
}

func lateCommitsComeFirst(e *env) {
	keys := e.keysOf(0, 3)
	w := e.worker("r", "a")
	one, two := e.open(), e.open()
	first, second, third := e.message(keys[0]), e.message(keys[1]), e.message(keys[0])
	e.insert(one, first)
	e.insert(two, second)
	e.insert(one, third)
	e.publishKeys(keys[2])
	w.drain()
	e.commit(two)
	e.commit(one)
	fresh := e.publishKeys(keys[1])
	var got []string
	for _, b := range w.fetch(100, 1<<20) {
		if b.Partition == 0 {
			got = recordIDs(b.Entries)
			if b.Late != 3 {
				e.t.Errorf("%d of the records count as late, want 3", b.Late)
			}
		}
	}
	e.wantIDs("fetched", got, append([]string{first.ID, second.ID, third.ID}, fresh...))
}

func cursorStaysForLate(e *env) {
	keys := e.keysOf(0, 2)
	w := e.worker("r", "a")
	slow := e.open()
	late := e.messages(keys[0], 3)
	e.insert(slow, late...)
	e.publishKeys(keys[1])
	w.drain()
	w.settleRead()
	e.commit(slow)
	fresh := e.publish(e.messages(keys[1], 3)...)
	w = w.takeOver("b")
	var batch store.Batch
	for _, b := range w.fetch(100, 1<<20) {
		if b.Partition == 0 {
			batch = b
		}
	}
	e.wantIDs("fetched", recordIDs(batch.Entries), append(ids(late), fresh...))
	// Nothing is settled: all are fetched again.
	w = w.takeOver("c")
	e.wantIDs("fetched when nothing was settled", recordIDs(w.drain()), append(ids(late), fresh...))
	// Only the late ones are settled: the fresh ones are fetched again.
	afterLate := store.Cursor{Position: w.leases[0].Cursor.Position, Snapshot: batch.Next.Snapshot}
	w.settle(store.Settlement{Partition: 0, Cursor: afterLate, Moved: true})
	w = w.takeOver("d")
	e.wantIDs("fetched after the late ones", recordIDs(w.drain()), fresh)
	settled := store.Cursor{Position: batch.Entries[batch.Late].Message.Sequence, Snapshot: batch.Next.Snapshot}
	w.settle(store.Settlement{Partition: 0, Cursor: settled, Moved: true})
	e.wantIDs("fetched after the first fresh one", recordIDs(w.takeOver("e").drain()), fresh[1:])
}

// lateParked: of three messages that committed late, two are parked or dead-lettered and the third is not settled, so the cursor
// stays before all of them. The next reader learns which two were parked or dead-lettered.
func lateParked(e *env) {
	keys := e.keysOf(0, 2)
	w := e.worker("r", "a")
	slow := e.open()
	late := e.messages(keys[0], 3)
	e.insert(slow, late...)
	e.publishKeys(keys[1])
	w.drain()
	w.settleRead()
	e.commit(slow)
	r := w.drain()
	e.wantIDs("fetched", recordIDs(r), ids(late))
	w.settle(store.Settlement{Partition: 0,
		Parked: []store.ParkOutcome{{Sequence: r[0].Message.Sequence, Key: keys[0], FromLog: true, Reason: store.ParkRetry}},
		Dead:   []store.DeadOutcome{{Sequence: r[2].Message.Sequence, Key: keys[0], FromLog: true, Reason: "rejected"}},
	})
	w = w.takeOver("b")
	if got, want := w.leases[0].Parked.Sequences, sequences(r[0], r[2]); !slices.Equal(got, want) {
		e.t.Errorf("parked of the late ones: %v, want %v", got, want)
	}
	e.wantIDs("fetched again", recordIDs(w.drain()), ids(late))
	w.settleRead()
	w = w.takeOver("c")
	if got := w.leases[0].Parked.Sequences; len(got) != 0 {
		e.t.Errorf("parked, after the cursor has passed it: %v, want none", got)
	}
}

func bulkCommittedLate(e *env) {
	w := e.worker("r", "a")
	bulk := e.open()
	want := e.messages("bulk", 2_350)
	e.insert(bulk, want...)
	straggler := e.open()
	last := e.message("straggler")
	e.insert(straggler, last)
	e.publishKeys("order/1")
	w.drain()
	e.commit(bulk)
	var got, others []string
	for page := 0; ; page++ {
		if page == 3 { // between two pages
			e.commit(straggler)
			others = append(e.publishKeys("order/2", "order/3"), last.ID)
		}
		n, more := 0, false
		for _, b := range w.fetch(100, 1<<20) {
			got, n, more = append(got, recordIDs(b.Entries)...), n+len(b.Entries), more || b.More
		}
		if n == 0 && !more {
			break
		}
	}
	e.wantSet("fetched", got, append(ids(want), others...))
	got = slices.DeleteFunc(got, func(id string) bool { return slices.Contains(others, id) })
	e.wantIDs("fetched of the bulk", got, ids(want))
}

func pagingContinues(e *env) {
	w := e.worker("r", "w0")
	bulk := e.open()
	want := e.messages("bulk", 450)
	e.insert(bulk, want...)
	e.publishKeys("order/1")
	w.drain()
	w.settleRead()
	e.commit(bulk)
	var got []string
	for i := 1; ; i++ {
		batches := w.fetch(100, 1<<20)
		if len(batches) == 1 {
			got = append(got, recordIDs(batches[0].Entries)...)
		}
		if len(batches) == 0 || len(batches[0].Entries) == 0 && !batches[0].More {
			break
		}
		w.settleRead()
		w = w.takeOver(fmt.Sprintf("w%d", i))
		if i > 20 {
			e.t.Fatalf("after 20 pages of 100, %d of 450 messages have come", len(got))
		}
	}
	e.wantIDs("fetched page by page in as many processes", got, ids(want))
}

func openTransactionHidesNothing(e *env) {
	w := e.worker("r", "a")
	slow := e.open()
	late := e.message("order/slow")
	e.insert(slow, late)
	for i := range 50 {
		want := e.publish(e.messages(fmt.Sprintf("order/%d", i), 20)...)
		e.wantIDs("fetched while a transaction is open", recordIDs(w.drain()), want)
		w.settleRead()
	}
	e.commit(slow)
	e.wantIDs("fetched after its commit", recordIDs(w.drain()), []string{late.ID})
}

func fromNowIncludesLater(e *env) {
	tx, gone := e.open(), e.open()
	m := e.message("order/1")
	e.insert(tx, m)
	e.insert(gone, e.message("order/2"))
	e.publishKeys("order/3")
	w := e.workerFrom("r", "a", fromNow)
	e.commit(tx)
	e.must(gone.rollback(e.ctx), "rollback")
	e.wantIDs("fetched from now", recordIDs(w.drain()), []string{m.ID})
}

// seedVariable sets the seed of all randomness, to repeat a failed run.
const seedVariable = "POSTRIDER_TEST_SEED"

// random returns a random source and logs its seed.
func (e *env) random() *rand.Rand {
	e.t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		e.must(err, seedVariable)
	}
	e.t.Logf("%s=%d repeats this run", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomTransactions decides at random, step by step, which of several transactions begins, writes, sets a savepoint, rolls back
// to it, commits or rolls back, and when a process fetches, settles a part and dies. A producer has its keys to itself while its
// transaction is open, like one that locks its aggregate's row.
func randomTransactions(e *env) {
	c := &chance{env: e, Rand: e.random(), worker: e.worker("r", "w0"), locked: make(map[string]bool), order: make(map[string][]string)}
	slots := 8
	if e.suite.features.OneWriter != "" {
		slots = 1
	}
	for range slots {
		c.writers = append(c.writers, &writer{})
	}
	for range e.amount(1_500) {
		if c.IntN(4) > 0 {
			c.write(c.writers[c.IntN(slots)])
		} else if slots > 1 || c.writers[0].tx == nil { // settling writes too
			c.readOn()
		}
	}
	for _, w := range c.writers {
		if w.tx != nil {
			c.end(w)
		}
	}
	for c.readOn() {
	}
	c.assess()
}

// chance is a random run and its expected result.
type chance struct {
	*env
	*rand.Rand
	worker    *worker
	writers   []*writer
	locked    map[string]bool
	committed []string
	order     map[string][]string // by key, in the order of commit
	settled   []*postrider.Message
	died      int
}

// writer is a producer with at most one open transaction.
type writer struct {
	tx        transaction
	keys      []string
	msgs      []*postrider.Message
	savepoint int // number of messages written when it was set; -1: there is none
}

func (c *chance) write(w *writer) {
	switch {
	case w.tx == nil:
		*w = writer{tx: c.open(), savepoint: -1}
	case c.IntN(8) == 0:
		c.end(w)
	case c.IntN(8) == 0:
		c.must(w.tx.savepoint(c.ctx, "sp"), "savepoint")
		w.savepoint = len(w.msgs)
	case c.IntN(8) == 0 && w.savepoint >= 0:
		c.must(w.tx.rollbackTo(c.ctx, "sp"), "rollback to savepoint")
		w.msgs = w.msgs[:w.savepoint]
	default:
		var msgs []*postrider.Message
		for range 1 + c.IntN(6) {
			msgs = append(msgs, c.message(c.key(w)))
		}
		c.insert(w.tx, msgs...)
		w.msgs = append(w.msgs, msgs...)
	}
}

// key returns no key, one of the writer's keys, or a free one, which it locks.
func (c *chance) key(w *writer) string {
	if c.IntN(4) == 0 {
		return ""
	}
	if len(w.keys) > 0 && c.IntN(2) == 0 {
		return w.keys[c.IntN(len(w.keys))]
	}
	key := fmt.Sprintf("order/%d", c.IntN(30))
	if c.locked[key] {
		return ""
	}
	c.locked[key] = true
	w.keys = append(w.keys, key)
	return key
}

func (c *chance) end(w *writer) {
	if c.IntN(4) == 0 {
		c.must(w.tx.rollback(c.ctx), "rollback")
	} else {
		c.commit(w.tx)
		for _, m := range w.msgs {
			c.committed = append(c.committed, m.ID)
			c.order[m.Key] = append(c.order[m.Key], m.ID)
		}
	}
	for _, key := range w.keys {
		delete(c.locked, key)
	}
	*w = writer{}
}

// readOn fetches a few messages and settles a prefix of them; if the prefix is not everything, the process dies and another
// continues. It reports whether there was anything.
func (c *chance) readOn() bool {
	batches := c.worker.fetch(1+c.IntN(20), 1<<20)
	found, died := false, false
	for _, b := range batches {
		found = found || len(b.Entries) > 0 || b.More
		n := len(b.Entries)
		if n > 0 && c.IntN(5) == 0 {
			n, died = c.IntN(n+1), true
		}
		st := store.Settlement{Partition: b.Partition, Moved: true, Cursor: b.Next}
		switch {
		case n < b.Late || n < len(b.Entries) && n == 0:
			n, st.Moved = 0, false
		case n < len(b.Entries) && n == b.Late:
			n, st.Moved = 0, false // no fresh record to set the cursor to
		case n < len(b.Entries):
			st.Cursor = store.Cursor{Position: b.Entries[n-1].Message.Sequence, Snapshot: b.Next.Snapshot}
		}
		for _, r := range b.Entries[:n] {
			c.settled = append(c.settled, r.Message)
			st.Delivered = append(st.Delivered, r.Message.Sequence)
		}
		if st.Moved {
			c.worker.settle(st)
		}
	}
	if died {
		c.died++
		c.worker = c.worker.takeOver(fmt.Sprintf("w%d", c.died))
	}
	return found
}

func (c *chance) assess() {
	var got []string
	order := make(map[string][]string)
	for _, m := range c.settled {
		got = append(got, m.ID)
		order[m.Key] = append(order[m.Key], m.ID)
	}
	c.wantSet("settled against committed", got, c.committed)
	for key, want := range c.order {
		if key != "" {
			c.wantIDs("order of key "+key, order[key], want)
		}
	}
}
