package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

func sagaSaveTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "SaveNeedsTheNextRevision", run: sagaNextRev[Tx]},
		{name: "SeveralTransitionsAreOneSave", run: sagaSeveral[Tx]},
		{name: "HistoryIsWhatWasSaved", run: sagaHistory[Tx]},
		{name: "BytesReturnAsTheyWere", run: sagaBytes[Tx]},
		{name: "VersionOfOneInstance", run: sagaVersion[Tx]},
		{name: "StatusSetsTheTimes", run: sagaStatusTimes[Tx]},
		{name: "LongTextsAreTruncated", run: sagaLongTexts[Tx]},
		{name: "LoadReturnsThoseThatExistInOrder", run: sagaLoadOrder[Tx]},
		{name: "LoadSeesWhatTheOtherLeft", run: sagaLoadWaits[Tx], late: true},
		{name: "LoadLocksInOneOrder", run: sagaLoadLocks[Tx], late: true},
	}
}

func sagaAsCreated[Tx any](e *sagaEnv[Tx]) {
	began := time.Now()
	st := e.start("a", keyed("order/1"), childOf("run-parent"), func(st *store.SagaStart) {
		st.Version, st.Kind, st.CorrelationID, st.Tenant = 7, store.SagaChoreographed, "corr", "tenant"
		st.Paused, st.PastPivot, st.Cause, st.Detail, st.Obligations, st.Released = true, true, "refused", "card declined", 3, 1
		st.Deadline, st.TimerAt, st.TimerID = 72*time.Hour, 15*time.Second, "m-1"
		st.Labels = map[string]string{"customer": "42", "region": "eu"}
	})
	e.created(st)
	check := func(how string, got store.SagaInstance) {
		e.t.Helper()
		want := store.SagaInstance{
			SagaIdentity: st.SagaIdentity, SagaCondition: st.SagaCondition, SagaTimes: st.SagaTimes, SagaBody: st.SagaBody,
			Token: st.Token, HoldsKey: true, Rev: 1, Age: got.Age, StartedAt: got.StartedAt, UpdatedAt: got.StartedAt,
		}
		if !reflect.DeepEqual(got, want) {
			e.t.Errorf("%s:\n got %+v\nwant %+v", how, got, want)
		}
		e.wantNear("age", got.Age, 0, time.Since(began))
		e.wantNear("time since the start", time.Since(got.StartedAt), 0, time.Since(began))
	}
	e.inTx(func(tx Tx) { check("loaded", e.load(tx, st.Run)) })
	check("shown by ID", e.show("a"))
	check("shown by run", e.show(st.Run))
	if aliases, labels, err := e.sagas.SagaNames(e.ctx, st.Run); err != nil || len(aliases) > 0 || !reflect.DeepEqual(labels, st.Labels) {
		e.t.Errorf("aliases %v, labels %v, %v", aliases, labels, err)
	}
}

// sagaVersion: one instance gets another version, and nothing else changes.
func sagaVersion[Tx any](e *sagaEnv[Tx]) {
	run, other := e.created(e.start("a")), e.created(e.start("b"))
	before := e.show(run)
	e.inTx(func(tx Tx) {
		e.load(tx, run)
		e.must(e.sagas.SetSagaVersion(e.ctx, tx, run, 2, "h2"), "set the version")
		if got := e.load(tx, run); got.Version != 2 {
			e.t.Errorf("version %d in the transaction, want 2", got.Version)
		}
	})
	got := e.show(run)
	want := before
	want.Version, want.Hash, want.Age = 2, "h2", got.Age
	if !reflect.DeepEqual(got, want) {
		e.t.Errorf("got %+v, want %+v", got, want)
	}
	if in := e.show(other); in.Version != 1 || in.Hash != "h1" {
		e.t.Errorf("the other instance has version %d %s", in.Version, in.Hash)
	}
	e.inTx(func(tx Tx) { e.must(e.sagas.SetSagaVersion(e.ctx, tx, run, 2, "h2"), "set the version") }) // again
	tx := e.begin()
	defer e.rollback(tx)
	if err := e.sagas.SetSagaVersion(e.ctx, tx, "run-of-nobody", 2, "h2"); !errors.Is(err, store.ErrNoSaga) {
		e.t.Errorf("an unknown run: %v, want %v", err, store.ErrNoSaga)
	}
}

func sagaNextRev[Tx any](e *sagaEnv[Tx]) {
	run := e.created(e.start("a"))
	e.move(run)
	loaded := e.show("a")
	for _, rev := range []int64{0, loaded.Rev - 1, loaded.Rev, loaded.Rev + 2} {
		c := next(loaded)
		c.Rev = rev
		e.refuseSave(fmt.Sprint("revision ", rev), c)
	}
	idle := next(loaded)
	idle.Rev, idle.Transitions = loaded.Rev, nil
	e.refuseSave("no transition", idle)
	none := next(loaded)
	none.Run = "run-none"
	e.refuseSave("a run that does not exist", none)
	e.refuseSave("one of two", next(loaded), none)
	if got := e.show("a"); got.Rev != 2 || len(e.history(run)) != 2 {
		e.t.Errorf("revision %d with %d transitions, want 2", got.Rev, len(e.history(run)))
	}
	e.inTx(func(tx Tx) { e.save(tx) })
}

func (e *sagaEnv[Tx]) refuseSave(why string, changes ...store.SagaChange) {
	e.t.Helper()
	tx := e.begin()
	if err := e.sagas.SaveSagas(e.ctx, tx, changes); !errors.Is(err, store.ErrSagaMoved) {
		e.t.Errorf("save, %s: %v, want ErrSagaMoved", why, err)
	}
	e.rollback(tx)
}

func sagaSeveral[Tx any](e *sagaEnv[Tx]) {
	a, b := e.created(e.start("a")), e.created(e.start("b"))
	e.inTx(func(tx Tx) {
		one, two := next(e.load(tx, a)), next(e.load(tx, b))
		two.Transitions = append(two.Transitions, store.SagaTransition{Input: "timer"}, store.SagaTransition{Input: "signal"})
		two.Rev += 2
		two.Labels = map[string]string{"customer": "1"}
		e.save(tx, two, one)
		if got := e.load(tx, b); got.Rev != 4 || got.Waiting != two.Waiting {
			e.t.Errorf("in the transaction: %+v, want revision 4", got)
		}
		e.moveIn(tx, b, func(c *store.SagaChange) { c.Labels = map[string]string{"customer": "", "region": "eu"} })
	})
	if got := e.show("a"); got.Rev != 2 {
		e.t.Errorf("a has revision %d, want 2", got.Rev)
	}
	var inputs []string
	for i, t := range e.history(b) {
		if t.Rev != int64(i+1) {
			e.t.Errorf("transition %d has revision %d", i, t.Rev)
		}
		inputs = append(inputs, t.Input)
	}
	e.wantIDs("inputs", inputs, []string{"start", "reply", "timer", "signal", "reply"})
	if _, labels, err := e.sagas.SagaNames(e.ctx, b); err != nil || !reflect.DeepEqual(labels, map[string]string{"region": "eu"}) {
		e.t.Errorf("labels %v, %v", labels, err)
	}
}

func sagaHistory[Tx any](e *sagaEnv[Tx]) {
	began := time.Now()
	want := []store.SagaTransition{
		{Input: "start", Patch: []byte(`[{"p":"","n":{"total":1}}]`), Entries: []store.SagaEntry{{Name: "step.started", Step: "reserve[SKU-1]/line"}}},
		{
			Input: "reply", Step: "reserve[SKU-1]/line", MessageID: "m-1",
			Entries: []store.SagaEntry{{Name: "step.done", Step: "reserve[SKU-1]/line", Text: `"quoted" 'text' \ ü`}, {Name: "timer.set"}},
		},
		{Input: "operator", Actor: "olga", Note: "by hand; see ticket 'X\\1'", Patch: []byte{0, 1, 0xff, '\\', '\''}},
		{Input: "timer"},
	}
	run := e.created(e.start("a", func(st *store.SagaStart) { st.Transition = want[0] }))
	e.move(run, func(c *store.SagaChange) { c.Transitions = want[1:2] })
	e.move(run, func(c *store.SagaChange) { c.Rev, c.Transitions = c.Rev+1, want[2:] })
	got := e.history(run)
	for i := range got {
		e.wantNear("time since the transition", time.Since(got[i].At), 0, time.Since(began))
		if i > 0 && got[i].At.Before(got[i-1].At) {
			e.t.Errorf("transition %d is at %s, before %s", i, got[i].At, got[i-1].At)
		}
		if i < len(want) {
			want[i].Rev, want[i].At = int64(i+1), got[i].At
		}
		if len(got[i].Patch) == 0 {
			got[i].Patch = nil
		}
	}
	if !reflect.DeepEqual(got, want) {
		e.t.Errorf("history:\n got %+v\nwant %+v", got, want)
	}
	page, err := e.sagas.SagaHistory(e.ctx, run, 1, 2)
	if err != nil || len(page) != 2 || page[0].Rev != 2 || page[1].Rev != 3 {
		e.t.Errorf("two after revision 1: %+v, %v", page, err)
	}
	if page, err = e.sagas.SagaHistory(e.ctx, "run-none", 0, 2); len(page) > 0 || err != nil {
		e.t.Errorf("history of no run: %+v, %v", page, err)
	}
}

// sagaBytes: numbers keep their digits, nulls are kept, and an encrypting codec can write anything.
func sagaBytes[Tx any](e *sagaEnv[Tx]) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := bytes.Repeat(every, 1<<10) // 256 KiB
	st := e.start("a")
	st.State, st.Data = every, []byte(`{ "n": 12345678901234567890.10, "x": null,"y":"\u0000" }`)
	st.Transition.Patch = st.Data
	e.created(st)
	e.move(st.Run, func(c *store.SagaChange) { c.State, c.Data, c.Transitions[0].Patch = []byte{}, large, every })
	if got := e.history(st.Run)[0].Patch; !bytes.Equal(got, st.Data) {
		e.t.Errorf("first patch %q", got)
	}
	if got := e.history(st.Run)[1].Patch; !bytes.Equal(got, every) {
		e.t.Errorf("second patch %q", got)
	}
	if got := e.show("a"); len(got.State) > 0 || !bytes.Equal(got.Data, large) {
		e.t.Errorf("state of %d bytes, data of %d bytes", len(got.State), len(got.Data))
	}
	e.move(st.Run, func(c *store.SagaChange) { c.State, c.Data = st.State, st.Data })
	e.inTx(func(tx Tx) {
		if got := e.load(tx, st.Run); !bytes.Equal(got.State, st.State) || !bytes.Equal(got.Data, st.Data) {
			e.t.Errorf("state %q, data %q", got.State, got.Data)
		}
	})
}

func sagaStatusTimes[Tx any](e *sagaEnv[Tx]) {
	run := e.created(e.start("a"))
	var stuck, ended time.Time
	for _, status := range []store.SagaStatus{
		store.SagaRunning, store.SagaStuck, store.SagaStuck, store.SagaCompensating, store.SagaStuck, store.SagaCompensated, store.SagaCompensated,
		store.SagaCompensating, store.SagaCompleted, store.SagaAbandoned,
	} {
		before := e.show("a")
		e.clockMoves(time.Millisecond)
		e.move(run, to(status))
		got := e.show("a")
		stuck, ended = got.StuckAt, got.EndedAt
		if stuck.IsZero() == (status == store.SagaStuck) || ended.IsZero() == status.Ended() {
			e.t.Errorf("%s: stuck at %s, ended at %s", status, stuck, ended)
		}
		if !stuck.IsZero() && !before.StuckAt.IsZero() && !stuck.Equal(before.StuckAt) {
			e.t.Errorf("still %s, stuck since %s, before %s", status, stuck, before.StuckAt)
		}
		if !ended.IsZero() && !before.EndedAt.IsZero() && !ended.Equal(before.EndedAt) {
			e.t.Errorf("still %s, ended at %s, before %s", status, ended, before.EndedAt)
		}
		if !got.UpdatedAt.After(before.UpdatedAt) || !got.StartedAt.Equal(before.StartedAt) {
			e.t.Errorf("updated at %s, before %s; started at %s, before %s", got.UpdatedAt, before.UpdatedAt, got.StartedAt, before.StartedAt)
		}
	}
}

func sagaLongTexts[Tx any](e *sagaEnv[Tx]) {
	long := strings.Repeat("ü", 2500) + "\x00\xff"
	want := strings.Repeat("ü", 2000)
	run := e.created(e.start("a", func(st *store.SagaStart) { st.Detail, st.Waiting, st.Transition.Note = long, long, long }))
	check := func() {
		e.t.Helper()
		got := e.show("a")
		for name, text := range map[string]string{"detail": got.Detail, "waiting": got.Waiting, "note": e.history(run)[got.Rev-1].Note} {
			if text != want {
				e.t.Errorf("%s of %d bytes, want %d", name, len(text), len(want))
			}
		}
	}
	check()
	e.move(run, func(c *store.SagaChange) { c.Detail, c.Waiting, c.Transitions[0].Note = long, long, long })
	check()
}

func sagaLoadOrder[Tx any](e *sagaEnv[Tx]) {
	a, b := e.created(e.start("a")), e.created(e.start("b"))
	e.created(e.start("c"))
	e.inTx(func(tx Tx) {
		found, err := e.sagas.LoadSagas(e.ctx, tx, []string{b, "run-none", a, b})
		e.must(err, "load")
		if len(found) != 2 || found[0].Run != a || found[1].Run != b {
			e.t.Errorf("loaded %+v, want a and b", found)
		}
		found, err = e.sagas.LoadSagas(e.ctx, tx, nil)
		if len(found) > 0 || err != nil {
			e.t.Errorf("loaded %+v, %v; want none", found, err)
		}
	})
}

func sagaLoadWaits[Tx any](e *sagaEnv[Tx]) {
	run := e.created(e.start("a"))
	for i, end := range []func(Tx){e.commit, e.rollback} {
		one, two := e.begin(), e.begin()
		e.moveIn(one, run)
		var got []store.SagaInstance
		e.waits("load", func() (err error) {
			got, err = e.sagas.LoadSagas(e.ctx, two, []string{run})
			return err
		}, func() { end(one) })
		if len(got) != 1 || got[0].Rev != 2 {
			e.t.Errorf("load %d: %+v, want revision 2", i, got)
		}
		e.rollback(two)
	}
}

// sagaLoadLocks: loads in opposite orders wait for each other, but never in a circle, and no transition is lost.
func sagaLoadLocks[Tx any](e *sagaEnv[Tx]) {
	const instances, callers = 100, 4
	each := e.amount(250)
	var runs []string
	for i := range instances {
		runs = append(runs, e.created(e.start(fmt.Sprint("i", i))))
	}
	errs := make(chan error, callers)
	for c := range callers {
		order := slices.Clone(runs)
		if c%2 == 0 {
			slices.Reverse(order)
		}
		go func() { errs <- e.loadAndSave(order, each) }()
	}
	for range callers {
		e.must(<-errs, "load and save")
	}
	if got := e.show("i0"); got.Rev != int64(1+callers*each) {
		e.t.Errorf("revision %d, want %d", got.Rev, 1+callers*each)
	}
}

// loadAndSave loads all instances n times, and makes a transition of the one that comes first.
func (e *sagaEnv[Tx]) loadAndSave(runs []string, n int) error {
	for range n {
		tx, err := e.store.Begin(e.ctx)
		if err != nil {
			return err
		}
		found, err := e.sagas.LoadSagas(e.ctx, tx, runs)
		if err == nil {
			err = e.sagas.SaveSagas(e.ctx, tx, []store.SagaChange{next(found[0])})
		}
		if err == nil {
			err = e.store.Commit(e.ctx, tx)
		}
		if err != nil {
			return errors.Join(err, e.store.Rollback(e.ctx, tx))
		}
	}
	return nil
}
