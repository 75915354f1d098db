package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

var deadTests = []test{
	{name: "ListingPagesAndLimits", run: listingPages},
	{name: "EveryFieldOfTheFilterChooses", run: filterChooses},
	{name: "DeadLettersAreSpanned", run: deadAreSpanned},
	{name: "UnknownDeadLetterIsNotFound", run: unknownDead},
	{name: "RedriveMakesMessagesDueFromTheFirstAttempt", run: redriveMakesDue},
	{name: "RedriveGoesInBatchesOldestFirst", run: redriveBatches},
	{name: "ConcurrentRedrivesSendEachLetterOnce", run: concurrentRedrives},
	{name: "RedrivesAreCountedAndHistoryGoesOn", run: redrivesAreCounted},
	{name: "RedriveOfTheHeadGoesBeforeItsFollowers", run: redriveOfHead},
	{name: "RedriveOfAnotherLetterLeavesTheKeyHeld", run: redriveOfAnother},
	{name: "DiscardResolvesWithWhoAndWhy", run: discardResolves},
	{name: "DiscardOfTheHeadLetsFollowersGo", run: discardOfHead},
	{name: "ResolvedLettersStayResolved", run: resolvedStayResolved},
	{name: "NamedLettersAreRedrivenAllOrNone", run: namedAllOrNone},
}

var (
	everyDead = store.DeadFilter{State: store.DeadAny}
	everyOpen = store.DeadFilter{}
)

// letters lists dead letters.
func (e *env) deadLetters(f store.DeadFilter) []store.DeadLetter {
	e.t.Helper()
	var out []store.DeadLetter
	for l, err := range e.ListDead(e.ctx, f, 0, 0) {
		e.must(err, "list dead letters")
		out = append(out, l)
	}
	return out
}

func (e *env) deadIDs(f store.DeadFilter) []string {
	e.t.Helper()
	var out []string
	for _, l := range e.deadLetters(f) {
		out = append(out, l.Message.ID)
	}
	return out
}

// deadLetter publishes messages and dead-letters them one by one.
func (w *worker) deadLetter(reason string, msgs ...*postrider.Message) []string {
	w.t.Helper()
	w.publish(msgs...)
	read := make(map[int64]store.Entry)
	for _, r := range w.drain() {
		read[r.Message.Sequence] = r
	}
	byID := make(map[string]int64)
	for seq, r := range read {
		byID[r.Message.ID] = seq
	}
	for _, m := range msgs {
		p := postrider.PartitionOf(m.Key, m.ID, w.partitions)
		w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true, Dead: []store.DeadOutcome{
			{Sequence: byID[m.ID], Key: m.Key, FromLog: true, Reason: reason, Cause: "cause of " + m.ID, Attempts: 3},
		}})
	}
	return ids(msgs)
}

func listingPages(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 250)...)
	deadLetters := e.deadLetters(store.DeadFilter{})
	e.wantIDs("all dead letters", e.deadIDs(store.DeadFilter{}), want)
	for i := 1; i < len(deadLetters); i++ {
		if deadLetters[i].Number <= deadLetters[i-1].Number || deadLetters[i].DiedAt.Before(deadLetters[i-1].DiedAt) {
			e.t.Fatalf("dead letter %d, of %s, follows %d, of %s", deadLetters[i].Number, deadLetters[i].DiedAt, deadLetters[i-1].Number, deadLetters[i-1].DiedAt)
		}
	}
	for _, c := range []struct{ skip, limit, want int }{{0, 1, 1}, {0, 130, 130}, {100, 0, 150}, {100, 20, 20}, {240, 20, 10}, {250, 5, 0}} {
		after, n := int64(0), 0
		if c.skip > 0 {
			after = deadLetters[c.skip-1].Number
		}
		for l, err := range e.ListDead(e.ctx, store.DeadFilter{}, after, c.limit) {
			e.must(err, "list dead letters")
			if l.Message.ID != want[c.skip+n] {
				e.t.Fatalf("letter %d after number %d is %s, want %s", n, after, l.Message.ID, want[c.skip+n])
			}
			n++
		}
		if n != c.want {
			e.t.Errorf("%d dead letters behind the first %d with limit %d, want %d", n, c.skip, c.limit, c.want)
		}
	}
	for range e.ListDead(e.ctx, store.DeadFilter{}, 0, 0) {
		break // a caller may stop early
	}
	if n, err := e.CountDead(e.ctx, store.DeadFilter{}); n != 250 || err != nil {
		e.t.Errorf("count %d, %v; want 250", n, err)
	}
}

func filterChooses(e *env) {
	w, other := e.worker("r", "a"), e.worker("other", "a")
	plain, special := e.message("order/1"), e.message("order/2")
	special.Topic, special.Type, special.Tenant = "shipments", "shipment.sent", "acme"
	w.deadLetter("rejected", plain)
	e.clockMoves(20 * time.Millisecond)
	w.deadLetter("undecodable", special)
	second := e.deadLetters(store.DeadFilter{})[1].DiedAt
	other.drain()
	far := e.message("order/3")
	other.deadLetter("rejected", far)
	numbers := e.deadLetters(store.DeadFilter{})
	for _, c := range []struct {
		name string
		f    store.DeadFilter
		want []string
	}{
		{"zero", store.DeadFilter{}, []string{plain.ID, special.ID, far.ID}},
		{"relay", store.DeadFilter{Relay: "other"}, []string{far.ID}},
		{"topic", store.DeadFilter{Topic: "shipments"}, []string{special.ID}},
		{"type", store.DeadFilter{Type: "shipment.sent"}, []string{special.ID}},
		{"key", store.DeadFilter{Key: "order/1"}, []string{plain.ID}},
		{"tenant", store.DeadFilter{Tenant: "acme"}, []string{special.ID}},
		{"reason", store.DeadFilter{Reason: "undecodable"}, []string{special.ID}},
		{"message ID", store.DeadFilter{MessageID: far.ID}, []string{far.ID}},
		{"numbers", store.DeadFilter{Numbers: []int64{numbers[0].Number, numbers[2].Number}}, []string{plain.ID, far.ID}},
		{"from, inclusive", store.DeadFilter{From: second, Relay: "r"}, []string{special.ID}},
		{"to, exclusive", store.DeadFilter{To: second}, []string{plain.ID}},
		{"several", store.DeadFilter{Relay: "r", Reason: "rejected", Type: "order.placed"}, []string{plain.ID}},
		{"none", store.DeadFilter{Relay: "r", Key: "order/3"}, nil},
		{"state without any", store.DeadFilter{State: store.DeadRedriven}, nil},
		{"open state", store.DeadFilter{State: store.DeadOpen, Relay: "other"}, []string{far.ID}},
	} {
		e.wantIDs("chosen by "+c.name, e.deadIDs(c.f), c.want)
		if n, err := e.CountDead(e.ctx, c.f); int(n) != len(c.want) || err != nil {
			e.t.Errorf("counted by %s: %d, %v; want %d", c.name, n, err, len(c.want))
		}
		var found []string
		page, err := e.FindDead(e.ctx, c.f, 0, 1, func(l store.DeadLetter) { found = append(found, l.Message.ID) })
		e.wantIDs("first found by "+c.name, found, c.want[:min(1, len(c.want))])
		if err != nil || !page.Complete || int(page.Total) != len(c.want) || page.Next > 0 != (len(found) > 0) {
			e.t.Errorf("found by %s: %+v, %v; want %d", c.name, page, err, len(c.want))
		}
	}
}

func unknownDead(e *env) {
	_, show := e.ShowDead(e.ctx, 4_711)
	_, redrive := e.RedriveDead(e.ctx, store.DeadFilter{Numbers: []int64{4_711}}, "olga", 0)
	_, discard := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{4_711}}, "olga", "why", 0)
	for op, err := range map[string]error{"show": show, "redrive": redrive, "discard": discard} {
		if !errors.Is(err, deadletter.ErrNotFound) {
			e.t.Errorf("%s: %v, want an error that is ErrNotFound", op, err)
		}
	}
	if n, err := e.RedriveDead(e.ctx, store.DeadFilter{}, "olga", 0); n != 0 || err != nil {
		e.t.Errorf("redrive of all of none: %d, %v", n, err)
	}
}

func (e *env) redrive(f store.DeadFilter, want int) {
	e.t.Helper()
	if n, err := e.RedriveDead(e.ctx, f, "olga", 0); n != want || err != nil {
		e.t.Fatalf("redrive: %d, %v; want %d", n, err, want)
	}
}

func redriveMakesDue(e *env) {
	w := e.worker("r", "a")
	m := e.message("order/1")
	m.Headers = map[string]string{"h": "ö"}
	w.deadLetter("rejected", m)
	e.redrive(store.DeadFilter{}, 1)
	due := w.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 || due.Runs[0].Key != "" {
		e.t.Fatalf("due: %+v, want the redriven message for itself", due.Runs)
	}
	r := due.Runs[0].Entries[0]
	e.wantSame(r.Message, m)
	if r.Attempts != 0 || r.Reason != store.ParkRedriven {
		e.t.Errorf("redriven message has %d attempts and reason %q", r.Attempts, r.Reason)
	}
	l := e.deadLetters(everyDead)[0]
	if l.State != store.DeadRedriven || l.ResolvedBy != "olga" || time.Since(l.ResolvedAt).Abs() > time.Minute {
		e.t.Errorf("letter is %+v", l)
	}
	w.settle(store.Settlement{Partition: e.partition("order/1"), Removed: []int64{r.Message.Sequence}})
	e.wantSet("fetched from the log", recordIDs(w.takeOver("b").drain()), nil)
}

func redriveBatches(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 25)...)
	for _, n := range []int{10, 10, 5, 0} {
		got, err := e.RedriveDead(e.ctx, store.DeadFilter{Relay: "r"}, "olga", 10)
		if got != n || err != nil {
			e.t.Fatalf("redrive of at most 10: %d, %v; want %d", got, err, n)
		}
		var due []string
		for _, run := range w.due().Runs {
			due = append(due, recordIDs(run.Entries)...)
		}
		e.wantSet("due", due, want[:len(want)-len(e.deadLetters(store.DeadFilter{}))])
	}
}

func concurrentRedrives(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 60)...)
	var mu sync.Mutex
	var wg sync.WaitGroup
	total := 0
	for i := range 4 {
		wg.Go(func() {
			for {
				n, err := e.RedriveDead(e.ctx, store.DeadFilter{}, fmt.Sprintf("operator %d", i), 7)
				if err != nil {
					e.t.Errorf("redrive: %v", err)
				}
				if n == 0 || err != nil {
					return
				}
				mu.Lock()
				total += n
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if left := len(e.deadLetters(store.DeadFilter{})); total != len(want) || left > 0 {
		e.t.Errorf("four operators redrove %d of %d dead letters together, %d are left", total, len(want), left)
	}
	var due []string
	for _, run := range w.due().Runs {
		due = append(due, recordIDs(run.Entries)...)
	}
	e.wantSet("due", due, want)
}

func redrivesAreCounted(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/1"))
	for i := range 3 {
		e.redrive(store.DeadFilter{}, 1)
		rec := w.due().Runs[0].Entries[0]
		w.settle(store.Settlement{Partition: e.partition("order/1"), Dead: []store.DeadOutcome{{
			Sequence: rec.Message.Sequence, Key: "order/1", Reason: "rejected again", Cause: fmt.Sprintf("failure %d", i),
			Attempts: 1,
		},
		}})
		deadLetters := e.deadLetters(store.DeadFilter{})
		if len(deadLetters) != 1 || deadLetters[0].Redrives != i+1 || deadLetters[0].Reason != "rejected again" {
			e.t.Fatalf("open letters after %d redrives: %+v", i+1, deadLetters)
		}
		// Each round adds the redrive, which is not an attempt, and the attempt.
		if h := deadLetters[0].History; len(h) != 1+2*(i+1) || h[len(h)-2].Attempt != 0 || h[len(h)-1].Attempt != 1 {
			e.t.Errorf("history after %d redrives: %+v", i+1, h)
		}
	}
	if all := e.deadLetters(everyDead); len(all) != 4 {
		e.t.Errorf("%d dead letters in all, want one for each time the message died", len(all))
	}
}

func redriveOfHead(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	e.redrive(store.DeadFilter{Key: "order/1"}, 1)
	w.wantRun("order/1", records)
	if r := w.due().Runs[0].Entries[0]; r.Attempts != 0 {
		e.t.Errorf("redriven head has %d attempts", r.Attempts)
	}
}

func redriveOfAnother(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/1"))
	records := w.undecided("order/1", 1)
	number := e.deadLetters(store.DeadFilter{})[0].Number
	e.redrive(store.DeadFilter{Numbers: []int64{number}}, 1)
	for _, run := range w.due().Runs {
		if run.Key != "" {
			e.t.Errorf("a key that waits for a decision about %s is due: %+v", records[0].Message.ID, run)
		}
	}
}

func discardResolves(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 3)...)
	number := e.deadLetters(store.DeadFilter{})[1].Number
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{number}}, "olga", "test data", 0); n != 1 || err != nil {
		e.t.Fatalf("discard: %d, %v; want 1", n, err)
	}
	l, err := e.ShowDead(e.ctx, number)
	e.must(err, "show")
	if l.State != store.DeadDiscarded || l.ResolvedBy != "olga" || l.Resolution != "test data" || time.Since(l.ResolvedAt).Abs() > time.Minute {
		e.t.Errorf("discarded letter is %+v", l)
	}
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{}, "olga", "test data", 1); n != 1 || err != nil {
		e.t.Errorf("discard of at most one: %d, %v", n, err)
	}
	if left := len(e.deadLetters(store.DeadFilter{})); left != 1 {
		e.t.Errorf("%d dead letters are open, want 1", left)
	}
	if due := w.due(); len(due.Runs) > 0 {
		e.t.Errorf("discarded messages are due: %+v", due.Runs)
	}
}

func discardOfHead(e *env) {
	w := e.worker("r", "a")
	records := w.undecided("order/1", 2)
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Key: "order/1"}, "olga", "cancelled", 0); n != 1 || err != nil {
		e.t.Fatalf("discard: %d, %v; want 1", n, err)
	}
	w.wantRun("order/1", records[1:])
}

func resolvedStayResolved(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 2)...)
	deadLetters := e.deadLetters(store.DeadFilter{})
	redriven, discarded := store.DeadFilter{Numbers: []int64{deadLetters[0].Number}}, store.DeadFilter{Numbers: []int64{deadLetters[1].Number}}
	e.redrive(redriven, 1)
	_, err := e.DiscardDead(e.ctx, discarded, "olga", "why", 0)
	e.must(err, "discard")
	for _, f := range []store.DeadFilter{redriven, discarded} {
		n, redrive := e.RedriveDead(e.ctx, f, "otto", 0)
		m, discard := e.DiscardDead(e.ctx, f, "otto", "why not", 0)
		if n != 0 || m != 0 || !errors.Is(redrive, deadletter.ErrResolved) || !errors.Is(discard, deadletter.ErrResolved) {
			e.t.Errorf("letter %v again: redrive %d, %v; discard %d, %v; want ErrResolved", f.Numbers, n, redrive, m, discard)
		}
	}
	for _, l := range e.deadLetters(everyDead) {
		if l.ResolvedBy != "olga" {
			e.t.Errorf("letter %d was resolved by %s, want olga", l.Number, l.ResolvedBy)
		}
	}
	if due := w.due(); len(due.Runs) != 1 {
		e.t.Errorf("%d messages are due, want the one that was redriven", len(due.Runs))
	}
}

func namedAllOrNone(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 3)...)
	deadLetters := e.deadLetters(store.DeadFilter{})
	e.redrive(store.DeadFilter{Numbers: []int64{deadLetters[1].Number}}, 1)
	for want, numbers := range map[error][]int64{
		deadletter.ErrResolved: {deadLetters[0].Number, deadLetters[1].Number, deadLetters[2].Number},
		deadletter.ErrNotFound: {deadLetters[0].Number, 4_711},
	} {
		if n, err := e.RedriveDead(e.ctx, store.DeadFilter{Numbers: numbers}, "olga", 0); n != 0 || !errors.Is(err, want) {
			e.t.Errorf("redrive of %v: %d, %v; want none and %v", numbers, n, err, want)
		}
	}
	if left := len(e.deadLetters(store.DeadFilter{})); left != 2 {
		e.t.Errorf("%d dead letters are open, want 2", left)
	}
}
