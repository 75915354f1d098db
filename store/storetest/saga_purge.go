package storetest

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

func sagaPurgeTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "PurgeTakesOnlyTheEnded", run: sagaPurgeEnded[Tx]},
		{name: "PurgeLeavesOtherEngines", run: sagaPurgeEngines[Tx]},
		{name: "PurgeIsOldestFirstAndLimited", run: sagaPurgeLimit[Tx]},
		{name: "PurgeSelectsRootsWithTheirChildren", run: sagaPurgeRoots[Tx]},
		{name: "StuckAndAbandonedAreNeverPurged", run: sagaPurgeStuck[Tx]},
		{name: "PurgeTakesHistoryAliasesAndLabels", run: sagaPurgeNames[Tx], statements: true},
		{name: "PurgeLeavesLockedInstances", run: sagaPurgeLocked[Tx], late: true, statements: true},
	}
}

func (e *sagaEnv[Tx]) purge(endedFor time.Duration, limit, want int) {
	e.t.Helper()
	n, err := e.sagas.PurgeSagas(e.ctx, "shop", endedFor, limit)
	e.must(err, "purge")
	if n != want {
		e.t.Errorf("purged %d instances, want %d", n, want)
	}
}

func sagaPurgeEnded[Tx any](e *sagaEnv[Tx]) {
	e.created(e.start("running"), e.start("compensating", func(st *store.SagaStart) { st.Status = store.SagaCompensating }))
	completed, compensated, reopened := e.created(e.start("completed")), e.created(e.start("compensated")), e.created(e.start("reopened"))
	e.move(completed, to(store.SagaCompleted))
	e.move(compensated, to(store.SagaCompensated))
	e.move(reopened, to(store.SagaCompensated))
	e.move(reopened, to(store.SagaCompensating))
	e.purge(time.Hour, 10, 0)
	e.elapse(20 * time.Millisecond)
	e.purge(10*time.Millisecond, 10, 2)
	e.wantGone("completed", "compensated")
	e.wantIDs("left", e.listed(store.SagaFilter{}), []string{"running", "compensating", "reopened"})
	e.purge(0, 10, 0)
}

// sagaPurgeEngines: an engine that keeps its instances for longer, or for good, does not lose them to another one.
func sagaPurgeEngines[Tx any](e *sagaEnv[Tx]) {
	own, others := e.created(e.start("own")), e.created(e.start("of another engine", func(st *store.SagaStart) { st.Engine = "billing" }))
	e.move(own, to(store.SagaCompleted))
	e.move(others, to(store.SagaCompleted))
	e.purge(0, 10, 1)
	e.wantIDs("left", e.listed(store.SagaFilter{}), []string{"of another engine"})
}

func sagaPurgeLimit[Tx any](e *sagaEnv[Tx]) {
	var runs []string
	for i := range 5 {
		runs = append(runs, e.created(e.start(fmt.Sprint("i", i))))
	}
	for _, i := range []int{3, 1, 4, 0, 2} {
		e.move(runs[i], to(store.SagaCompleted))
		e.clockMoves(time.Millisecond)
	}
	e.purge(0, 2, 2)
	e.wantIDs("left", e.listed(store.SagaFilter{}), []string{"i0", "i2", "i4"})
	e.purge(0, 2, 2)
	e.purge(0, 2, 1)
	e.purge(0, 2, 0)
}

func sagaPurgeRoots[Tx any](e *sagaEnv[Tx]) {
	root := e.created(e.start("root"))
	child := e.created(e.start("child", childOf(root)))
	grandchild := e.created(e.start("grandchild", childOf(child)))
	orphan := e.created(e.start("child of none", childOf("run-none")))
	e.move(child, to(store.SagaCompensated))
	e.move(orphan, to(store.SagaCompleted))
	e.purge(0, 10, 0) // a child without its root
	e.move(root, to(store.SagaCompleted))
	e.purge(0, 10, 0) // a root whose grandchild is running
	e.move(grandchild, to(store.SagaAbandoned))
	e.purge(0, 10, 0)
	e.move(grandchild, to(store.SagaCompleted))
	other := e.created(e.start("other"))
	e.move(other, to(store.SagaCompleted))
	e.purge(0, 1, 1)
	e.wantGone("root", "child", "grandchild")
	e.wantIDs("left", e.listed(store.SagaFilter{}), []string{"child of none", "other"})
}

func sagaPurgeStuck[Tx any](e *sagaEnv[Tx]) {
	run := e.created(e.start("a"))
	e.move(run, to(store.SagaCompleted))
	e.move(run, to(store.SagaStuck))
	e.purge(0, 10, 0)
	e.move(run, to(store.SagaAbandoned))
	e.purge(0, 10, 0)
	e.move(run, to(store.SagaCompensated)) // an operator settled what was open
	e.purge(0, 10, 1)
}

func sagaPurgeNames[Tx any](e *sagaEnv[Tx]) {
	alias := store.SagaAlias{Name: "payment", Value: "p-1"}
	named := func(st *store.SagaStart) {
		st.Aliases, st.Labels = []store.SagaAlias{alias}, map[string]string{"customer": "42"}
	}
	old := e.created(e.start("a", keyed("k"), named))
	e.move(old)
	e.move(old, to(store.SagaCompleted))
	e.purge(0, 10, 1)
	if aliases, labels, err := e.sagas.SagaNames(e.ctx, old); len(aliases) > 0 || len(labels) > 0 || err != nil {
		e.t.Errorf("names after the purge: %v, %v, %v", aliases, labels, err)
	}
	if h := e.history(old); len(h) > 0 {
		e.t.Errorf("history after the purge: %+v", h)
	}
	again := e.created(e.start("a", keyed("k"), named))
	e.inTx(func(tx Tx) {
		e.wantIDs("alias", e.find(tx, store.SagaLookup{Saga: "order", Alias: alias}), []string{again})
		if found, err := e.sagas.LoadSagas(e.ctx, tx, []string{old}); len(found) > 0 || err != nil {
			e.t.Errorf("the purged run: %+v, %v", found, err)
		}
	})
	e.wantIDs("label", e.listed(store.SagaFilter{Labels: map[string]string{"customer": "42"}}), []string{"a"})
	if h := e.history(again); len(h) != 1 {
		e.t.Errorf("history of the new instance: %+v", h)
	}
}

func sagaPurgeLocked[Tx any](e *sagaEnv[Tx]) {
	a, b := e.created(e.start("a")), e.created(e.start("b"))
	child := e.created(e.start("child", childOf(b)))
	for _, run := range []string{a, b, child} {
		e.move(run, to(store.SagaCompleted))
	}
	tx := e.begin()
	e.moveIn(tx, a, to(store.SagaCompensating))
	e.load(tx, child)
	e.purge(0, 10, 0)
	e.commit(tx)
	e.purge(0, 10, 1)
	e.wantIDs("left", e.listed(store.SagaFilter{}), []string{"a"})
}
