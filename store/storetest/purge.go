package storetest

import (
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

var purgeTests = []test{
	{name: "PurgeRemovesWhatWasResolvedLongAgo", run: purgeResolved},
	{name: "PurgeKeepsOpenDeadLettersAndThoseOfOthers", run: purgeKeeps},
	{name: "PurgeKeepsWhatIsReadFromTheLogAgain", run: purgeKeepsUnread},
	{name: "PurgedDeadLetterOfAConsumer", run: purgeOfConsumer},
	{name: "PurgeRemovesManyInSteps", run: purgeMany},
	{name: "PurgedRedriveOfAParkedMessage", run: purgeOfParked},
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

func purgeResolved(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("order/1", 3)...)
	edited := e.deadLetters(store.DeadFilter{})[0]
	_, err := e.EditDead(e.ctx, edited.Number, store.Edit{Payload: []byte("{}"), By: "olga", Why: "fixed"})
	e.must(err, "edit")
	e.discardAll(store.DeadFilter{})
	w.settleRead()
	early := e.resolvedQuery("")
	early.Before = edited.DiedAt
	if n, _ := e.removeResolved(early); n != 0 || e.countAny() != 3 {
		e.t.Errorf("removed %d that were resolved later, %d are left", n, e.countAny())
	}
	if n, last := e.removeResolved(e.resolvedQuery("")); n != 3 || last != edited.Number+2 || e.countAny() != 0 {
		e.t.Errorf("removed %d up to %d, %d are left; want all 3 removed", n, last, e.countAny())
	}
	w.deadLetter("rejected", e.message("order/1"))
	if l := e.deadLetters(store.DeadFilter{}); len(l) != 1 || l[0].Number <= edited.Number+2 || l[0].Edits != 0 {
		e.t.Errorf("next dead letter: %+v, want a new number without edits", l)
	}
}

func purgeKeeps(e *env) {
	for _, name := range []string{"r", "s"} {
		w := e.worker(name, "a")
		w.deadLetter("rejected", e.messages("", 2)...)
		w.drain()
		w.settleRead()
		e.discardAll(store.DeadFilter{Relay: name, Numbers: []int64{e.deadLetters(store.DeadFilter{Relay: name})[0].Number}})
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

// purgeKeepsUnread: a message that precedes the dead-lettered one is not settled, so that the cursor is before both. The dead letter is what
// keeps the message from being delivered from the log.
func purgeKeepsUnread(e *env) {
	w := e.worker("r", "a")
	first, second := e.message("order/1"), e.message("order/1")
	w.publish(first, second)
	seq, p := w.drain()[1].Message.Sequence, e.partition("order/1")
	w.settle(store.Settlement{Partition: p, Dead: []store.DeadOutcome{{Sequence: seq, Key: "order/1", FromLog: true, Reason: "rejected", Attempts: 1}}})
	e.discardAll(store.DeadFilter{})
	if n, last := e.removeResolved(e.resolvedQuery("")); n != 0 || last == 0 || e.countAny() != 1 {
		e.t.Errorf("removed %d up to %d, %d left; want it kept", n, last, e.countAny())
	}
	next := w.takeOver("b")
	if l := next.leases[p]; len(l.Parked.Sequences) != 1 || l.Parked.Sequences[0] != seq {
		e.t.Errorf("the next process is told of %v, want %d", l.Parked.Sequences, seq)
	}
	next.drain()
	next.settleRead()
	if n, _ := e.removeResolved(e.resolvedQuery("")); n != 1 {
		e.t.Errorf("removed %d once the cursor has passed it, want 1", n)
	}
}

// purgeOfConsumer: the sequences of a consumer are not those of the log.
func purgeOfConsumer(e *env) {
	e.publishKeys("", "", "", "")
	req := store.AcquireRequest{Kind: store.KindConsumer, Claims: claims(e.allPartitions()...), TTL: longTTL}
	_, err := e.Acquire(e.ctx, "c", owner("a"), req)
	e.must(err, "acquire")
	m := e.message("order/1")
	_, err = e.ImportDead(e.ctx, []store.ArchivedDead{{DeadLetter: store.DeadLetter{
		Number: 1, Relay: "c", Message: m, Reason: "rejected", DiedAt: time.Now().Add(-time.Hour), State: store.DeadOpen,
	}}})
	e.must(err, "import")
	e.discardAll(store.DeadFilter{Relay: "c"})
	if n, _ := e.removeResolved(e.resolvedQuery("c")); n != 1 {
		e.t.Errorf("removed %d, want 1", n)
	}
}

func purgeMany(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 25)...)
	w.settleRead()
	e.discardAll(store.DeadFilter{})
	q := e.resolvedQuery("")
	for q.Limit = 10; ; {
		n, last := e.removeResolved(q)
		if q.After = last; n < q.Limit {
			break
		}
	}
	if e.countAny() != 0 {
		e.t.Errorf("%d of %d are left", e.countAny(), len(want))
	}
}

// purgeOfParked: a redriven message is parked while its dead letter is removed, and is delivered.
func purgeOfParked(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.message(""))
	w.settleRead()
	r := e.startRedrive(everyOpen)
	e.drive(r.ID)
	if n, _ := e.removeResolved(e.resolvedQuery("")); n != 1 {
		e.t.Errorf("removed %d, want 1", n)
	}
	e.wantIDs("due", w.dueIDs(), want)
	shown, err := e.ShowRedrive(e.ctx, r.ID)
	if err != nil || shown.Done != 1 {
		e.t.Errorf("the redrive: %+v, %v", shown, err)
	}
	_, err = e.Store.Purge(e.ctx, deadletter.PurgePlan{}, nil)
	if err == nil {
		e.t.Error("a purge without an age was accepted")
	}
}
