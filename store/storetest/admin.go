package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var adminTests = []test{
	{name: "RepartitionKeepsTheOrderOfEveryKey", run: repartitionKeepsOrder},
	{name: "RepartitionMovesWhatIsParked", run: repartitionMovesParked, statements: true},
	{name: "RepartitionMovesLettersOfEveryState", run: repartitionMovesDead},
	{name: "RepartitionMovesTheLogForRelaysThatComeLater", run: repartitionMovesTheLog},
	{name: "RepartitionRefusesWhileAProcessIsAlive", run: repartitionRefusesAlive},
	{name: "RepartitionRefusesWhileSomethingIsUndelivered", run: repartitionRefusesUndelivered},
	{name: "RepartitionRefusesWhileATransactionIsOpen", run: repartitionRefusesOpen, late: true},
	{name: "RepartitionFencesWhoSleptThroughIt", run: repartitionFences},
	{name: "RepartitionMovesDecisions", run: repartitionMovesDecisions},
	{name: "ForgottenRelayKeepsNothingInTheLog", run: removedKeepsNothing},
	{name: "ForgetRefusesWhatIsInUse", run: removeRefuses},
	{name: "ForgetDiscardsOnTheRecord", run: removeDiscards},
	{name: "ForgetDiscardsWhatWasImportedForARelayThatNeverRan", run: removeImported},
	{name: "ForgottenRelayBeginsAnew", run: removedStartsOver},
}

// repartition changes the number of partitions, which must succeed.
func (e *env) repartition(n int) {
	e.t.Helper()
	e.must(e.Repartition(e.ctx, n), "repartition")
	e.partitions = n
}

// wantRefused wants an error and an unchanged number of partitions.
func (e *env) wantRefused(err, want error) {
	e.t.Helper()
	if !errors.Is(err, want) {
		e.t.Errorf("error %v, want %v", err, want)
	}
	if st, err := e.Status(e.ctx); err != nil || st.Partitions != e.partitions {
		e.t.Errorf("status after a refusal: %d partitions, %v; want %d", st.Partitions, err, e.partitions)
	}
}

func (w *worker) leave() {
	w.t.Helper()
	w.must(w.Leave(w.ctx, w.relay, w.owner), "leave")
}

// deliver reads and settles everything.
func (w *worker) deliver() []store.Entry {
	w.t.Helper()
	records := w.drain()
	w.settleRead()
	return records
}

func repartitionKeepsOrder(e *env) {
	stale := e.reopen(e.t) // a publisher that still uses the old number
	keys := e.keysOf(1, 6)
	for _, n := range []int{11, 3, 1, 8} {
		w := e.worker("r", "before")
		e.publishKeys(keys...)
		w.deliver()
		w.leave()
		e.repartition(n)
		for range 2 {
			e.publishKeys(keys...)
			tx, err := stale.begin(e.ctx)
			e.must(err, "begin")
			one, many := e.message(keys[0]), e.messages(keys[0], 3)
			e.must(tx.insert(e.ctx, one), "insert one")
			e.must(tx.insert(e.ctx, many...), "insert many")
			e.must(tx.commit(e.ctx), "commit")
		}
		w = e.worker("r", "after")
		records := w.deliver() // which checks that every message is in its partition, in order
		if want := 2*len(keys) + 8; len(records) != want {
			e.t.Errorf("%d partitions: %d messages, want %d", n, len(records), want)
		}
		st := e.status("r")
		if len(st.Partitions) != n || st.Backlog.N != 0 {
			e.t.Errorf("%d partitions: status %+v", n, st)
		}
		w.leave()
	}
}

func repartitionMovesParked(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1", "order/2", "")
	for p := range e.partitions {
		w.settle(store.Settlement{Partition: p, DeliveredCount: 2, FailedCount: 1})
	}
	w.deliver()
	queued := w.hold("order/1", 3, 0)
	w.deadLetter("rejected", e.message("order/2"), e.message(""))
	parked := w.parkEach(0)
	w.settleRead()
	w.leave()
	before := e.status("r")
	for _, n := range []int{9, 2} {
		e.repartition(n)
		after := e.status("r")
		if after.Delivered != before.Delivered || after.Failed != before.Failed || after.Parked != before.Parked ||
			after.Held != before.Held || after.Dead != before.Dead {
			e.t.Errorf("%d partitions: status %+v, before %+v", n, after, before)
		}
		for _, l := range e.deadLetters(store.DeadFilter{}) {
			if want := postrider.PartitionOf(l.Message.Key, l.Message.ID, n); l.Partition != want {
				e.t.Errorf("dead letter of key %q is in partition %d of %d, want %d", l.Message.Key, l.Partition, n, want)
			}
		}
		h, _, err := held.New(e).ShowHeld(e.ctx, "r", "order/1", 1)
		if e.must(err, "show held"); h.Partition != e.partition("order/1") || h.Parked != 3 {
			e.t.Errorf("held key is shown as %+v", h)
		}
	}
	w = e.worker("r", "b")
	e.redrive(everyOpen, 2)
	found := make(map[string]int)
	for _, run := range w.due().Runs {
		if run.Key == "order/1" {
			e.wantIDs("due of the held key", recordIDs(run.Entries), recordIDs(queued))
		}
		for _, r := range run.Entries {
			found[r.Message.ID]++
			if want := postrider.PartitionOf(r.Message.Key, r.Message.ID, e.partitions); run.Partition != want {
				e.t.Errorf("message %s is due in partition %d, want %d", r.Message.ID, run.Partition, want)
			}
		}
	}
	if len(found) != len(queued)+len(parked)+2 {
		e.t.Errorf("due: %v, want 3 of the held key, the parked one and both redriven", found)
	}
}

// repartitionMovesDead: outcomes of redriven messages are still known, and discarded dead letters still keep their messages
// from a relay that starts over.
func repartitionMovesDead(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 12)...)
	w.leave()
	r := e.drive(e.startRedrive(store.DeadFilter{}).ID)
	w = e.worker("r", "b")
	discarded := w.deadLetter("rejected", e.messages("", 12)...)
	w.leave()
	_, err := e.DiscardDead(e.ctx, store.DeadFilter{}, "olga", "test data", 0)
	e.must(err, "discard")
	for _, n := range []int{9, 2} {
		e.repartition(n)
		shown, err := e.ShowRedrive(e.ctx, r.ID)
		if e.must(err, "show"); *shown.Outcome != (store.RedriveOutcome{Waiting: 12}) {
			e.t.Errorf("%d partitions: outcome of 12 letters sent back, none of them delivered: %+v", n, *shown.Outcome)
		}
		var moved []string
		for _, l := range e.deadLetters(store.DeadFilter{State: store.DeadDiscarded}) {
			if l.Partition == postrider.PartitionOf("", l.Message.ID, n) {
				moved = append(moved, l.Message.ID)
			}
		}
		e.wantSet(fmt.Sprint("discarded, in their one of ", n, " partitions"), moved, discarded)
	}
}

func repartitionMovesTheLog(e *env) {
	w := e.worker("r", "a")
	first := e.publishKeys("order/1", "order/2", "order/1", "")
	w.deliver()
	w.leave()
	e.repartition(7)
	second := e.publishKeys("order/1", "order/2")
	later := e.worker("later", "a")
	e.wantSet("read by a relay that comes later", recordIDs(later.deliver()), append(first, second...))
}

func repartitionRefusesAlive(e *env) {
	w := e.worker("r", "a")
	e.wantRefused(e.Repartition(e.ctx, 5), store.ErrAlive)
	w.leave()
	for _, n := range []int{0, -1, store.MaxPartitions + 1} {
		if err := e.Repartition(e.ctx, n); err == nil {
			e.t.Errorf("%d partitions were taken", n)
		}
	}
	e.repartition(5)
}

func repartitionRefusesUndelivered(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1")
	w.leave()
	e.wantRefused(e.Repartition(e.ctx, 5), store.ErrUndelivered)
	w = e.worker("r", "b")
	w.deliver()
	w.leave()
	e.repartition(5)
}

func repartitionRefusesOpen(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	e.insert(tx, e.message("order/1"))
	e.publishKeys("order/1", "order/2")
	w.deliver()
	w.leave()
	e.wantRefused(e.Repartition(e.ctx, 5), store.ErrInUse)
	e.commit(tx)
	e.wantRefused(e.Repartition(e.ctx, 5), store.ErrUndelivered) // it committed late
	w = e.worker("r", "b")
	w.deliver()
	w.leave()
	e.repartition(5)
}

func repartitionFences(e *env) {
	other := e.reopen(e.t)
	sleeper := e.worker("r", "sleeper")
	lease := sleeper.leases[1]
	sleeper.leave()
	// Another process took its lease without a heartbeat and was then cut off.
	gone := owner("gone")
	leases, err := other.Acquire(e.ctx, "r", gone, store.AcquireRequest{Claims: claims(2), TTL: longTTL})
	if e.must(err, "acquire"); len(leases) != 1 {
		e.t.Fatalf("leases: %+v", leases)
	}
	e.wantRefused(e.Repartition(e.ctx, 3), store.ErrAlive)
	e.must(other.Leave(e.ctx, "r", gone), "leave")
	e.repartition(3)
	if _, err := other.Heartbeat(e.ctx, "r", gone, longTTL); !errors.Is(err, store.ErrRepartitioned) {
		e.t.Errorf("heartbeat with the old number of partitions: %v, want %v", err, store.ErrRepartitioned)
	}
	if got, err := other.Acquire(e.ctx, "r", gone, store.AcquireRequest{Claims: claims(0, 1, 2), TTL: longTTL}); len(got) > 0 {
		e.t.Errorf("leases with the old number of partitions: %+v, %v", got, err)
	}
	for _, l := range append(leases, lease) {
		st := store.Settlement{Partition: l.Partition, Token: l.Token, Number: l.Settled + 1, Cursor: store.Cursor{}, Moved: true}
		out, err := other.Settle(e.ctx, "r", []store.Settlement{st})
		if err == nil && len(out.Lost) != 1 {
			e.t.Errorf("settlement under lease %+v of the time before: %+v", l, out)
		}
	}
	for _, o := range e.status("r").Owners {
		if o.Alive {
			e.t.Errorf("owner %+v counts as alive", o)
		}
	}
	e.worker("r", "b")
}

func removedKeepsNothing(e *env) {
	w, gone := e.worker("r", "a"), e.worker("gone", "a")
	e.publishKeys("order/1", "order/2", "")
	w.deliver()
	gone.leave()
	n, err := held.New(e).RemoveRelay(e.ctx, "gone", "olga", "switched off", false)
	if e.must(err, "remove"); n != 0 {
		e.t.Errorf("%d discarded, want none", n)
	}
	st, err := e.Status(e.ctx)
	if e.must(err, "status"); len(st.Relays) != 1 || st.Relays[0].Name != "r" {
		e.t.Errorf("relays after one was removed: %+v", st.Relays)
	}
	w.leave()
	e.repartition(5) // its undelivered messages block nobody
	w = e.worker("r", "b")
	left := e.publishKeys("order/1")
	e.wantSet("read on", recordIDs(w.deliver()), left)
}

func removeRefuses(e *env) {
	removeRelay := func(name string) error {
		_, err := held.New(e).RemoveRelay(e.ctx, name, "olga", "why", false)
		return err
	}
	e.wantRefused(removeRelay("never"), store.ErrUnknownRelay)
	w := e.worker("r", "a")
	e.wantRefused(removeRelay("r"), store.ErrAlive)
	w.hold("order/1", 1, time.Hour)
	w.leave()
	e.wantRefused(removeRelay("r"), store.ErrParked)
	_, err := e.dead("r", "order/1", "why", true)
	e.must(err, "dead-letter")
	e.wantRefused(removeRelay("r"), store.ErrParked)
	if len(e.deadLetters(store.DeadFilter{Relay: "r"})) != 1 {
		e.t.Error("a refusal has changed the dead letters")
	}
}

func removeDiscards(e *env) {
	w, other := e.worker("r", "a"), e.worker("other", "a")
	parked := w.hold("order/1", 3, time.Hour)
	dead := w.deadLetter("rejected", e.message("order/2"))
	other.deadLetter("rejected", e.message("order/3"))
	w.leave()
	e.must(held.New(e).RecordDecision(e.ctx, store.Decision{ID: "d", Relay: "r", Key: "order/1", Verb: store.VerbRetry, By: "olga"}), "record a decision")
	n, err := held.New(e).RemoveRelay(e.ctx, "r", "olga", "moved to another broker", true)
	if e.must(err, "remove"); n != 4 {
		e.t.Errorf("%d discarded, want 4", n)
	}
	deadLetters := e.deadLetters(store.DeadFilter{Relay: "r", State: store.DeadDiscarded})
	var got []string
	for _, l := range deadLetters {
		got = append(got, l.Message.ID)
		if l.ResolvedBy != "olga" || l.Resolution != "moved to another broker" || l.ResolvedAt.IsZero() {
			e.t.Errorf("letter %+v does not say who discarded it and why", l)
		}
	}
	e.wantSet("discarded", got, append(recordIDs(parked), dead...))
	if len(deadLetters) == 4 && len(deadLetters[1].History) == 0 && len(deadLetters[3].History) == 0 {
		e.t.Error("the history of what was parked is lost")
	}
	if _, err := held.New(e).ShowDecision(e.ctx, "d"); !errors.Is(err, store.ErrNoDecision) {
		e.t.Errorf("a decision about a key of the relay that was removed: %v, want %v", err, store.ErrNoDecision)
	}
	if len(e.held("")) != 0 || len(e.deadLetters(store.DeadFilter{})) != 1 {
		e.t.Errorf("held keys %+v, open dead letters %v; want none, and those of the other relay", e.held(""), e.deadIDs(store.DeadFilter{}))
	}
}

// repartitionMovesDecisions: an operator's decision is still open when the number of partitions changes.
func repartitionMovesDecisions(e *env) {
	w := e.worker("r", "a")
	w.hold("order/1", 1, time.Hour)
	w.settleRead()
	w.leave()
	e.must(held.New(e).RecordDecision(e.ctx, store.Decision{ID: "d", Relay: "r", Key: "order/1", Verb: store.VerbRetry, By: "olga"}), "record a decision")
	e.repartition(11)
	d, err := held.New(e).ShowDecision(e.ctx, "d")
	if want := postrider.PartitionOf("order/1", "", 11); err != nil || d.Partition != want || d.State != store.DecisionOpen {
		e.t.Errorf("decision after the change: %+v, %v; want it open in partition %d", d, err, want)
	}
}

// removeImported: dead letters were imported for a relay that never ran here, and one of them was redriven.
func removeImported(e *env) {
	var deadLetters []store.ArchivedDead
	for range 2 {
		deadLetters = append(deadLetters, store.ArchivedDead{DeadLetter: store.DeadLetter{
			Relay: "elsewhere", Message: e.message(""), Reason: "rejected", State: store.DeadOpen, DiedAt: time.Now(),
		}})
	}
	_, err := e.ImportDead(e.ctx, deadLetters)
	e.must(err, "import")
	removeRelay := func(discard bool) (int, error) {
		return held.New(e).RemoveRelay(e.ctx, "elsewhere", "olga", "imported by mistake", discard)
	}
	_, err = removeRelay(false)
	e.wantRefused(err, store.ErrParked)
	e.redrive(store.DeadFilter{Numbers: []int64{e.deadLetters(everyOpen)[0].Number}}, 1)
	n, err := removeRelay(true)
	if e.must(err, "remove"); n != 2 {
		e.t.Errorf("%d discarded, want 2", n)
	}
	if due := e.worker("elsewhere", "a").dueIDs(); len(due) > 0 || len(e.deadLetters(everyOpen)) > 0 {
		e.t.Errorf("due of a relay that was removed: %v; its dead letters: %v", due, e.deadIDs(everyOpen))
	}
}

func removedStartsOver(e *env) {
	other := e.reopen(e.t)
	w := e.worker("r", "sleeper")
	first := e.publishKeys("order/1", "order/2")
	w.deliver()
	w.leave()
	_, err := held.New(other).RemoveRelay(e.ctx, "r", "olga", "by mistake", false)
	e.must(err, "remove")
	// The process that was paused meanwhile finds a new relay.
	w = e.worker("r", "sleeper")
	e.wantSet("delivered again", recordIDs(w.deliver()), first)
}
