package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

var redriveTests = []test{
	{name: "RedriveGoesStepByStepToItsEnd", run: redriveSteps},
	{name: "RedriveConcernsWhatStoodThereWhenItBegan", run: redriveLeavesLater},
	{name: "TwoRedrivesOfTheSameLettersSendEachOnce", run: twoRedrives},
	{name: "RedriveGoesOnInAnotherProcess", run: redriveContinues},
	{name: "RateHoldsForAllProcessesTogether", run: redriveRate},
	{name: "CancelStopsARedrive", run: redriveCancel},
	{name: "RedriveSkipsWhatOthersDecide", run: redriveSkips},
	{name: "RedrivesAreBounded", run: redrivesAreBounded},
	{name: "RedriveTellsWhatBecameOfTheMessages", run: redriveOutcome},
	{name: "RedrivenMessageWaitsBehindAHeldKey", run: redriveOfHeld},
	{name: "SettlementOfAnEarlierTryLeavesARedrivenMessageAlone", run: settledEarlierTry},
	{name: "RedrivesAreChecked", run: redrivesAreChecked},
	{name: "RedrivesAreListedLatestFirst", run: redrivesAreListed},
	{name: "FailedStepPutsARedriveOffAndSaysWhy", run: failedStepPutsOff},
	{name: "RedriveFailsAfterManyFailuresInARow", run: redriveFails},
	{name: "StartedRedriveWakesThoseWhoDrive", run: startedRedriveWakes},
	{name: "EndedRedrivesArePurged", run: endedRedrivesArePurged},
}

// DeadLetters runs the part of the suite for redrives and repairs of dead letters, on both sides, and for store.StatusReader.
func DeadLetters[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	consumers := group{name: "Consumers"}
	for _, it := range consumerTests[Tx]() {
		consumers.tests = append(consumers.tests, it.erase())
	}
	newSuite(f, h).runGroups(t, []group{{"Redrive", redriveTests}, {"Repair", repairTests}, {"Input", inputTests}, {"Records", recordTests}, consumers})
}

// step runs one step of a redrive and returns its state and how long to wait until the next step.
func (e *env) step(id int64, limit int) (store.Redrive, time.Duration) {
	e.t.Helper()
	r, wait, err := e.StepRedrive(e.ctx, id, limit)
	e.must(err, "step of a redrive")
	return r, wait
}

func (e *env) startRedrive(f store.DeadFilter) store.Redrive {
	e.t.Helper()
	r, err := e.StartRedrive(e.ctx, deadletter.Plan{Filter: f, By: "olga"})
	e.must(err, "start a redrive")
	return r
}

func (e *env) drive(id int64) store.Redrive {
	e.t.Helper()
	r, err := e.Drive(e.ctx, id, nil)
	e.must(err, "drive")
	return r
}

func (e *env) wantRedrive(r store.Redrive, state store.RedriveState, selected, done, refused, skipped int64) {
	e.t.Helper()
	if r.State != state || r.Selected != selected || r.Done != done || r.Refused != refused || r.Skipped != skipped {
		e.t.Fatalf("redrive %+v, want it %s with %d selected, %d done, %d refused, %d skipped", r, state, selected, done, refused,
			skipped)
	}
}

// dueIDs returns the IDs of the due messages.
func (w *worker) dueIDs() []string {
	w.t.Helper()
	var out []string
	for _, run := range w.due().Runs {
		out = append(out, recordIDs(run.Entries)...)
	}
	return out
}

func redriveSteps(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 25)...)
	w.deadLetter("of another kind", e.message(""))
	f := store.DeadFilter{Relay: "r", Reason: "rejected"}
	r := e.startRedrive(f)
	e.wantRedrive(r, store.RedriveRunning, 25, 0, 0, 0)
	if r.By != "olga" || time.Since(r.StartedAt).Abs() > time.Minute || !reflect.DeepEqual(r.Filter, f) {
		e.t.Errorf("redrive as begun: %+v", r)
	}
	e.wantSet("due before the first step", w.dueIDs(), nil)
	for _, done := range []int64{10, 20} {
		r, wait := e.step(r.ID, 10)
		e.wantRedrive(r, store.RedriveRunning, 25, done, 0, 0)
		if wait != 0 {
			e.t.Errorf("a redrive without a rate wants to wait for %s", wait)
		}
		e.wantSet("due", w.dueIDs(), want[:done])
	}
	r, _ = e.step(r.ID, 10)
	e.wantRedrive(r, store.RedriveFinished, 25, 25, 0, 0)
	e.wantSet("due at the end", w.dueIDs(), want)
	again, _ := e.step(r.ID, 10)
	e.wantRedrive(again, store.RedriveFinished, 25, 25, 0, 0)
	for _, l := range e.deadLetters(store.DeadFilter{Redrive: r.ID, State: store.DeadAny}) {
		if l.State != store.DeadRedriven || l.Redrive != r.ID || l.ResolvedBy != "olga" {
			e.t.Errorf("letter that a redrive sent back: %+v", l)
		}
	}
	if shown, err := e.ShowRedrive(e.ctx, r.ID); err != nil || shown.EndedAt.Before(shown.StartedAt) || !reflect.DeepEqual(shown.Filter, f) {
		e.t.Errorf("redrive at its end: %+v, %v", shown, err)
	}
}

func redriveLeavesLater(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 3)...)
	r := e.startRedrive(everyOpen)
	w.deadLetter("rejected", e.messages("", 2)...)
	e.wantRedrive(e.drive(r.ID), store.RedriveFinished, 3, 3, 0, 0)
	e.wantSet("due", w.dueIDs(), want)
}

func twoRedrives(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 40)...)
	stores := []database{e.database, e.reopen(e.t)}
	redrives := make([]store.Redrive, len(stores))
	for i := range stores { // both before the first step, so that each selects all dead letters
		redrives[i] = e.startRedrive(store.DeadFilter{Relay: "r"})
	}
	var wg sync.WaitGroup
	for i, r := range redrives {
		for range 3 {
			wg.Go(func() {
				for at := r; at.State == store.RedriveRunning; {
					var err error
					if at, _, err = deadletter.New(stores[i]).StepRedrive(e.ctx, r.ID, 3); err != nil {
						e.t.Errorf("step: %v", err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	var done int64
	for _, r := range redrives {
		r, err := e.ShowRedrive(e.ctx, r.ID)
		e.must(err, "show")
		if done += r.Done; r.State != store.RedriveFinished || r.Done+r.Skipped != r.Selected || r.Selected != 40 {
			e.t.Errorf("redrive beside another: %+v", r)
		}
	}
	if done != 40 {
		e.t.Errorf("two redrives have sent back %d of 40 letters together", done)
	}
	e.wantSet("due", w.dueIDs(), want)
}

func redriveContinues(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 12)...)
	r := e.startRedrive(everyOpen)
	e.step(r.ID, 5) // then the process is gone
	other := e.reopen(e.t)
	var seen []int64
	end, err := deadletter.New(other).Drive(e.ctx, r.ID, func(r store.Redrive) { seen = append(seen, r.Done) })
	e.must(err, "drive")
	e.wantRedrive(end, store.RedriveFinished, 12, 12, 0, 0)
	if len(seen) != 1 || seen[0] != 12 {
		e.t.Errorf("progress of the other process: %d, want 12 at its only step", seen)
	}
	e.wantSet("due", w.dueIDs(), want)
}

func redriveRate(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 3)...)
	r, err := e.StartRedrive(e.ctx, deadletter.Plan{Rate: 0.01, By: "olga"})
	e.must(err, "start")
	r, wait := e.step(r.ID, 100)
	e.wantRedrive(r, store.RedriveRunning, 3, 1, 0, 0)
	if wait < 99*time.Second || wait > 100*time.Second {
		e.t.Errorf("after one letter at 0.01 a second the redrive wants to wait for %s", wait)
	}
	again, wait, err := deadletter.New(e.reopen(e.t)).StepRedrive(e.ctx, r.ID, 100)
	e.must(err, "step")
	e.wantRedrive(again, store.RedriveRunning, 3, 1, 0, 0)
	if wait <= 0 || wait > 100*time.Second {
		e.t.Errorf("another process is told to wait for %s", wait)
	}
	fast, err := e.StartRedrive(e.ctx, deadletter.Plan{Rate: 200, By: "olga"})
	e.must(err, "start")
	e.wantRedrive(e.drive(fast.ID), store.RedriveFinished, 2, 2, 0, 0)
}

func redriveCancel(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 9)...)
	r := e.startRedrive(everyOpen)
	e.step(r.ID, 4)
	other := e.reopen(e.t)
	cancelled, err := deadletter.New(other).CancelRedrive(e.ctx, r.ID, "otto")
	e.must(err, "cancel")
	e.wantRedrive(cancelled, store.RedriveCancelled, 9, 4, 0, 0)
	if cancelled.CancelledBy != "otto" || cancelled.EndedAt.IsZero() {
		e.t.Errorf("cancelled redrive: %+v", cancelled)
	}
	after, _ := e.step(r.ID, 4)
	e.wantRedrive(after, store.RedriveCancelled, 9, 4, 0, 0)
	e.wantSet("due", w.dueIDs(), want[:4])
	e.wantIDs("still open", e.deadIDs(everyOpen), want[4:])
	if _, err := e.CancelRedrive(e.ctx, r.ID, "olga"); !errors.Is(err, deadletter.ErrRedriveEnded) {
		e.t.Errorf("cancelled twice: %v", err)
	}
	_, cancel := e.CancelRedrive(e.ctx, 4_711, "olga")
	_, show := e.ShowRedrive(e.ctx, 4_711)
	_, _, step := e.StepRedrive(e.ctx, 4_711, 1)
	for _, err := range []error{cancel, show, step} {
		if !errors.Is(err, store.ErrNoRedrive) {
			e.t.Errorf("of an unknown redrive: %v", err)
		}
	}
}

func redriveSkips(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 6)...)
	deadLetters := e.deadLetters(everyOpen)
	r := e.startRedrive(everyOpen)
	e.step(r.ID, 2)
	_, err := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{deadLetters[3].Number, deadLetters[5].Number}}, "otto", "why", 0)
	e.must(err, "discard")
	e.wantRedrive(e.drive(r.ID), store.RedriveFinished, 6, 4, 0, 2)
	e.wantSet("due", w.dueIDs(), []string{want[0], want[1], want[2], want[4]})
}

func redriveOutcome(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/1"), e.message("order/2"), e.message("order/3"), e.message("order/4"))
	var numbers []int64
	for _, l := range e.deadLetters(everyOpen) {
		numbers = append(numbers, l.Number)
	}
	r := e.drive(e.startRedrive(everyOpen).ID)
	if o := r.Outcome; o == nil || *o != (store.RedriveOutcome{Waiting: 4}) {
		e.t.Errorf("outcome before anything was tried: %+v", o)
	}
	for _, run := range w.due().Runs {
		rec := run.Entries[0]
		st := store.Settlement{Partition: run.Partition}
		switch rec.Message.Key {
		case "order/1", "order/4":
			st.Removed = []int64{rec.Message.Sequence}
		case "order/2":
			st.Dead = []store.DeadOutcome{{Sequence: rec.Message.Sequence, Key: "order/2", Reason: "again"}}
		case "order/3":
			st.Parked = []store.ParkOutcome{{Sequence: rec.Message.Sequence, Key: "order/3", Reason: store.ParkRetry, Attempts: 1, Cause: "again", After: time.Hour}}
		}
		w.settle(st)
	}
	r, err := e.ShowRedrive(e.ctx, r.ID)
	e.must(err, "show")
	if *r.Outcome != (store.RedriveOutcome{Delivered: 2, Waiting: 1, Failing: 1, Failed: 1}) {
		e.t.Errorf("outcome: %+v", r.Outcome)
	}
	for i, want := range []store.Redriven{{Found: 4, Parked: 1, Failing: 1, Dead: 1}, {Found: 3, Parked: 1, Failing: 1, Dead: 1}, {Found: 2, Parked: 1, Failing: 1}, {Found: 1}} {
		err := e.View(e.ctx, store.Operation{Method: "ShowRedrive", Doing: "count messages"}, func(read store.Reader) error {
			n, err := read.Redriven(e.ctx, r.ID, append([]int64{0}, numbers...)[i])
			if n != want {
				e.t.Errorf("after %d dead letters: %+v, want %+v", i, n, want)
			}
			return err
		})
		e.must(err, "count what became of the later ones")
	}
}

func redrivesAreChecked(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 2)...)
	deadLetters := e.deadLetters(everyOpen)
	e.redrive(store.DeadFilter{Numbers: []int64{deadLetters[0].Number}}, 1)
	for i, p := range []deadletter.Plan{
		{Rate: -1},
		{Filter: store.DeadFilter{State: store.DeadRedriven}},
		{Filter: store.DeadFilter{MaxRedrives: -2}},
		{Filter: store.DeadFilter{Numbers: []int64{deadLetters[0].Number, deadLetters[1].Number}}},
		{Filter: store.DeadFilter{Numbers: []int64{4_711}}},
	} {
		if r, err := e.StartRedrive(e.ctx, p); err == nil {
			e.t.Errorf("plan %d was taken: %+v", i, r)
		}
	}
	named := e.startRedrive(store.DeadFilter{Numbers: []int64{deadLetters[1].Number}})
	e.redrive(everyOpen, 1) // another operator is faster
	e.wantRedrive(e.drive(named.ID), store.RedriveFinished, 1, 0, 0, 1)
}

func redrivesAreListed(e *env) {
	list := func(state store.RedriveState) (ids []int64) {
		for r, err := range e.ListRedrives(e.ctx, state) {
			e.must(err, "list redrives")
			ids = append(ids, r.ID)
		}
		return ids
	}
	var want []int64
	for range 104 {
		want = append([]int64{e.startRedrive(everyOpen).ID}, want...)
	}
	e.drive(want[3])
	_, err := e.CancelRedrive(e.ctx, want[5], "olga")
	e.must(err, "cancel")
	for state, ids := range map[store.RedriveState][]int64{
		"": want, store.RedriveFinished: {want[3]}, store.RedriveCancelled: {want[5]},
	} {
		if got := list(state); fmt.Sprint(got) != fmt.Sprint(ids) {
			e.t.Errorf("redrives in state %q: %v, want %v", state, got, ids)
		}
	}
	if n := len(list(store.RedriveRunning)); n != 102 {
		e.t.Errorf("%d redrives are running, want 102", n)
	}
	for range e.ListRedrives(e.ctx, "") {
		break // a caller may stop early
	}
}
