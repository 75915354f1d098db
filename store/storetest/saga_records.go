package storetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

func sagaRecordTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "RecordIsWhatWasSaved", run: sagaRecordSaved[Tx]},
		{name: "RecordOfNoStateIsRemoved", run: sagaRecordRemoved[Tx], statements: true},
		{name: "RecordSurvivesRollbackAsItWas", run: sagaRecordRollback[Tx]},
		{name: "RecordIsLockedAlsoWhenNew", run: sagaRecordLocked[Tx], late: true},
		{name: "RecordsAreLockedInOneOrder", run: sagaRecordOrder[Tx], late: true},
		{name: "ClosedRunIsPurged", run: sagaRecordPurge[Tx]},
		{name: "PurgeOfRecordsIsLimited", run: sagaRecordPurgeLimit[Tx]},
	}
}

func (e *sagaEnv[Tx]) lock(tx Tx, participant string, steps ...store.SagaStep) []store.SagaRecord {
	e.t.Helper()
	records, now, err := e.sagas.LockSagaRecords(e.ctx, tx, participant, steps)
	e.must(err, "lock records")
	if len(records) != len(steps) {
		e.t.Fatalf("%d records for %d steps", len(records), len(steps))
	}
	if len(steps) > 0 {
		e.wantNear("the database's time", time.Since(now), 0, 0)
	}
	return records
}

// record saves a record in a transaction of its own.
func (e *sagaEnv[Tx]) record(participant string, records ...store.SagaRecord) {
	e.t.Helper()
	e.inTx(func(tx Tx) {
		for _, r := range records {
			e.lock(tx, participant, r.SagaStep)
		}
		e.must(e.sagas.SaveSagaRecords(e.ctx, tx, participant, records), "save records")
	})
}

func sagaRecordSaved[Tx any](e *sagaEnv[Tx]) {
	began := time.Now()
	want := store.SagaRecord{
		SagaStep: store.SagaStep{Run: "run-1", Step: "reserve[SKU-1]/line#2"}, State: store.SagaStepDone,
		CommandType: "stock.reserve", Command: []byte{0, 0xff, '\''}, ReplyType: "stock.reserved", Reply: []byte(`{"n":1.10}`),
		SchemaVersion: math.MaxInt32,
		FirstSentAt:   time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	refused := store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "charge"}, State: store.SagaStepRefused}
	e.inTx(func(tx Tx) {
		got := e.lock(tx, "inventory", want.SagaStep, refused.SagaStep, want.SagaStep)
		for i, step := range []store.SagaStep{want.SagaStep, refused.SagaStep, want.SagaStep} {
			if !reflect.DeepEqual(got[i], store.SagaRecord{SagaStep: step}) {
				e.t.Errorf("record %d before: %+v", i, got[i])
			}
		}
		if len(e.lock(tx, "inventory")) > 0 {
			e.t.Error("records for no steps")
		}
		e.must(e.sagas.SaveSagaRecords(e.ctx, tx, "inventory", []store.SagaRecord{want, refused}), "save")
		e.must(e.sagas.SaveSagaRecords(e.ctx, tx, "inventory", nil), "save none")
	})
	e.inTx(func(tx Tx) {
		got := e.lock(tx, "inventory", refused.SagaStep, want.SagaStep)
		e.wantNear("time since it was saved", time.Since(got[1].SavedAt), 0, time.Since(began))
		want.SavedAt = got[1].SavedAt
		if !reflect.DeepEqual(got[1], want) {
			e.t.Errorf("record:\n got %+v\nwant %+v", got[1], want)
		}
		if got[0].State != store.SagaStepRefused || len(got[0].Reply) > 0 || !got[0].FirstSentAt.IsZero() {
			e.t.Errorf("record: %+v", got[0])
		}
		other := e.lock(tx, "payments", want.SagaStep, store.SagaStep{Run: "run-2", Step: want.Step})
		if other[0].State != store.SagaStepNone || other[1].State != store.SagaStepNone {
			e.t.Errorf("records of another participant and another run: %+v", other)
		}
		want.State, want.Reply, want.SchemaVersion = store.SagaStepUndone, nil, 2
		e.must(e.sagas.SaveSagaRecords(e.ctx, tx, "inventory", []store.SagaRecord{want}), "save again")
		if got = e.lock(tx, "inventory", want.SagaStep); got[0].State != store.SagaStepUndone || len(got[0].Reply) > 0 || got[0].SchemaVersion != 2 {
			e.t.Errorf("in the transaction: %+v", got[0])
		}
	})
}

func sagaRecordRemoved[Tx any](e *sagaEnv[Tx]) {
	old := store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "old"}, State: store.SagaStepDone, Reply: []byte("x")}
	fresh := store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "new"}}
	e.record("p", old, fresh)
	e.purgeRecords("p", 0, 10, 0)
	e.inTx(func(tx Tx) {
		old.State = store.SagaStepNone
		e.must(e.sagas.SaveSagaRecords(e.ctx, tx, "p", []store.SagaRecord{old}), "save")
		e.must(e.sagas.CloseSagaRuns(e.ctx, tx, "p", []string{"run-1"}), "close")
		if got := e.lock(tx, "p", old.SagaStep); !reflect.DeepEqual(got[0], store.SagaRecord{SagaStep: old.SagaStep}) {
			e.t.Errorf("in the transaction: %+v", got[0])
		}
	})
	e.inTx(func(tx Tx) {
		for _, got := range e.lock(tx, "p", old.SagaStep, fresh.SagaStep) {
			if !reflect.DeepEqual(got, store.SagaRecord{SagaStep: got.SagaStep}) {
				e.t.Errorf("afterwards: %+v", got)
			}
		}
	})
}

func sagaRecordRollback[Tx any](e *sagaEnv[Tx]) {
	a, b := store.SagaStep{Run: "run-1", Step: "a"}, store.SagaStep{Run: "run-1", Step: "b"}
	e.record("p", store.SagaRecord{SagaStep: a, State: store.SagaStepDone, Reply: []byte("x")})
	tx := e.begin()
	e.lock(tx, "p", a, b)
	e.must(e.sagas.SaveSagaRecords(e.ctx, tx, "p", []store.SagaRecord{{SagaStep: a, State: store.SagaStepUndone}, {SagaStep: b, State: store.SagaStepBlocked}}), "save")
	e.must(e.sagas.CloseSagaRuns(e.ctx, tx, "p", []string{"run-1"}), "close")
	e.rollback(tx)
	e.inTx(func(tx Tx) {
		got := e.lock(tx, "p", a, b)
		if got[0].State != store.SagaStepDone || string(got[0].Reply) != "x" || got[0].Closed || got[1].State != store.SagaStepNone {
			e.t.Errorf("after the rollback: %+v", got)
		}
	})
}

func sagaRecordLocked[Tx any](e *sagaEnv[Tx]) {
	step := store.SagaStep{Run: "run-1", Step: "a"}
	for i, want := range []store.SagaStepState{store.SagaStepDone, store.SagaStepUndone} {
		one, two := e.begin(), e.begin()
		e.lock(one, "p", step)
		var got []store.SagaRecord
		e.waits(fmt.Sprint("lock ", i), func() (err error) {
			got, _, err = e.sagas.LockSagaRecords(e.ctx, two, "p", []store.SagaStep{step})
			return err
		}, func() {
			e.must(e.sagas.SaveSagaRecords(e.ctx, one, "p", []store.SagaRecord{{SagaStep: step, State: want}}), "save")
			e.commit(one)
		})
		if got[0].State != want {
			e.t.Errorf("state %q after the wait, want %q", got[0].State, want)
		}
		e.commit(two)
	}
	one, two := e.begin(), e.begin()
	fresh := store.SagaStep{Run: "run-2", Step: "a"}
	e.lock(one, "p", fresh)
	var got []store.SagaRecord
	e.waits("lock before a rollback", func() (err error) {
		got, _, err = e.sagas.LockSagaRecords(e.ctx, two, "p", []store.SagaStep{fresh})
		return err
	}, func() { e.rollback(one) })
	if got[0].State != store.SagaStepNone {
		e.t.Errorf("state %q after a rollback", got[0].State)
	}
	e.commit(two)
}

func sagaRecordOrder[Tx any](e *sagaEnv[Tx]) {
	const callers = 4
	errs := make(chan error, callers)
	for c := range callers {
		go func() { errs <- e.lockOften(c, e.amount(50)) }()
	}
	for range callers {
		e.must(<-errs, "lock")
	}
}

// lockOften locks the records of 20 steps n times, in one order or the opposite one; each time half of them are new.
func (e *sagaEnv[Tx]) lockOften(caller, n int) error {
	for i := range n {
		var steps []store.SagaStep
		for s := range 20 {
			steps = append(steps, store.SagaStep{Run: fmt.Sprint("run-", s%2*i), Step: fmt.Sprint("s", s)})
		}
		if caller%2 == 0 {
			slices.Reverse(steps)
		}
		tx, err := e.store.Begin(e.ctx)
		if err != nil {
			return err
		}
		if _, _, err = e.sagas.LockSagaRecords(e.ctx, tx, "p", steps); err == nil {
			err = e.store.Commit(e.ctx, tx)
		}
		if err != nil {
			return errors.Join(err, e.store.Rollback(e.ctx, tx))
		}
	}
	return nil
}

func (e *sagaEnv[Tx]) purgeRecords(participant string, savedFor time.Duration, limit, want int) {
	e.t.Helper()
	n, err := e.sagas.PurgeSagaRecords(e.ctx, participant, savedFor, limit)
	e.must(err, "purge records")
	if n != want {
		e.t.Errorf("purged %d records, want %d", n, want)
	}
}

func sagaRecordPurge[Tx any](e *sagaEnv[Tx]) {
	done := func(run string) store.SagaRecord {
		return store.SagaRecord{SagaStep: store.SagaStep{Run: run, Step: "a"}, State: store.SagaStepDone}
	}
	refused := store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "b"}, State: store.SagaStepRefused}
	e.record("p", done("run-1"), done("run-2"), refused)
	e.record("q", done("run-1"))
	e.inTx(func(tx Tx) {
		e.must(e.sagas.CloseSagaRuns(e.ctx, tx, "p", []string{"run-1", "run-none"}), "close")
		e.must(e.sagas.CloseSagaRuns(e.ctx, tx, "p", nil), "close none")
		if got := e.lock(tx, "p", done("run-1").SagaStep); !got[0].Closed {
			e.t.Error("the record is not closed")
		}
	})
	e.purgeRecords("p", time.Hour, 10, 0)
	e.elapse(2 * shortTTL)
	elapsed := time.Now()
	e.record("p", store.SagaRecord{SagaStep: store.SagaStep{Run: "run-3", Step: "a"}, State: store.SagaStepUndone})
	e.purgeRecords("none", 0, 10, 0)
	e.purgeRecords("p", time.Since(elapsed)+shortTTL, 10, 2) // older than that one can be, however slow the test is
	e.inTx(func(tx Tx) {
		for participant, want := range map[string][]store.SagaStepState{"p": {"", "done", ""}, "q": {"done", "", ""}} {
			for i, r := range e.lock(tx, participant, done("run-1").SagaStep, done("run-2").SagaStep, refused.SagaStep) {
				if r.State != want[i] {
					e.t.Errorf("record %d of %s is %q, want %q", i, participant, r.State, want[i])
				}
			}
		}
		e.must(e.sagas.CloseSagaRuns(e.ctx, tx, "p", []string{"run-2"}), "close later")
	})
	e.purgeRecords("p", time.Since(elapsed)+shortTTL, 10, 1)
}

func sagaRecordPurgeLimit[Tx any](e *sagaEnv[Tx]) {
	for i := range 3 { // these are kept, and are older
		e.record("p", store.SagaRecord{SagaStep: store.SagaStep{Run: fmt.Sprint("open-", i), Step: "a"}, State: store.SagaStepDone})
	}
	for i := range 5 {
		e.record("p", store.SagaRecord{SagaStep: store.SagaStep{Run: fmt.Sprint("run-", i), Step: "a"}, State: store.SagaStepUndone})
	}
	for _, want := range []int{2, 2, 1, 0} {
		e.purgeRecords("p", 0, 2, want)
	}
}

func sagaDefinitionTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "ReportsSayWhoHasWhat", run: sagaReports[Tx], statements: true},
		{name: "ReportsExpire", run: sagaReportsExpire[Tx]},
	}
}

func (e *sagaEnv[Tx]) report(process string, ttl time.Duration, definitions ...store.SagaDefinition) {
	e.t.Helper()
	e.must(e.sagas.ReportSagas(e.ctx, "shop", process, definitions, ttl), "report")
}

// definitions describes the stored definitions and who has them.
func (e *sagaEnv[Tx]) definitions() (out []string) {
	e.t.Helper()
	all, err := e.sagas.SagaDefinitions(e.ctx)
	e.must(err, "definitions")
	for _, d := range all {
		e.wantNear("time since it was first seen", time.Since(d.FirstSeen), 0, time.Minute)
		text := fmt.Sprint(d.Saga, " v", d.Version, " ", d.Hash, " ", string(d.Graph))
		for _, p := range d.Processes {
			e.wantNear("time since the report", p.Seen, 0, time.Minute)
			text += " " + p.Engine + "/" + p.Process
		}
		out = append(out, text)
	}
	return out
}

func sagaReports[Tx any](e *sagaEnv[Tx]) {
	v1 := store.SagaDefinition{Saga: "order", Version: 1, Hash: "h1", Graph: []byte(`{"x":1}`)}
	v2 := store.SagaDefinition{Saga: "order", Version: 2, Hash: "h2", Graph: []byte("g2")}
	v10 := store.SagaDefinition{Saga: "order", Version: 10, Hash: "h2", Graph: []byte("g10")}
	refund := store.SagaDefinition{Saga: "refund", Version: 1, Hash: "h1", Graph: []byte("r1")}
	e.wantIDs("at first", e.definitions(), nil)
	e.report("b", time.Hour, v2, v1, refund)
	e.report("a", time.Hour, v10, v1)
	changed := v1
	changed.Graph = []byte("another graph of the same hash")
	e.report("a", time.Hour, v10, changed)
	e.wantIDs("definitions", e.definitions(), []string{
		`order v1 h1 {"x":1} shop/a shop/b`, "order v2 h2 g2 shop/b", "order v10 h2 g10 shop/a", "refund v1 h1 r1 shop/b",
	})
	redefined := v1
	redefined.Hash = "h1b"
	e.report("b", time.Hour, redefined)
	e.report("a", time.Hour)
	e.wantIDs("later", e.definitions(), []string{
		`order v1 h1 {"x":1}`, `order v1 h1b {"x":1} shop/b`, "order v2 h2 g2", "order v10 h2 g10", "refund v1 h1 r1",
	})
}

func sagaReportsExpire[Tx any](e *sagaEnv[Tx]) {
	v1 := store.SagaDefinition{Saga: "order", Version: 1, Hash: "h1", Graph: []byte("g")}
	e.report("a", time.Millisecond, v1)
	e.report("b", time.Hour, v1)
	e.clockMoves(10 * time.Millisecond)
	e.until("the report expires", func() bool { return slices.Equal(e.definitions(), []string{"order v1 h1 g shop/b"}) })
	e.report("c", time.Hour, v1)
	e.wantIDs("definitions", e.definitions(), []string{"order v1 h1 g shop/b shop/c"})
}
