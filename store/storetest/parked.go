package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
)

var parkedTests = []test{
	{name: "ParkedMessagesAreListedFirstDueFirst", run: parkedAreListed},
	{name: "ListsGoOnFromPageToPage", run: listsHavePages},
	{name: "ParkedMessagesAreCountedByReason", run: parkedAreCounted},
	{name: "ParkedMessageIsFoundByItsID", run: parkedIsFound},
	{name: "RetryMakesAParkedMessageDue", run: retryParked},
	{name: "SkippedParkedMessageIsDiscardedOnTheRecord", run: skipParked},
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
func (e *env) alone(name string) []relay.ParkedInfo {
	e.t.Helper()
	var out []relay.ParkedInfo
	for p, err := range e.ListParked(e.ctx, name) {
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
func (e *env) decideMessage(name, id string, verb relay.Verb, reason string) (relay.Decision, error) {
	d := relay.Decision{ID: relay.NewToken(), Relay: name, MessageID: id, Verb: verb, By: "olga", Reason: reason}
	if err := e.RecordDecision(e.ctx, d); err != nil {
		return d, err
	}
	if w := e.holders[name]; w != nil {
		recorded, err := e.ShowDecision(e.ctx, d.ID)
		e.must(err, "show the decision")
		if err := e.Decide(e.ctx, name, w.ref(recorded.Partition), d.ID); err != nil && !errors.Is(err, relay.ErrLeaseLost) {
			return d, err
		}
	}
	return held.Decide(e.ctx, e.database, d)
}

// parkAlone publishes a message and parks it by itself.
func (w *worker) parkAlone(m *postrider.Message, p relay.Parked) relay.Record {
	w.t.Helper()
	w.publish(m)
	records := w.drain()
	w.wantIDs("fetched", recordIDs(records), []string{m.ID})
	p.Sequence, p.Key, p.FromLog = records[0].Message.Sequence, m.Key, true
	n := postrider.PartitionOf(m.Key, m.ID, w.partitions)
	w.settle(relay.Settlement{Partition: n, Cursor: w.read[n], Moved: true, Parked: []relay.Parked{p}})
	return records[0]
}

func parkedAreListed(e *env) {
	one := e.worker("one", "a")
	later := one.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: 2 * time.Hour, Attempts: 1, Cause: "answer 503"})
	sooner := one.parkAlone(e.message("order/1"), relay.Parked{Reason: relay.ParkDelayed, After: time.Hour})
	one.hold("order/2", 2, 0)
	two := e.worker("two", "a")
	two.drain()
	due := two.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkUnhandled, Cause: "no handler takes the type"})
	e.wantAlone("one", sooner.Message.ID, later.Message.ID)
	e.wantAlone("", sooner.Message.ID, later.Message.ID, due.Message.ID)
	e.wantAlone("none")
	p := e.alone("one")[1]
	e.wantSame(p.Message, later.Message)
	if p.Relay != "one" || p.Partition != postrider.PartitionOf("", p.Message.ID, e.partitions) || p.Reason != relay.ParkRetry ||
		p.Attempts != 1 || p.Cause() != "answer 503" || time.Since(p.ParkedAt).Abs() > time.Minute || time.Until(p.DueAt) < 110*time.Minute {
		e.t.Errorf("parked message is listed as %+v", p)
	}
	for range e.ListParked(e.ctx, "") {
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
	settlements := make(map[int]*relay.Settlement)
	var keys, alone []string
	for _, r := range w.drain() {
		m := r.Message
		p := postrider.PartitionOf(m.Key, m.ID, e.partitions)
		if settlements[p] == nil {
			settlements[p] = &relay.Settlement{Partition: p, Cursor: w.read[p], Moved: true}
		}
		st := settlements[p]
		parked := relay.Parked{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: relay.ParkRetry, Attempts: 1, Waits: m.Key != ""}
		if m.Key != "" {
			keys = append(keys, m.Key)
			st.Held = append(st.Held, relay.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: relay.ParkRetry, Attempts: 1})
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
	for _, reason := range []relay.ParkReason{relay.ParkRetry, relay.ParkUnhandled, relay.ParkRetry} {
		w.parkAlone(e.message(""), relay.Parked{Reason: reason, After: time.Hour})
	}
	w.hold("order/1", 2, 0)
	two := e.worker("two", "a")
	two.drain()
	two.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkSnoozed})
	for name, want := range map[string]string{
		"": "one retry 2, one unhandled 1, two snoozed 1", "one": "one retry 2, one unhandled 1", "two": "two snoozed 1", "none": "",
	} {
		counts, err := e.CountParked(e.ctx, name)
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
	r := w.parkAlone(e.message("order/1"), relay.Parked{Reason: relay.ParkSnoozed, After: time.Hour, Cause: "not yet"})
	queued := w.hold("order/2", 2, 0)[1]
	for id, alone := range map[string]bool{r.Message.ID: true, queued.Message.ID: false} {
		found, err := e.FindParked(e.ctx, "r", id)
		if e.must(err, "find"); len(found) != 1 || found[0].DueAt.IsZero() == alone || found[0].Relay != "r" ||
			found[0].Partition != e.partition(found[0].Message.Key) {
			e.t.Errorf("found %+v", found)
		}
	}
	if found, err := e.FindParked(e.ctx, "other", r.Message.ID); err != nil || len(found) > 0 {
		e.t.Errorf("found for another relay: %+v, %v", found, err)
	}
}

func retryParked(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: time.Hour, Attempts: 3, Cause: "answer 503"})
	other := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: time.Hour})
	if due := w.dueIDs(); len(due) > 0 {
		e.t.Fatalf("due before the retry: %v", due)
	}
	d, err := e.decideMessage("r", r.Message.ID, relay.VerbRetry, "")
	if e.must(err, "retry"); d.State != relay.DecisionApplied || d.Count != 0 || d.Sequence != r.Message.Sequence {
		e.t.Errorf("retried: %+v", d)
	}
	e.wantIDs("due", w.dueIDs(), []string{r.Message.ID})
	if rec := w.due().Runs[0].Records[0]; rec.Attempts != 3 || rec.Reason != relay.ParkRetry {
		e.t.Errorf("due as %+v", rec)
	}
	e.wantAlone("r", r.Message.ID, other.Message.ID)
}

func skipParked(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message("order/1"), relay.Parked{Reason: relay.ParkRetry, Attempts: 3, Cause: "answer 503"})
	w.leave()
	d, err := e.decideMessage("r", r.Message.ID, relay.VerbSkip, "order was cancelled") // no process holds the partition
	if e.must(err, "skip"); d.Count != 1 || d.Key != "order/1" || d.Partition != e.partition("order/1") {
		e.t.Errorf("skipped: %+v", d)
	}
	if again, err := held.Decide(e.ctx, e.database, d); err != nil || again.Count != 1 {
		e.t.Errorf("skipped again: %+v, %v", again, err)
	}
	letters := e.letters(everyLetter)
	if len(letters) != 1 {
		e.t.Fatalf("%d dead letters, want that of the skipped message", len(letters))
	}
	l := letters[0]
	e.wantSame(l.Message, r.Message)
	if l.State != deadletter.Discarded || l.ResolvedBy != "olga" || l.Resolution != "order was cancelled" || l.ResolvedAt.IsZero() ||
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
	r := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkUnhandled, After: time.Hour, Cause: "no handler takes the type"})
	p := postrider.PartitionOf("", r.Message.ID, e.partitions)
	for i := range 25 { // more attempts than a history keeps
		w.settle(relay.Settlement{Partition: p, Parked: []relay.Parked{
			{Sequence: r.Message.Sequence, Reason: relay.ParkRetry, After: time.Hour, Attempts: i + 1, Cause: "answer 503"},
		}})
	}
	d, err := e.decideMessage("r", r.Message.ID, relay.VerbDead, "receiver does not know it")
	if e.must(err, "dead-letter"); d.Count != 1 {
		e.t.Errorf("dead-lettered: %+v", d)
	}
	letters := e.letters(everyOpen)
	if len(letters) != 1 || letters[0].Reason != "receiver does not know it" || letters[0].Cause != "answer 503" || letters[0].Attempts != 25 {
		e.t.Fatalf("open dead letters: %+v", letters)
	}
	history := letters[0].History
	if len(history) != 20 || history[19].Cause != "moved to the dead letters by olga" || history[18].Attempt != 25 {
		e.t.Errorf("history of %d entries: %+v", len(history), history)
	}
	e.redrive(everyOpen, 1)
	e.wantIDs("due after a redrive", w.dueIDs(), []string{r.Message.ID})
}

func decisionsNeedAParkedMessage(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: time.Hour})
	queued := w.hold("order/1", 2, time.Hour)[1]
	for _, c := range []struct {
		relay, id string
		verb      relay.Verb
	}{
		{"r", "nobody's", relay.VerbRetry}, {"other", r.Message.ID, relay.VerbSkip}, {"r", queued.Message.ID, relay.VerbDead},
	} {
		if _, err := e.decideMessage(c.relay, c.id, c.verb, "why"); !errors.Is(err, relay.ErrNoParked) {
			e.t.Errorf("%s of message %s of relay %s: %v, want an error that is ErrNoParked", c.verb, c.id, c.relay, err)
		}
	}
	if _, err := e.decideMessage("r", r.Message.ID, relay.VerbDeadAll, "why"); err == nil {
		e.t.Errorf("%s of a message was recorded", relay.VerbDeadAll)
	}
	if st := e.status("r"); st.Parked.N != 3 || len(e.letters(everyLetter)) > 0 {
		e.t.Errorf("decisions that failed changed something: %+v", st)
	}
}

// decisionAboutGone: the message was delivered, or queued in a held key, after the decision was recorded.
func decisionAboutGone(e *env) {
	w := e.worker("r", "a")
	for _, verb := range []relay.Verb{relay.VerbRetry, relay.VerbSkip, relay.VerbDead} {
		for _, queued := range []bool{false, true} {
			m := e.message(fmt.Sprintf("order/%s", verb))
			r := w.parkAlone(m, relay.Parked{Reason: relay.ParkRetry, After: time.Hour})
			d := relay.Decision{ID: relay.NewToken(), Relay: "r", MessageID: m.ID, Verb: verb, By: "olga"}
			e.must(e.RecordDecision(e.ctx, d), "record a decision")
			p := e.partition(m.Key)
			st := relay.Settlement{Partition: p, Removed: []int64{r.Message.Sequence}}
			if queued {
				st = relay.Settlement{Partition: p,
					Parked: []relay.Parked{{Sequence: r.Message.Sequence, Key: m.Key, Waits: true, Reason: relay.ParkHeld}},
					Held:   []relay.HeldKey{{Key: m.Key, Sequence: r.Message.Sequence, Reason: relay.ParkHeld, After: time.Hour}},
				}
			}
			w.settle(st)
			e.must(e.Decide(e.ctx, "r", w.ref(p), d.ID), "decide")
			if d, err := held.Decide(e.ctx, e.database, d); !errors.Is(err, held.ErrRefused) || d.Outcome == "" || d.Count != 0 {
				e.t.Errorf("%s, queued %v: %+v, %v; want %v", verb, queued, d, err, held.ErrRefused)
			}
		}
	}
	if due, letters := w.dueIDs(), e.letters(everyLetter); len(due)+len(letters) > 0 {
		e.t.Errorf("due %v, dead letters %+v; want nothing", due, letters)
	}
}

func decisionOfItsPartition(e *env) {
	w := e.worker("r", "a")
	r := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: time.Hour})
	w.hold("order/1", 1, time.Hour)
	for _, d := range []relay.Decision{
		{ID: "message", Relay: "r", MessageID: r.Message.ID, Verb: relay.VerbSkip, By: "olga"},
		{ID: "key", Relay: "r", Key: "order/1", Verb: relay.VerbSkip, By: "olga"},
	} {
		e.must(e.RecordDecision(e.ctx, d), "record a decision")
		d, err := e.ShowDecision(e.ctx, d.ID)
		e.must(err, "show")
		if due := w.dueIn(relay.DueRequest{}, d.Partition).Decisions; !slices.Contains(due, d) {
			e.t.Errorf("decisions to apply in partition %d: %+v, want %+v", d.Partition, due, d)
		}
		other := (d.Partition + 1) % e.partitions
		if err := e.Decide(e.ctx, "r", w.ref(other), d.ID); err == nil || errors.Is(err, relay.ErrLeaseLost) {
			e.t.Errorf("decision about partition %d under the lease of %d: %v", d.Partition, other, err)
		}
		if err := e.Decide(e.ctx, "r", relay.LeaseRef{Partition: d.Partition, Token: relay.NewToken()}, d.ID); !errors.Is(err, relay.ErrLeaseLost) {
			e.t.Errorf("applied without the lease: %v", err)
		}
	}
	if n := len(e.letters(everyLetter)); n > 0 {
		e.t.Errorf("%d dead letters, want none", n)
	}
}

func repartitionMovesMessageDecisions(e *env) {
	w := e.worker("r", "a")
	plain := w.parkAlone(e.message(""), relay.Parked{Reason: relay.ParkRetry, After: time.Hour})
	keyed := w.parkAlone(e.message("order/1"), relay.Parked{Reason: relay.ParkDelayed, After: time.Hour})
	w.settleRead()
	w.leave()
	var decisions []relay.Decision
	for _, r := range []relay.Record{plain, keyed} {
		d := relay.Decision{ID: relay.NewToken(), Relay: "r", MessageID: r.Message.ID, Verb: relay.VerbSkip, By: "olga"}
		e.must(e.RecordDecision(e.ctx, d), "record a decision")
		decisions = append(decisions, d)
	}
	e.repartition(11)
	for i, r := range []relay.Record{plain, keyed} {
		d, err := e.ShowDecision(e.ctx, decisions[i].ID)
		if want := postrider.PartitionOf(r.Message.Key, r.Message.ID, 11); err != nil || d.Partition != want || d.Sequence != r.Message.Sequence {
			e.t.Errorf("decision after the change: %+v, %v; want it in partition %d", d, err, want)
		}
		if d, err := held.Decide(e.ctx, e.database, decisions[i]); err != nil || d.Count != 1 {
			e.t.Errorf("decided: %+v, %v", d, err)
		}
	}
}

func heldNamesBlocking(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 2, time.Hour)
	dead := w.undecided("order/2", 1)[0]
	want := map[string]string{"order/1": records[0].Message.ID, "order/2": dead.Message.ID}
	for _, h := range e.held("r") {
		shown, queued, err := e.ShowHeld(e.ctx, "r", h.Key, 0)
		if e.must(err, "show"); h.MessageID != want[h.Key] || shown.MessageID != h.MessageID || len(queued) > 0 {
			e.t.Errorf("key %s is listed with message %q, and shown with %q and %d messages; want %q and none", h.Key, h.MessageID,
				shown.MessageID, len(queued), want[h.Key])
		}
	}
	w.settle(relay.Settlement{Partition: e.partition("order/1"), Removed: []int64{records[0].Message.Sequence}})
	d := relay.Decision{Relay: "r", Key: "order/1", Verb: relay.VerbSkip, By: "olga", MessageID: records[0].Message.ID}
	w.leave()
	if _, err := held.Decide(e.ctx, e.database, d); !errors.Is(err, held.ErrRefused) {
		e.t.Errorf("skip of a message that was delivered meanwhile: %v, want %v", err, held.ErrRefused)
	}
	d.MessageID = records[1].Message.ID
	_, err := held.Decide(e.ctx, e.database, d)
	e.must(err, "skip of the next one")
}

// nonePassADeadLetter: a key waits for a decision about its dead letter. Only the decisions that say so let the queued messages
// follow.
func nonePassADeadLetter(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	for _, verb := range []relay.Verb{relay.VerbRetry, relay.VerbDead} {
		if _, err := e.decide("r", "order/1", verb, "why"); !errors.Is(err, held.ErrRefused) {
			e.t.Errorf("%s: %v, want %v", verb, err, held.ErrRefused)
		}
	}
	if due, open := w.due(), e.letters(everyOpen); len(due.Runs) > 0 || len(open) != 1 || len(e.letters(everyLetter)) != 1 {
		e.t.Errorf("due %+v, open dead letters %+v; want nothing, and the one", due.Runs, open)
	}
	other := relay.Decision{Relay: "r", Key: "order/1", Verb: relay.VerbSkip, By: "olga", MessageID: records[1].Message.ID}
	w.leave()
	if _, err := held.Decide(e.ctx, e.database, other); !errors.Is(err, held.ErrRefused) {
		e.t.Errorf("skip of a message that is queued: %v, want %v", err, held.ErrRefused)
	}
	other.MessageID = records[0].Message.ID
	d, err := held.Decide(e.ctx, e.database, other)
	if e.must(err, "skip"); d.Count != 1 || e.letters(everyLetter)[0].State != deadletter.Discarded {
		e.t.Errorf("skipped: %+v, dead letters %+v", d, e.letters(everyLetter))
	}
	e.worker("r", "b").wantRun("order/1", records[1:])
}

// decisionAboutUnblocked: the blocking message was delivered, and none is queued after it.
func decisionAboutUnblocked(e *env) {
	w := e.worker("r", "a")
	r := w.hold("order/1", 1, time.Hour)[0]
	p := e.partition("order/1")
	w.settle(relay.Settlement{Partition: p, Removed: []int64{r.Message.Sequence}})
	for _, verb := range []relay.Verb{relay.VerbSkip, relay.VerbDead, relay.VerbDeadAll} {
		if _, err := e.decide("r", "order/1", verb, "why"); !errors.Is(err, held.ErrRefused) {
			e.t.Errorf("%s: %v, want %v", verb, err, held.ErrRefused)
		}
	}
	w.wantRun("order/1", nil)
	e.wantIDs("released", w.settle(relay.Settlement{Partition: p, Release: []string{"order/1"}}).Released, []string{"order/1"})
}

func deadAllOfMany(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 1_010, time.Hour)
	kept := w.parkAlone(e.message("order/1"), relay.Parked{Reason: relay.ParkDelayed, After: time.Hour})
	n, err := e.dead("r", "order/1", "customer was erased", true)
	if n != len(records) || err != nil {
		e.t.Fatalf("dead-lettered %d, %v; want %d", n, err, len(records))
	}
	e.wantIDs("dead letters", e.letterIDs(everyOpen), recordIDs(records))
	w.wantRun("order/1", nil)
	e.wantAlone("r", kept.Message.ID)
}
