package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var parkedTests = []test{
	{name: "ParkedMessagesAreListedFirstDueFirst", run: parkedAreListed},
	{name: "ListsGoOnFromPageToPage", run: listsHavePages},
	{name: "ParkedMessagesAreCountedByReason", run: parkedAreCounted, statements: true},
	{name: "ParkedMessageIsFoundByItsID", run: parkedIsFound},
	{name: "RetryMakesAParkedMessageDue", run: retryParked, statements: true},
	{name: "SkippedParkedMessageIsDiscardedOnTheRecord", run: skipParked, statements: true},
	{name: "ParkedMessageIsMovedToTheDeadLetters", run: deadParked},
	{name: "DecisionsNeedAParkedMessage", run: decisionsNeedAParkedMessage},
	{name: "DecisionAboutAMessageThatIsGoneIsRefused", run: decisionAboutGone},
	{name: "DecisionIsAppliedUnderTheLeaseOfItsPartition", run: decisionOfItsPartition},
	{name: "RepartitionMovesDecisionsAboutMessages", run: repartitionMovesMessageDecisions},
	{name: "HeldKeyNamesItsBlockingMessage", run: heldNamesBlocking},
	{name: "QueuedMessagesDoNotPassADeadLetter", run: nonePassADeadLetter},
	{name: "DecisionAboutAKeyThatNothingBlocksIsRefused", run: decisionAboutUnblocked},
	{name: "LongKeyIsMovedToTheDeadLettersWhole", run: deadAllOfMany},
}

// alone lists the parked messages of a relay that wait by themselves.
func (e *env) alone(name string) []store.ParkedInfo {
	e.t.Helper()
	var out []store.ParkedInfo
	for p, err := range held.New(e).ListParked(e.ctx, name) {
		e.must(err, "list parked messages")
		out = append(out, p)
	}
	return out
}

// wantAlone compares IDs of the parked messages that wait by themselves, in order.
func (e *env) wantAlone(name string, want ...string) {
	e.t.Helper()
	var got []string
	for _, p := range e.alone(name) {
		got = append(got, p.Message.ID)
	}
	e.wantIDs("parked messages that wait by themselves", got, want)
}

// decideMessage makes a decision about a parked message; the relay's worker, if there is one, applies it.
func (e *env) decideMessage(name, id string, verb store.Verb, reason string) (store.Decision, error) {
	d := store.Decision{ID: store.NewToken(), Relay: name, MessageID: id, Verb: verb, By: "olga", Reason: reason}
	if err := held.New(e).RecordDecision(e.ctx, d); err != nil {
		return d, err
	}
	if w := e.holders[name]; w != nil {
		recorded, err := held.New(e).ShowDecision(e.ctx, d.ID)
		e.must(err, "show the decision")
		if err := held.New(e).Apply(e.ctx, name, w.ref(recorded.Partition), d.ID); err != nil && !errors.Is(err, store.ErrLeaseLost) {
			return d, err
		}
	}
	return held.Decide(e.ctx, e.database, d)
}

// parkAlone publishes a message and parks it by itself.
func (w *worker) parkAlone(m *postrider.Message, p store.ParkOutcome) store.Entry {
	w.t.Helper()
	w.publish(m)
	records := w.drain()
	w.wantIDs("fetched", recordIDs(records), []string{m.ID})
	p.Sequence, p.Key, p.FromLog = records[0].Message.Sequence, m.Key, true
	n := postrider.PartitionOf(m.Key, m.ID, w.partitions)
	w.settle(store.Settlement{Partition: n, Cursor: w.read[n], Moved: true, Parked: []store.ParkOutcome{p}})
	return records[0]
}

func parkedAreListed(e *env) {
	one := e.worker("one", "a")
	later := one.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: 2 * time.Hour, Attempts: 1, Cause: "answer 503"})
	sooner := one.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkDelayed, After: time.Hour})
	one.hold("order/2", 2, 0)
	two := e.worker("two", "a")
	two.drain()
	due := two.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkUnhandled, Cause: "no handler takes the type"})
	e.wantAlone("one", sooner.Message.ID, later.Message.ID)
	e.wantAlone("", sooner.Message.ID, later.Message.ID, due.Message.ID)
	e.wantAlone("none")
	p := e.alone("one")[1]
	e.wantSame(p.Message, later.Message)
	if p.Relay != "one" || p.Partition != postrider.PartitionOf("", p.Message.ID, e.partitions) || p.Reason != store.ParkRetry ||
		p.Attempts != 1 || p.Cause() != "answer 503" || time.Since(p.ParkedAt).Abs() > time.Minute || time.Until(p.DueAt) < 110*time.Minute {
		e.t.Errorf("parked message is listed as %+v", p)
	}
	for range held.New(e).ListParked(e.ctx, "") {
		break // a caller may stop early
	}
}

// listsHavePages: more held keys and parked messages than a page has, many of the same time.
func listsHavePages(e *env) {
	w := e.worker("r", "a")
	const n = 230
	var msgs []*postrider.Message
	for i := range n {
		msgs = append(msgs, e.message(fmt.Sprintf("order/%d", i)), e.message(""))
	}
	e.publish(msgs...)
	settlements := make(map[int]*store.Settlement)
	var keys, alone []string
	for _, r := range w.drain() {
		m := r.Message
		p := postrider.PartitionOf(m.Key, m.ID, e.partitions)
		if settlements[p] == nil {
			settlements[p] = &store.Settlement{Partition: p, Cursor: w.read[p], Moved: true}
		}
		st := settlements[p]
		parked := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkRetry, Attempts: 1, Waits: m.Key != ""}
		if m.Key != "" {
			keys = append(keys, m.Key)
			st.Held = append(st.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, Attempts: 1})
		} else {
			alone = append(alone, m.ID)
		}
		st.Parked = append(st.Parked, parked)
	}
	for _, st := range settlements {
		w.settle(*st)
	}
	for _, name := range []string{"r", ""} {
		var gotKeys, gotAlone []string
		for _, h := range e.held(name) {
			gotKeys = append(gotKeys, h.Key)
		}
		for _, p := range e.alone(name) {
			gotAlone = append(gotAlone, p.Message.ID)
		}
		e.wantSet("held keys", gotKeys, keys)
		e.wantSet("parked messages", gotAlone, alone)
	}
}

func parkedAreCounted(e *env) {
	w := e.worker("one", "a")
	for _, reason := range []store.ParkReason{store.ParkRetry, store.ParkUnhandled, store.ParkRetry} {
		w.parkAlone(e.message(""), store.ParkOutcome{Reason: reason, After: time.Hour})
	}
	w.hold("order/1", 2, 0)
	two := e.worker("two", "a")
	two.drain()
	two.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkSnoozed})
	for name, want := range map[string]string{
		"": "one retry 2, one unhandled 1, two snoozed 1", "one": "one retry 2, one unhandled 1", "two": "two snoozed 1", "none": "",
	} {
		counts, err := held.New(e).CountParked(e.ctx, name)
		e.must(err, "count parked messages")
		var got []string
		for _, c := range counts {
			got = append(got, fmt.Sprintf("%s %s %d", c.Relay, c.Reason, c.Count))
			if time.Since(c.Oldest).Abs() > time.Minute {
				e.t.Errorf("oldest of %+v", c)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			e.t.Errorf("counts of %q: %s, want %s", name, text, want)
		}
	}
}

func parkedIsFound(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkSnoozed, After: time.Hour, Cause: "not yet"})
	queued := w.hold("order/2", 2, 0)[1]
	for id, alone := range map[string]bool{r.Message.ID: true, queued.Message.ID: false} {
		found, err := held.New(e).FindParked(e.ctx, "r", id)
		if e.must(err, "find"); len(found) != 1 || found[0].DueAt.IsZero() == alone || found[0].Relay != "r" ||
			found[0].Partition != e.partition(found[0].Message.Key) {
			e.t.Errorf("found %+v", found)
		}
	}
	if found, err := held.New(e).FindParked(e.ctx, "other", r.Message.ID); err != nil || len(found) > 0 {
		e.t.Errorf("found for another relay: %+v, %v", found, err)
	}
}

func retryParked(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour, Attempts: 3, Cause: "answer 503"})
	other := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkRetry, After: time.Hour})
	if due := w.dueIDs(); len(due) > 0 {
		e.t.Fatalf("due before the retry: %v", due)
	}
	d, err := e.decideMessage("r", r.Message.ID, store.VerbRetry, "")
	if e.must(err, "retry"); d.State != store.DecisionApplied || d.Count != 0 || d.Sequence != r.Message.Sequence {
		e.t.Errorf("retried: %+v", d)
	}
	e.wantIDs("due", w.dueIDs(), []string{r.Message.ID})
	if rec := w.due().Runs[0].Entries[0]; rec.Attempts != 3 || rec.Reason != store.ParkRetry {
		e.t.Errorf("due as %+v", rec)
	}
	e.wantAlone("r", r.Message.ID, other.Message.ID)
}

func skipParked(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message("order/1"), store.ParkOutcome{Reason: store.ParkRetry, Attempts: 3, Cause: "answer 503"})
	w.leave()
	d, err := e.decideMessage("r", r.Message.ID, store.VerbSkip, "order was cancelled") // no process holds the partition
	if e.must(err, "skip"); d.Count != 1 || d.Key != "order/1" || d.Partition != e.partition("order/1") {
		e.t.Errorf("skipped: %+v", d)
	}
	if again, err := held.Decide(e.ctx, e.database, d); err != nil || again.Count != 1 {
		e.t.Errorf("skipped again: %+v, %v", again, err)
	}
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 {
		e.t.Fatalf("%d dead letters, want that of the skipped message", len(deadLetters))
	}
	l := deadLetters[0]
	e.wantSame(l.Message, r.Message)
	if l.State != store.DeadDiscarded || l.ResolvedBy != "olga" || l.Resolution != "order was cancelled" || l.ResolvedAt.IsZero() ||
		l.Reason != "skipped" || l.Cause != "answer 503" || l.Attempts != 3 || len(l.History) != 1 {
		e.t.Errorf("skipped message is in the dead letters as %+v", l)
	}
	e.wantAlone("r")
	if due := e.worker("r", "b").dueIDs(); len(due) > 0 {
		e.t.Errorf("due afterwards: %v", due)
	}
}

func deadParked(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), store.ParkOutcome{Reason: store.ParkUnhandled, After: time.Hour, Cause: "no handler takes the type"})
	p := postrider.PartitionOf("", r.Message.ID, e.partitions)
	for i := range 25 { // more attempts than a history keeps
		w.settle(store.Settlement{Partition: p, Parked: []store.ParkOutcome{
			{Sequence: r.Message.Sequence, Reason: store.ParkRetry, After: time.Hour, Attempts: i + 1, Cause: "answer 503"},
		}})
	}
	d, err := e.decideMessage("r", r.Message.ID, store.VerbDead, "receiver does not know it")
	if e.must(err, "dead-letter"); d.Count != 1 {
		e.t.Errorf("dead-lettered: %+v", d)
	}
	deadLetters := e.deadLetters(everyOpen)
	if len(deadLetters) != 1 || deadLetters[0].Reason != "receiver does not know it" || deadLetters[0].Cause != "answer 503" || deadLetters[0].Attempts != 25 {
		e.t.Fatalf("open dead letters: %+v", deadLetters)
	}
	history := deadLetters[0].History
	if len(history) != 20 || history[19].Cause != "moved to the dead letters by olga" || history[18].Attempt != 25 {
		e.t.Errorf("history of %d entries: %+v", len(history), history)
	}
	e.redrive(everyOpen, 1)
	e.wantIDs("due after a redrive", w.dueIDs(), []string{r.Message.ID})
}
