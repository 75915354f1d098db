package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/store"
)

func sagaCreateTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "CreateIsInTheCallersTransaction", run: sagaCreateInTx[Tx], statements: true},
		{name: "InstanceIsAsItWasCreated", run: sagaAsCreated[Tx]},
		{name: "SameIDIsReturnedAlsoWhenEnded", run: sagaSameID[Tx]},
		{name: "InstanceThatHoldsTheKeyIsReturned", run: sagaHeldKey[Tx]},
		{name: "KeyIsFreeAfterTheEnd", run: sagaKeyIsFree[Tx]},
		{name: "ReopenedInstanceDoesNotHoldItsKey", run: sagaReopened[Tx]},
		{name: "SameInOneCallIsCreatedOnce", run: sagaSameInOneCall[Tx]},
		{name: "ConcurrentCreatesMakeOne", run: sagaConcurrentCreates[Tx], late: true},
		{name: "CreateWaitsForAnotherTransaction", run: sagaCreateWaits[Tx], late: true, statements: true},
		{name: "AliasFindsAlsoAfterTheEnd", run: sagaAlias[Tx]},
		{name: "AliasOfAnotherIsRefused", run: sagaAliasTaken[Tx]},
		{name: "TransactionsThatHaveEndedAreRefused", run: sagaEndedTransactions[Tx]},
	}
}

func sagaCreateInTx[Tx any](e *sagaEnv[Tx]) {
	tx := e.begin()
	undone := e.start("undone", keyed("k"))
	e.create(tx, undone)
	if got := e.load(tx, undone.Run); got.ID != "undone" {
		e.t.Errorf("loaded %+v in the transaction", got)
	}
	e.rollback(tx)
	e.wantGone("undone", undone.Run)

	tx = e.begin()
	kept := e.start("kept", keyed("k"))
	e.create(tx, kept)
	err := e.store.Savepoint(e.ctx, tx, func(_ context.Context, tx Tx) error {
		e.create(tx, e.start("in a savepoint"))
		e.moveIn(tx, kept.Run)
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		e.t.Errorf("savepoint: %v", err)
	}
	e.wantGone("kept")
	e.commit(tx)
	e.wantGone("in a savepoint")
	if got := e.show("kept"); got.Rev != 1 || !got.HoldsKey || len(e.history(kept.Run)) != 1 {
		e.t.Errorf("%+v with history %+v, want revision 1", got, e.history(kept.Run))
	}
}

func sagaSameID[Tx any](e *sagaEnv[Tx]) {
	first := e.start("a", keyed("k"))
	e.created(first)
	again := func(why string) {
		e.t.Helper()
		e.inTx(func(tx Tx) {
			existing, err := e.sagas.CreateSagas(e.ctx, tx, []store.SagaStart{e.start("a"), e.start("a", keyed("other"))})
			e.must(err, "create")
			for _, x := range existing {
				if x == nil || x.Run != first.Run || string(x.State) != string(first.State) || x.Token != first.Token {
					e.t.Errorf("%s: existing %+v, want %s", why, x, first.Run)
				}
			}
		})
	}
	again("running")
	e.move(first.Run, to(store.SagaCompleted))
	again("completed")
	e.inTx(func(tx Tx) {
		same := e.start("another ID")
		same.Run = first.Run
		e.wantIDs("same run", e.create(tx, same), []string{first.Run})
	})
}

func sagaHeldKey[Tx any](e *sagaEnv[Tx]) {
	run := e.created(e.start("a", keyed("k")))
	e.inTx(func(tx Tx) {
		other := e.start("c", keyed("k"))
		other.Saga = "refund"
		e.wantIDs("same key, another key, none, another saga", e.create(tx, e.start("b", keyed("k")), e.start("d", keyed("k2")), e.start("e"), e.start("f"), other),
			[]string{run, "", "", "", ""})
		e.wantIDs("by key", e.find(tx, store.SagaLookup{Saga: "order", Key: "k"}, store.SagaLookup{Saga: "refund", Key: "k"},
			store.SagaLookup{Saga: "order", Key: "none"}, store.SagaLookup{ID: "a"}, store.SagaLookup{ID: "b"}),
			[]string{run, other.Run, "", run, ""})
		// The instance of the ID is returned, not that of the key.
		e.wantIDs("ID and key of different instances", e.create(tx, e.start("d", keyed("k"))), []string{e.find(tx, store.SagaLookup{ID: "d"})[0]})
	})
}

func sagaKeyIsFree[Tx any](e *sagaEnv[Tx]) {
	for i, status := range []store.SagaStatus{store.SagaCompleted, store.SagaCompensated, store.SagaAbandoned} {
		run := e.created(e.start(fmt.Sprint("first-", i), keyed("k")))
		for _, before := range []store.SagaStatus{store.SagaCompensating, store.SagaStuck} {
			e.move(run, to(before))
			e.inTx(func(tx Tx) {
				e.wantIDs(string(before), e.create(tx, e.start(fmt.Sprint(before, i), keyed("k"))), []string{run})
			})
		}
		e.inTx(func(tx Tx) {
			e.moveIn(tx, run, to(status))
			e.wantIDs("by key after the end", e.find(tx, store.SagaLookup{Saga: "order", Key: "k"}), []string{""})
			next := e.start(fmt.Sprint("next-", i), keyed("k"))
			e.wantIDs("created after the end", e.create(tx, next), []string{""})
			e.moveIn(tx, next.Run, to(store.SagaCompleted))
		})
		if e.show(run).HoldsKey {
			e.t.Errorf("%s instance holds its key", status)
		}
	}
}

func sagaReopened[Tx any](e *sagaEnv[Tx]) {
	old := e.created(e.start("old", keyed("k")))
	e.move(old, to(store.SagaCompensated))
	ended := e.show("old")
	run := e.created(e.start("new", keyed("k")))
	e.move(old, to(store.SagaCompensating))
	if got := e.show("old"); got.HoldsKey || !got.EndedAt.IsZero() || ended.EndedAt.IsZero() {
		e.t.Errorf("reopened: holds its key %t, ended at %s; when it had ended: %s", got.HoldsKey, got.EndedAt, ended.EndedAt)
	}
	e.move(old, to(store.SagaCompensated))
	e.inTx(func(tx Tx) {
		e.wantIDs("by key", e.find(tx, store.SagaLookup{Saga: "order", Key: "k"}), []string{run})
		e.wantIDs("created", e.create(tx, e.start("third", keyed("k"))), []string{run})
	})
}

func sagaSameInOneCall[Tx any](e *sagaEnv[Tx]) {
	a, b := e.start("a", keyed("k")), e.start("b")
	e.inTx(func(tx Tx) {
		e.wantIDs("created", e.create(tx, a, e.start("a"), e.start("c", keyed("k")), b, e.start("b")), []string{"", a.Run, a.Run, "", b.Run})
		e.wantIDs("none", e.create(tx), nil)
	})
	if list, err := e.sagas.ListSagas(e.ctx, store.SagaFilter{}, "", 10); len(list) != 2 || err != nil {
		e.t.Errorf("%d instances, %v; want 2", len(list), err)
	}
}

func sagaConcurrentCreates[Tx any](e *sagaEnv[Tx]) {
	const callers = 8
	for i := range e.amount(20) {
		id, key := fmt.Sprint("id-", i), fmt.Sprint("key-", i)
		results := make(chan string, callers)
		for c := range callers {
			st := e.start(id)
			if c%2 == 0 {
				st = e.start(fmt.Sprint(id, "-", c), keyed(key))
			}
			go func() { results <- e.createAlone(st) }()
		}
		fresh := 0
		var all []string
		for range callers {
			r := <-results
			if r == "" {
				fresh++
			}
			all = append(all, r)
		}
		if fresh != 2 {
			e.t.Fatalf("%d of one ID and of one key were created, want one each: %q", fresh, all)
		}
	}
}

// createAlone creates an instance in a transaction of its own, which others may disturb. It returns the run of the existing
// one, "" if it was created, or the error.
func (e *sagaEnv[Tx]) createAlone(st store.SagaStart) string {
	tx, err := e.store.Begin(e.ctx)
	if err != nil {
		return err.Error()
	}
	existing, err := e.sagas.CreateSagas(e.ctx, tx, []store.SagaStart{st})
	if err == nil {
		err = e.store.Commit(e.ctx, tx)
	} else {
		err = errors.Join(err, e.store.Rollback(e.ctx, tx))
	}
	switch {
	case err != nil:
		return err.Error()
	case existing[0] == nil:
		return ""
	}
	return existing[0].Run
}

func sagaCreateWaits[Tx any](e *sagaEnv[Tx]) {
	first, second := e.start("a", keyed("k")), e.start("b", keyed("k"))
	one, two := e.begin(), e.begin()
	e.create(one, first)
	var got []*store.SagaInstance
	e.waits("create with the same key", func() (err error) {
		got, err = e.sagas.CreateSagas(e.ctx, two, []store.SagaStart{second})
		return err
	}, func() { e.commit(one) })
	if got[0] == nil || got[0].Run != first.Run {
		e.t.Errorf("existing %+v, want %s", got[0], first.Run)
	}
	e.commit(two)

	third, fourth := e.start("c"), e.start("c")
	one, two = e.begin(), e.begin()
	e.create(one, third)
	e.waits("create with the same ID", func() (err error) {
		got, err = e.sagas.CreateSagas(e.ctx, two, []store.SagaStart{fourth})
		return err
	}, func() { e.rollback(one) })
	if got[0] != nil {
		e.t.Errorf("existing %+v, although it was rolled back", got[0])
	}
	e.commit(two)
}

func sagaAlias[Tx any](e *sagaEnv[Tx]) {
	payment := store.SagaAlias{Name: "payment", Value: "p-1"}
	started := store.SagaAlias{Name: "cart", Value: "c-1"}
	run := e.created(e.start("a", func(st *store.SagaStart) { st.Aliases = []store.SagaAlias{started} }))
	add := func(c *store.SagaChange) { c.Aliases = []store.SagaAlias{payment, started} }
	e.move(run, add)
	e.move(run, add, to(store.SagaCompleted)) // again
	e.inTx(func(tx Tx) {
		e.wantIDs("runs", e.find(tx, store.SagaLookup{Saga: "order", Alias: payment}, store.SagaLookup{Saga: "refund", Alias: payment},
			store.SagaLookup{Saga: "order", Alias: store.SagaAlias{Name: "payment", Value: "p-2"}}, store.SagaLookup{Saga: "order", Alias: started}),
			[]string{run, "", "", run})
		e.wantIDs("none", e.find(tx), nil)
	})
	if aliases, _, err := e.sagas.SagaNames(e.ctx, run); err != nil || !slices.Equal(aliases, []store.SagaAlias{started, payment}) {
		e.t.Errorf("aliases %v, %v", aliases, err)
	}
}

func sagaAliasTaken[Tx any](e *sagaEnv[Tx]) {
	alias := store.SagaAlias{Name: "payment", Value: "p-1"}
	give := func(st *store.SagaStart) { st.Aliases = []store.SagaAlias{alias} }
	run := e.created(e.start("a", give))
	other := e.created(e.start("b"))
	e.move(run, to(store.SagaCompleted))
	tx := e.begin()
	c := next(e.load(tx, other))
	c.Aliases = []store.SagaAlias{alias}
	if err := e.sagas.SaveSagas(e.ctx, tx, []store.SagaChange{c}); !errors.Is(err, store.ErrSagaAliasTaken) {
		e.t.Errorf("save with the alias of another: %v, want ErrSagaAliasTaken", err)
	}
	e.rollback(tx)
	tx = e.begin()
	if _, err := e.sagas.CreateSagas(e.ctx, tx, []store.SagaStart{e.start("c", give)}); !errors.Is(err, store.ErrSagaAliasTaken) {
		e.t.Errorf("create with the alias of another: %v, want ErrSagaAliasTaken", err)
	}
	e.rollback(tx)
	e.created(e.start("d", give, func(st *store.SagaStart) { st.Saga = "refund" }))
}

func sagaEndedTransactions[Tx any](e *sagaEnv[Tx]) {
	var none Tx
	ended := e.begin()
	e.commit(ended)
	st := e.start("a")
	step := store.SagaStep{Run: "r", Step: "s"}
	for name, tx := range map[string]Tx{"zero": none, "ended": ended} {
		_, create := e.sagas.CreateSagas(e.ctx, tx, []store.SagaStart{st})
		_, load := e.sagas.LoadSagas(e.ctx, tx, []string{"r"})
		_, find := e.sagas.FindSagas(e.ctx, tx, []store.SagaLookup{{ID: "a"}})
		_, _, lock := e.sagas.LockSagaRecords(e.ctx, tx, "p", []store.SagaStep{step})
		for op, err := range map[string]error{
			"CreateSagas": create, "LoadSagas": load, "FindSagas": find, "LockSagaRecords": lock,
			"SaveSagas":       e.sagas.SaveSagas(e.ctx, tx, []store.SagaChange{next(store.SagaInstance{SagaIdentity: st.SagaIdentity})}),
			"SaveSagaRecords": e.sagas.SaveSagaRecords(e.ctx, tx, "p", []store.SagaRecord{{SagaStep: step, State: store.SagaStepDone}}),
			"CloseSagaRuns":   e.sagas.CloseSagaRuns(e.ctx, tx, "p", []string{"r"}),
		} {
			if !errors.Is(err, store.ErrNoTransaction) {
				e.t.Errorf("%s in %s transaction: %v, want ErrNoTransaction", op, name, err)
			}
		}
	}
}
