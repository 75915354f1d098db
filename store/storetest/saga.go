package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// Sagas tests a store against the contracts of store.SagaStore, store.SagaReader, store.SagaMaintenance and store.SagaRecords. The
// stores that the harness opens must implement them and store.Inbox.
func Sagas[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	s := newSuite(f, h)
	s.checkStatements(t)
	for _, kind := range []struct {
		name  string
		tests []sagaTest[Tx]
	}{
		{"Create", sagaCreateTests[Tx]()},
		{"Save", sagaSaveTests[Tx]()},
		{"Read", sagaReadTests[Tx]()},
		{"Purge", sagaPurgeTests[Tx]()},
		{"Records", sagaRecordTests[Tx]()},
		{"Definitions", sagaDefinitionTests[Tx]()},
	} {
		g := group{name: kind.name}
		for _, test := range kind.tests {
			g.tests = append(g.tests, test.erase())
		}
		s.runGroup(t, g, false)
	}
}

// SagaStore is what a store offers for sagas.
type SagaStore[Tx any] interface {
	store.Inbox[Tx]
	store.SagaStore[Tx]
	store.SagaReader
	store.SagaMaintenance
	store.SagaRecords[Tx]
}

// sagaTest is one test of the suite.
type sagaTest[Tx any] struct {
	name string
	run  func(e *sagaEnv[Tx])
	// late: the test needs several open transactions at a time.
	late bool
	// statements marks the tests that together execute every statement of a store.
	statements bool
}

func (st sagaTest[Tx]) erase() test {
	return inboxTest[Tx]{name: st.name, late: st.late, statements: st.statements, run: func(e *inboxEnv[Tx]) {
		sagas, ok := any(e.store).(SagaStore[Tx])
		if !ok {
			e.t.Fatalf("%T does not keep sagas", e.store)
		}
		st.run(&sagaEnv[Tx]{inboxEnv: e, sagas: sagas})
	}}.erase()
}

// sagaEnv is one test's database, as an engine of sagas uses it.
type sagaEnv[Tx any] struct {
	*inboxEnv[Tx]
	sagas SagaStore[Tx]
	runs  int
}

// start makes a new instance of saga "order", in run-1, run-2 and so on.
func (e *sagaEnv[Tx]) start(id string, edits ...func(*store.SagaStart)) store.SagaStart {
	e.runs++
	st := store.SagaStart{
		SagaIdentity: store.SagaIdentity{
			Run: fmt.Sprintf("run-%06d", e.runs), ID: id, Engine: "shop", Saga: "order", Version: 1, Hash: "h1", Kind: store.SagaOrchestrated,
		},
		SagaCondition: store.SagaCondition{Status: store.SagaRunning, Direction: store.SagaForward, Waiting: "reserve", Obligations: 1},
		SagaBody:      store.SagaBody{State: []byte(`{"at":0}`), Data: []byte(`{}`)},
		Token:         "secret-" + id,
		Transition:    store.SagaTransition{Input: "start"},
	}
	for _, edit := range edits {
		edit(&st)
	}
	return st
}

// keyed gives a new instance a key.
func keyed(key string) func(*store.SagaStart) { return func(st *store.SagaStart) { st.Key = key } }

// childOf makes a new instance the child of another.
func childOf(run string) func(*store.SagaStart) {
	return func(st *store.SagaStart) { st.ParentRun, st.ParentStep = run, "child" }
}

// create creates instances and returns, for each, the run of the existing one, or "".
func (e *sagaEnv[Tx]) create(tx Tx, starts ...store.SagaStart) []string {
	e.t.Helper()
	existing, err := e.sagas.CreateSagas(e.ctx, tx, starts)
	e.must(err, "create")
	if len(existing) != len(starts) {
		e.t.Fatalf("%d results for %d new instances", len(existing), len(starts))
	}
	out := make([]string, len(existing))
	for i, x := range existing {
		if x != nil {
			out[i] = x.Run
		}
	}
	return out
}

// created creates new instances in a transaction of their own, and returns the run of the first.
func (e *sagaEnv[Tx]) created(starts ...store.SagaStart) string {
	e.t.Helper()
	e.inTx(func(tx Tx) {
		for i, run := range e.create(tx, starts...) {
			if run != "" {
				e.t.Fatalf("instance %s was not created: %s exists", starts[i].ID, run)
			}
		}
	})
	return starts[0].Run
}

// load locks and returns one instance.
func (e *sagaEnv[Tx]) load(tx Tx, run string) store.SagaInstance {
	e.t.Helper()
	found, err := e.sagas.LoadSagas(e.ctx, tx, []string{run})
	e.must(err, "load")
	if len(found) != 1 {
		e.t.Fatalf("load %s: %d instances", run, len(found))
	}
	return found[0]
}

// next is the change that an ordinary transition makes.
func next(i store.SagaInstance) store.SagaChange {
	c := store.SagaChange{
		Run: i.Run, Rev: i.Rev + 1, SagaCondition: i.SagaCondition, SagaTimes: i.SagaTimes, SagaBody: i.SagaBody,
		Transitions: []store.SagaTransition{{Input: "reply"}},
	}
	c.Waiting = fmt.Sprint("step ", c.Rev)
	return c
}

func (e *sagaEnv[Tx]) save(tx Tx, changes ...store.SagaChange) {
	e.t.Helper()
	e.must(e.sagas.SaveSagas(e.ctx, tx, changes), "save")
}

// move makes a transition in a transaction of its own.
func (e *sagaEnv[Tx]) move(run string, edits ...func(*store.SagaChange)) {
	e.t.Helper()
	e.inTx(func(tx Tx) { e.moveIn(tx, run, edits...) })
}

func (e *sagaEnv[Tx]) moveIn(tx Tx, run string, edits ...func(*store.SagaChange)) {
	e.t.Helper()
	c := next(e.load(tx, run))
	for _, edit := range edits {
		edit(&c)
	}
	e.save(tx, c)
}

// to changes the status.
func to(status store.SagaStatus) func(*store.SagaChange) {
	return func(c *store.SagaChange) { c.Status = status }
}

func (e *sagaEnv[Tx]) show(id string) store.SagaInstance {
	e.t.Helper()
	i, err := e.sagas.ShowSaga(e.ctx, id)
	e.must(err, "show "+id)
	return i
}

// wantGone checks that instances do not exist.
func (e *sagaEnv[Tx]) wantGone(ids ...string) {
	e.t.Helper()
	for _, id := range ids {
		if _, err := e.sagas.ShowSaga(e.ctx, id); !errors.Is(err, store.ErrNoSaga) {
			e.t.Errorf("show %s: %v, want ErrNoSaga", id, err)
		}
	}
}

// history returns the transitions of a run, read in pages of two.
func (e *sagaEnv[Tx]) history(run string) (out []store.SagaTransition) {
	e.t.Helper()
	for after := int64(0); ; {
		page, err := e.sagas.SagaHistory(e.ctx, run, after, 2)
		e.must(err, "history")
		if len(page) == 0 {
			return out
		}
		out, after = append(out, page...), page[len(page)-1].Rev
	}
}

// find returns the run for one lookup.
func (e *sagaEnv[Tx]) find(tx Tx, lookups ...store.SagaLookup) []string {
	e.t.Helper()
	runs, err := e.sagas.FindSagas(e.ctx, tx, lookups)
	e.must(err, "find")
	return runs
}

// wantNear checks a duration that was measured at a time between two calls.
func (e *sagaEnv[Tx]) wantNear(what string, got, least, most time.Duration) {
	e.t.Helper()
	if slack := time.Second; got < least-slack || got > most+slack { // the database's clock is another
		e.t.Errorf("%s is %s, want %s to %s", what, got, least, most)
	}
}
