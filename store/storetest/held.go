package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var heldTests = []test{
	{name: "LeaseBringsSoManyHeldKeys", run: leaseBringsSoManyHeldKeys, statements: true},
	{name: "HeldKeysAreListedLongestHeldFirst", run: heldKeysAreListed, statements: true},
	{name: "HeldKeysAreFoundAmongOthers", run: heldKeysAreFound, statements: true},
	{name: "HeldKeysAreFoundUnderLeases", run: foundHeldNeedsLeases, statements: true},
	{name: "HeldKeyIsShownWithItsMessages", run: heldKeyIsShown},
	{name: "RetryMakesTheKeyDue", run: retryMakesDue},
	{name: "RetryIsRefusedWhileTheKeyWaitsForADecision", run: retryRefused},
	{name: "DecisionAboutAnotherMessageIsRefused", run: decisionAboutAnother},
	{name: "DecisionIsAppliedOnceByItsHolder", run: decisionAppliedOnce},
	{name: "SkipGivesUpTheHeadAndLetsFollowersGo", run: skipDiscardsTheBlockingMessage},
	{name: "SkipDecidesAboutADeadHead", run: skipDeadHead, statements: true},
	{name: "DeadLettersTheHeadOnly", run: deadHead},
	{name: "DeadLettersAllOfTheKey", run: deadAll},
	{name: "DecisionsNeedAHeldKey", run: decisionsNeedAHeldKey},
	{name: "DecisionsWorkWhileNobodyHoldsThePartition", run: decisionsWithoutHolder},
	{name: "DecisionsWakeRelaysInTheSameProcess", run: decisionsWake},
}

// held lists the held keys of a relay.
func (e *env) held(name string) []store.HeldInfo {
	e.t.Helper()
	var out []store.HeldInfo
	for h, err := range held.New(e).ListHeld(e.ctx, name) {
		e.must(err, "list held keys")
		out = append(out, h)
	}
	return out
}

func heldKeysAreListed(e *env) {
	one, two := e.worker("one", "a"), e.worker("two", "a")
	var keys []string
	for _, key := range []string{"order/3", "order/1", "order/2"} {
		one.hold(key, 2, time.Hour)
		keys = append(keys, key)
		e.clockMoves(2 * time.Millisecond)
	}
	two.drain()
	two.hold("order/9", 1, 0)
	var got []string
	for _, h := range e.held("one") {
		got = append(got, h.Key)
		if h.Relay != "one" || h.Partition != e.partition(h.Key) || h.Parked != 2 || h.Reason != store.ParkRetry ||
			h.Cause != "first failure" || h.Attempts != 1 || time.Since(h.Since).Abs() > time.Minute ||
			time.Until(h.NextAttempt) < 50*time.Minute {
			e.t.Errorf("held key is listed as %+v", h)
		}
	}
	e.wantIDs("held keys of one relay", got, keys)
	if all := e.held(""); len(all) != 4 || all[3].Relay != "two" {
		e.t.Errorf("held keys of all relays: %+v", all)
	}
	for range held.New(e).ListHeld(e.ctx, "one") {
		break // a caller may stop early
	}
}

// refs returns the references to all of the worker's leases.
func (w *worker) refs() (refs []store.LeaseRef) {
	for p := range w.leases {
		refs = append(refs, w.ref(p))
	}
	return refs
}

func heldKeysAreFound(e *env) {
	one, two := e.worker("one", "a"), e.worker("two", "a")
	one.hold("order/1", 1, time.Hour)
	one.hold("order/2", 2, 0)
	two.drain()
	two.hold("order/9", 1, time.Hour)
	for _, c := range []struct{ asked, want []string }{
		{[]string{"order/2", "order/3", "Order/1", "order/9", "order/1", "order/1 "}, []string{"order/1", "order/2"}},
		{[]string{"order/3"}, nil},
	} {
		got, err := e.FindHeld(e.ctx, "one", one.refs(), c.asked)
		e.must(err, "find held keys")
		slices.Sort(got.Keys)
		e.wantIDs("held keys", got.Keys, c.want)
		if len(got.Lost) > 0 {
			e.t.Errorf("partitions %v count as lost, but one holds them", got.Lost)
		}
	}
}

func foundHeldNeedsLeases(e *env) {
	one := e.worker("r", "a")
	one.hold("order/1", 1, time.Hour)
	mine, stranger := one.ref(e.partition("order/1")), one.ref((e.partition("order/1")+1)%len(one.leases))
	stranger.Token = store.NewToken()
	got, err := e.FindHeld(e.ctx, "r", []store.LeaseRef{stranger, mine}, []string{"order/1"})
	e.must(err, "find held keys")
	if e.wantIDs("held keys", got.Keys, []string{"order/1"}); !slices.Equal(got.Lost, []int{stranger.Partition}) {
		e.t.Errorf("partitions %v count as lost, want %d, whose token is another", got.Lost, stranger.Partition)
	}
	one.takeOver("b")
	got, err = e.FindHeld(e.ctx, "r", []store.LeaseRef{mine}, []string{"order/1"})
	e.must(err, "find held keys")
	if !slices.Equal(got.Lost, []int{mine.Partition}) {
		e.t.Errorf("partitions %v count as lost, want %d, which another process has taken over", got.Lost, mine.Partition)
	}
}

func heldKeyIsShown(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 5, time.Hour)
	info, parked, err := held.New(e).ShowHeld(e.ctx, "r", "order/1", 3)
	e.must(err, "show held")
	if info.Key != "order/1" || info.Sequence != records[0].Message.Sequence || info.Parked != 5 {
		e.t.Errorf("held key is shown as %+v", info)
	}
	if len(parked) != 3 {
		e.t.Fatalf("%d messages are shown, want 3", len(parked))
	}
	for i, p := range parked {
		e.wantSame(p.Message, records[i].Message)
		if time.Since(p.ParkedAt).Abs() > time.Minute || !p.DueAt.IsZero() {
			e.t.Errorf("parked message is shown as %+v", p)
		}
	}
	if parked[0].Reason != store.ParkRetry || parked[0].Attempts != 1 || len(parked[0].History) != 1 || parked[1].Reason != store.ParkHeld {
		e.t.Errorf("head and follower are shown as %+v", parked[:2])
	}
}

// wantRun expects the key to be due, with these messages.
func (w *worker) wantRun(key string, want []store.Entry) {
	w.t.Helper()
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != key {
		w.t.Fatalf("due: %+v, want the run of key %s", due.Runs, key)
	}
	w.wantIDs("run", recordIDs(due.Runs[0].Entries), recordIDs(want))
}

func retryMakesDue(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 2, time.Hour)
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Fatalf("due before the retry: %+v", due.Runs)
	}
	e.must(e.retry("r", "order/1"), "retry")
	w.wantRun("order/1", records)
	if r := w.due().Runs[0].Entries[0]; r.Attempts != 1 {
		e.t.Errorf("head has %d attempts after the retry, want 1", r.Attempts)
	}
}

// undecided holds a key until a decision about its blocking message, which is in the dead letters.
func (w *worker) undecided(key string, queued int) []store.Entry {
	w.t.Helper()
	records := w.hold(key, queued+1, time.Hour)
	head := records[0].Message.Sequence
	w.settle(store.Settlement{Partition: w.partition(key),
		Dead: []store.DeadOutcome{{Sequence: head, Key: key, Reason: "attempts exhausted", Cause: "last failure", Attempts: 10}},
		Held: []store.HeldKey{{Key: key, Sequence: head, Reason: store.ParkDead, Cause: "last failure", Attempts: 10, UntilDecided: true}},
	})
	return records
}

func retryRefused(e *env) {
	w := e.worker("r", "a")
	w.undecided("order/1", 2)
	if err := e.retry("r", "order/1"); !errors.Is(err, held.ErrRefused) {
		e.t.Errorf("retry: %v, want %v", err, held.ErrRefused)
	}
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("due: %+v, want nothing while the dead letter is open", due.Runs)
	}
}

// decisionAboutAnother: the operator saw a message other than the one that blocks the key now.
func decisionAboutAnother(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	w.leave()
	for _, verb := range []store.Verb{store.VerbRetry, store.VerbSkip, store.VerbDead, store.VerbDeadAll} {
		d := store.Decision{Relay: "r", Key: "order/1", Verb: verb, By: "olga", MessageID: records[1].Message.ID}
		if _, err := held.Decide(e.ctx, e.database, d); !errors.Is(err, held.ErrRefused) {
			e.t.Errorf("%s: %v, want %v", verb, err, held.ErrRefused)
		}
	}
	if n := len(e.deadLetters(everyDead)); n > 0 {
		e.t.Errorf("%d dead letters after decisions that were refused", n)
	}
	d := store.Decision{Relay: "r", Key: "order/1", Verb: store.VerbSkip, By: "olga", MessageID: records[0].Message.ID}
	if d, err := held.Decide(e.ctx, e.database, d); err != nil || d.Count != 1 || d.State != store.DecisionApplied {
		e.t.Errorf("skip of the message that blocks the key: %+v, %v", d, err)
	}
}

// decisionAppliedOnce: a decision waits for the holder of the partition and is applied once.
func decisionAppliedOnce(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	p := e.partition("order/1")
	d := store.Decision{ID: store.NewToken(), Relay: "r", Key: "order/1", Verb: store.VerbSkip, By: "olga", Reason: "why"}
	for range 2 {
		e.must(held.New(e).RecordDecision(e.ctx, d), "record a decision")
	}
	if n := len(e.deadLetters(everyDead)); n > 0 {
		e.t.Fatalf("%d dead letters before the decision was applied", n)
	}
	due := w.due()
	if len(due.Decisions) != 1 || due.Decisions[0].ID != d.ID || due.Decisions[0].Partition != p || due.Decisions[0].By != "olga" {
		e.t.Fatalf("decisions to apply: %+v", due.Decisions)
	}
	if err := held.New(e).Apply(e.ctx, "r", store.LeaseRef{Partition: p, Token: store.NewToken()}, d.ID); !errors.Is(err, store.ErrLeaseLost) {
		e.t.Errorf("applied without the lease: %v", err)
	}
	for range 2 {
		e.must(held.New(e).Apply(e.ctx, "r", w.ref(p), d.ID), "apply a decision")
	}
	if got, err := held.New(e).ShowDecision(e.ctx, d.ID); err != nil || got.State != store.DecisionApplied || got.Count != 1 || got.Reason != "why" {
		e.t.Errorf("decision: %+v, %v", got, err)
	}
	if n := len(e.deadLetters(everyDead)); n != 1 {
		e.t.Errorf("%d dead letters, want that of one message", n)
	}
	if due = w.due(); len(due.Decisions) > 0 {
		e.t.Errorf("decisions to apply afterwards: %+v", due.Decisions)
	}
	w.wantRun("order/1", records[1:])
	if _, err := held.New(e).ShowDecision(e.ctx, "nobody's"); !errors.Is(err, store.ErrNoDecision) {
		e.t.Errorf("unknown decision: %v", err)
	}
}

func skipDiscardsTheBlockingMessage(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	e.must(e.skip("r", "order/1", "order was cancelled"), "skip")
	w.wantRun("order/1", records[1:])
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 {
		e.t.Fatalf("%d dead letters, want the skipped head", len(deadLetters))
	}
	l := deadLetters[0]
	e.wantSame(l.Message, records[0].Message)
	if l.State != store.DeadDiscarded || l.ResolvedBy != "olga" || l.Resolution != "order was cancelled" || l.ResolvedAt.IsZero() ||
		l.Cause != "first failure" || l.Attempts != 1 || len(l.History) != 1 {
		e.t.Errorf("skipped head stands in the dead letters as %+v", l)
	}
}

func skipDeadHead(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	e.must(e.skip("r", "order/1", "order was cancelled"), "skip")
	w.wantRun("order/1", records[1:])
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 1 || deadLetters[0].State != store.DeadDiscarded || deadLetters[0].ResolvedBy != "olga" {
		e.t.Errorf("dead letters: %+v, want the head's, discarded by olga", deadLetters)
	}
}

func deadHead(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	n, err := e.dead("r", "order/1", "malformed address", false)
	if n != 1 || err != nil {
		e.t.Fatalf("dead-lettered %d, %v; want 1", n, err)
	}
	w.wantRun("order/1", records[1:])
	deadLetters := e.deadLetters(store.DeadFilter{})
	if len(deadLetters) != 1 || deadLetters[0].Message.ID != records[0].Message.ID || deadLetters[0].Reason != "malformed address" ||
		deadLetters[0].Attempts != 1 || len(deadLetters[0].History) == 0 {
		e.t.Errorf("open dead letters: %+v, want the head's", deadLetters)
	}
}

func deadAll(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	n, err := e.dead("r", "order/1", "malformed address", true)
	if n != 3 || err != nil {
		e.t.Fatalf("dead-lettered %d, %v; want 3", n, err)
	}
	w.wantRun("order/1", nil)
	var got []string
	for _, l := range e.deadLetters(store.DeadFilter{}) {
		got = append(got, l.Message.ID)
	}
	e.wantIDs("dead letters", got, recordIDs(records))
	out := w.settle(store.Settlement{Partition: e.partition("order/1"), Release: []string{"order/1"}})
	e.wantIDs("released", out.Released, []string{"order/1"})
}

func decisionsNeedAHeldKey(e *env) {
	w := e.worker("r", "a")
	w.hold("order/1", 1, 0)
	for _, c := range []struct{ relay, key string }{{"r", "order/2"}, {"other", "order/1"}} {
		_, _, show := held.New(e).ShowHeld(e.ctx, c.relay, c.key, 10)
		_, dead := e.dead(c.relay, c.key, "why", true)
		for op, err := range map[string]error{
			"show": show, "dead": dead, "retry": e.retry(c.relay, c.key), "skip": e.skip(c.relay, c.key, "why"),
		} {
			if !errors.Is(err, store.ErrNotHeld) {
				e.t.Errorf("%s key %s of relay %s: %v, want an error that is ErrNotHeld", op, c.key, c.relay, err)
			}
		}
	}
	if st := e.status("r"); st.Parked.N != 1 || st.Held.N != 1 || len(e.deadLetters(everyDead)) != 0 {
		e.t.Errorf("decisions that failed changed something: %+v", st)
	}
}

func decisionsWithoutHolder(e *env) {
	w := e.worker("r", "a")
	records := w.hold("order/1", 3, time.Hour)
	e.must(e.Leave(e.ctx, "r", w.owner), "leave")
	e.must(e.skip("r", "order/1", "cancelled"), "skip")
	n, err := e.dead("r", "order/1", "malformed", false)
	if n != 1 || err != nil {
		e.t.Fatalf("dead-lettered %d, %v; want 1", n, err)
	}
	e.worker("r", "b").wantRun("order/1", records[2:])
}

func decisionsWake(e *env) {
	w := e.worker("r", "a")
	w.hold("order/1", 3, time.Hour)
	w.undecided("order/2", 1)
	c, end := e.Subscribe(nil)
	defer end()
	for _, d := range []struct {
		name string
		do   func() error
	}{
		{"retry", func() error { return e.retry("r", "order/1") }},
		{"skip", func() error { return e.skip("r", "order/1", "why") }},
		{"dead", func() error { _, err := e.dead("r", "order/1", "why", false); return err }},
		{"redrive", func() error { _, err := e.RedriveDead(e.ctx, store.DeadFilter{Key: "order/1"}, "olga", 0); return err }},
		{"discard", func() error {
			_, err := e.DiscardDead(e.ctx, store.DeadFilter{Key: "order/2"}, "olga", "why", 0)
			return err
		}},
	} {
		e.must(d.do(), d.name)
		e.until("signal after "+d.name, func() bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		})
	}
	if keys := e.held("r"); !slices.ContainsFunc(keys, func(h store.HeldInfo) bool { return h.Key == "order/2" }) {
		e.t.Errorf("held keys: %+v; it is for the relay to release them", keys)
	}
}
