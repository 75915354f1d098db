package storetest

import (
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var purgeTests = []test{
	{name: "PurgeRemovesWhatWasResolvedLongAgo", run: purgeResolved},
	{name: "PurgeKeepsOpenDeadLettersAndThoseOfOthers", run: purgeKeeps, statements: true},
	{name: "PurgeKeepsWhatTheLogHas", run: purgeKeepsLogged},
	{name: "PurgedDeadLetterOfAConsumer", run: purgeOfConsumer},
	{name: "PurgeRemovesManyInSteps", run: purgeMany},
	{name: "PurgeKeepsWhatARedriveCountsBy", run: purgeOfRedriven, statements: true},
	{name: "RedriveWithoutItsDeadLettersDeliveredNothing", run: redriveOfErased},
}

// resolvedQuery selects everything that is resolved by now.
func (e *env) resolvedQuery(relay string) store.ResolvedQuery {
	return store.ResolvedQuery{Relay: relay, Before: time.Now().Add(time.Hour), Limit: 1_000}
}

func (e *env) removeResolved(q store.ResolvedQuery) (removed int, last int64) {
	e.t.Helper()
	e.changeRecords(func(w store.Writer) (err error) {
		removed, last, err = w.RemoveResolved(e.ctx, q)
		return err
	})
	return removed, last
}

func (e *env) discardAll(f store.DeadFilter) {
	e.t.Helper()
	_, err := e.DiscardDead(e.ctx, f, "olga", "no use", 10_000)
	e.must(err, "discard")
}

func (e *env) countAny() int64 {
	e.t.Helper()
	n, err := e.CountDead(e.ctx, store.DeadFilter{State: store.DeadAny})
	e.must(err, "count")
	return n
}

// importOpen imports n open dead letters, which have no message in the log.
func (e *env) importOpen(name string, n int) (numbers []int64) {
	e.t.Helper()
	var archived []store.ArchivedDead
	for i := range n {
		archived = append(archived, store.ArchivedDead{DeadLetter: store.DeadLetter{
			Number: int64(i + 1), Relay: name, Message: e.message("order/1"), Reason: "rejected", DiedAt: time.Now().Add(-time.Hour), State: store.DeadOpen,
		}})
	}
	added, err := e.ImportDead(e.ctx, archived)
	if err != nil || added != n {
		e.t.Fatalf("imported %d of %d dead letters, %v", added, n, err)
	}
	for _, l := range e.deadLetters(store.DeadFilter{Relay: name}) {
		numbers = append(numbers, l.Number)
	}
	return numbers
}

func purgeResolved(e *env) {
	e.worker("r", "a")
	numbers := e.importOpen("r", 3)
	_, err := e.EditDead(e.ctx, numbers[0], store.Edit{Payload: []byte("{}"), By: "olga", Why: "fixed"})
	e.must(err, "edit")
	e.discardAll(store.DeadFilter{})
	early := e.resolvedQuery("")
	early.Before = time.Now().Add(-time.Hour)
	if n, _ := e.removeResolved(early); n != 0 || e.countAny() != 3 {
		e.t.Errorf("removed %d that were resolved later, %d are left", n, e.countAny())
	}
	if n, last := e.removeResolved(e.resolvedQuery("")); n != 3 || last != numbers[2] || e.countAny() != 0 {
		e.t.Errorf("removed %d up to %d, %d are left; want all 3 removed", n, last, e.countAny())
	}
	next := e.importOpen("r", 1)
	if edits, err := e.ListEdits(e.ctx, next[0]); len(edits) != 0 || err != nil || next[0] <= numbers[2] {
		e.t.Errorf("next dead letter: number %d, edits %+v, %v; want a new number without edits", next[0], edits, err)
	}
}

func purgeKeeps(e *env) {
	for _, name := range []string{"r", "s"} {
		e.worker(name, "a")
		e.discardAll(store.DeadFilter{Relay: name, Numbers: e.importOpen(name, 2)[:1]})
	}
	q := e.resolvedQuery("r")
	e.viewRecords(func(r store.Reader) error {
		n, err := r.CountResolved(e.ctx, q)
		if n != 1 {
			e.t.Errorf("%d are counted, want 1", n)
		}
		return err
	})
	if n, _ := e.removeResolved(q); n != 1 {
		e.t.Errorf("removed %d, want 1", n)
	}
	if open := e.deadLetters(store.DeadFilter{}); len(open) != 2 || e.countAny() != 3 {
		e.t.Errorf("%d open of %d dead letters, want 2 of 3", len(open), e.countAny())
	}
}

// purgeKeepsLogged: the dead letter is what keeps its message from being delivered from the log, even if the relay was removed and starts
// again.
func purgeKeepsLogged(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/1"))
	w.drain()
	w.settleRead()
	e.discardAll(store.DeadFilter{})
	if n, last := e.removeResolved(e.resolvedQuery("")); n != 0 || last == 0 || e.countAny() != 1 {
		e.t.Errorf("removed %d up to %d, %d left; want it kept", n, last, e.countAny())
	}
	w.leave()
	_, err := held.New(e).RemoveRelay(e.ctx, "r", "olga", "gone", false)
	e.must(err, "remove the relay")
	if n, _ := e.removeResolved(e.resolvedQuery("")); n != 0 {
		e.t.Errorf("removed %d of a relay that was removed, want none", n)
	}
	next := e.worker("r", "b")
	if l := next.leases[e.partition("order/1")]; len(l.Parked.Sequences) != 1 {
		e.t.Errorf("a relay that starts again is told of %v, want the discarded message", l.Parked.Sequences)
	}
}

// purgeOfConsumer: the sequences of a consumer are not those of the log.
func purgeOfConsumer(e *env) {
	e.publishKeys("", "", "", "")
	req := store.AcquireRequest{Kind: store.KindConsumer, Claims: claims(e.allPartitions()...), TTL: longTTL}
	_, err := e.Acquire(e.ctx, "c", owner("a"), req)
	e.must(err, "acquire")
	e.importOpen("c", 1)
	e.discardAll(store.DeadFilter{Relay: "c"})
	if n, _ := e.removeResolved(e.resolvedQuery("c")); n != 1 {
		e.t.Errorf("removed %d, want 1", n)
	}
}

func purgeMany(e *env) {
	e.worker("r", "a")
	e.importOpen("r", 25)
	e.discardAll(store.DeadFilter{})
	q := e.resolvedQuery("")
	for q.Limit = 10; ; {
		n, last := e.removeResolved(q)
		if q.After = last; n < q.Limit {
			break
		}
	}
	if e.countAny() != 0 {
		e.t.Errorf("%d of 25 are left", e.countAny())
	}
}

// purgeOfRedriven: a redrive counts by its dead letters, and by those that its messages become again, as long as it is on record.
func purgeOfRedriven(e *env) {
	w := e.worker("r", "a")
	e.importOpen("r", 3)
	r := e.drive(e.startRedrive(everyOpen).ID)
	var entries []store.Entry
	for _, run := range w.due().Runs {
		entries = append(entries, run.Entries...)
	}
	w.settle(store.Settlement{
		Partition: e.partition("order/1"), Removed: []int64{entries[0].Message.Sequence},
		Dead: []store.DeadOutcome{{Sequence: entries[1].Message.Sequence, Key: "order/1", Reason: "again"}},
	})
	e.discardAll(everyOpen)
	want := store.RedriveOutcome{Delivered: 1, Waiting: 1, Failed: 1}
	shown := func(want store.RedriveOutcome) {
		e.t.Helper()
		got, err := e.ShowRedrive(e.ctx, r.ID)
		if err != nil || *got.Outcome != want {
			e.t.Errorf("the redrive: %+v, %v, want %+v", got.Outcome, err, want)
		}
	}
	shown(want)
	if n, last := e.removeResolved(e.resolvedQuery("")); n != 0 || last == 0 || e.countAny() != 4 {
		e.t.Errorf("removed %d up to %d, %d are left; want all 4 kept", n, last, e.countAny())
	}
	shown(want)
	e.wantIDs("due", w.dueIDs(), []string{entries[2].Message.ID})
	e.clockMoves(5 * time.Millisecond)
	e.maintain(store.Retention{Redrives: time.Millisecond})
	if n, _ := e.removeResolved(e.resolvedQuery("")); n != 4 {
		e.t.Errorf("removed %d once the redrive is not on record any more, want 4", n)
	}
	e.wantIDs("due without its dead letter", w.dueIDs(), []string{entries[2].Message.ID})
	if _, err := e.Store.Purge(e.ctx, deadletter.PurgePlan{}, nil); err == nil {
		e.t.Error("a purge without an age was accepted")
	}
}

// redriveOfErased: what was erased, or removed with its relay, was not delivered.
func redriveOfErased(e *env) {
	w := e.worker("r", "a")
	e.importOpen("r", 2)
	r := e.drive(e.startRedrive(everyOpen).ID)
	erase := store.EraseFilter{MessageID: w.due().Runs[0].Entries[0].Message.ID}
	e.changeRecords(func(wr store.Writer) error {
		_, err := wr.EraseParked(e.ctx, erase, 10)
		if err == nil {
			_, err = wr.EraseDead(e.ctx, erase, 10)
		}
		return err
	})
	got, err := e.ShowRedrive(e.ctx, r.ID)
	if want := (store.RedriveOutcome{Waiting: 1, Unknown: 1}); err != nil || *got.Outcome != want {
		e.t.Errorf("after the erasure: %+v, %v, want %+v", got.Outcome, err, want)
	}
	w.leave()
	_, err = held.New(e).RemoveRelay(e.ctx, "r", "olga", "gone", true)
	e.must(err, "remove the relay")
	e.must(held.New(e).RemoveKept(e.ctx, "r"), "remove what is kept")
	got, err = e.ShowRedrive(e.ctx, r.ID)
	if want := (store.RedriveOutcome{Unknown: 2}); err != nil || *got.Outcome != want {
		e.t.Errorf("after the removal: %+v, %v, want %+v", got.Outcome, err, want)
	}
}
