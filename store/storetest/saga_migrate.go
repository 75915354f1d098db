package storetest

import (
	"reflect"
	"testing"

	"github.com/postrider/postrider/store"
)

// MigrateSagas tests the migration that adds sagas, with data in both directions: down migrates the database of a store to the
// version before it, up to the newest.
func MigrateSagas[Tx any](t *testing.T, f Features, h Harness[Tx], down, up func(t testing.TB, s Store[Tx])) {
	s := newSuite(f, h)
	s.run(t, sagaTest[Tx]{run: func(e *sagaEnv[Tx]) {
		old := e.database.(*erased[Tx]).Store
		e.fillKinds()
		before := e.describeKinds()
		e.created(e.start("a", keyed("k"), func(st *store.SagaStart) {
			st.Aliases, st.Labels = []store.SagaAlias{{Name: "payment", Value: "1"}}, map[string]string{"customer": "42"}
		}))
		e.record("p", store.SagaRecord{SagaStep: store.SagaStep{Run: "run-1", Step: "a"}, State: store.SagaStepDone})
		down(e.t, old)
		up(e.t, old)
		e.renew()
		e.sagas = any(e.store).(SagaStore[Tx])
		e.wantIDs("everything else", e.describeKinds(), before)
		e.wantGone("a")
		run := e.created(e.start("a", keyed("k")))
		e.move(run)
		e.wantIDs("instances", e.listed(store.SagaFilter{}), []string{"a"})
		e.inTx(func(tx Tx) {
			if got := e.lock(tx, "p", store.SagaStep{Run: "run-1", Step: "a"}); got[0].State != store.SagaStepNone {
				e.t.Errorf("record after the way down and up: %+v", got[0])
			}
		})
	}}.erase())
}

// MigrateSagaRecords tests the migration that adds the schema version of a record's command: down migrates the database of a store to the
// version before it, up to the newest. old saves a record of participant p as programs of that version do, whether it exists or not: step a of
// a run, done, with the command "old" of type t.
func MigrateSagaRecords[Tx any](t *testing.T, f Features, h Harness[Tx], down, up func(t testing.TB, s Store[Tx]), old func(t testing.TB, s Store[Tx], run string)) {
	s := newSuite(f, h)
	s.run(t, sagaTest[Tx]{run: func(e *sagaEnv[Tx]) {
		opened := e.database.(*erased[Tx]).Store
		step := func(run string) store.SagaStep { return store.SagaStep{Run: run, Step: "a"} }
		read := func(run string) (r store.SagaRecord) {
			e.inTx(func(tx Tx) { r = e.lock(tx, "p", step(run))[0] })
			return r
		}
		e.record("p", store.SagaRecord{SagaStep: step("1"), State: store.SagaStepDone, CommandType: "t", Command: []byte("c"), Reply: []byte("r"), SchemaVersion: 3})
		want := read("1")
		down(e.t, opened)
		old(e.t, opened, "2")
		up(e.t, opened)
		e.renew()
		e.sagas = any(e.store).(SagaStore[Tx])
		want.SchemaVersion = 0
		if got := read("1"); !reflect.DeepEqual(got, want) {
			e.t.Errorf("a record from before:\n got %+v\nwant %+v", got, want)
		}
		old(e.t, opened, "3") // a program that still runs
		for _, run := range []string{"2", "3"} {
			r := read(run)
			if r.State != store.SagaStepDone || r.CommandType != "t" || string(r.Command) != "old" || r.SchemaVersion != 0 {
				e.t.Errorf("the record of an older program: %+v", r)
			}
			r.SchemaVersion = 2
			e.record("p", r)
			if got := read(run).SchemaVersion; got != 2 {
				e.t.Errorf("saved with version 2, the record has version %d", got)
			}
		}
		old(e.t, opened, "3")
		if r := read("3"); string(r.Command) != "old" {
			e.t.Errorf("the record that an older program changed: %+v", r)
		}
	}}.erase())
}
