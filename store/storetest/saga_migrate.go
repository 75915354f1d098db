package storetest

import (
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
