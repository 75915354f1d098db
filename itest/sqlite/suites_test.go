//go:build !race

package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store/sqlite"
	"github.com/postrider/postrider/store/storetest"
)

// The suites of this file run without the race detector, under which the driver is many times slower. Where goroutines meet in them, in
// relays, consumers and engines of sagas, the same suites run under the race detector on store/memory; those of the store itself meet in
// the model tests and in the tests of this package, which run in both ways.

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, features, harness)
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	storetest.DeadLetters(t, features, harness)
}

func TestInbox(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, features, harness)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	storetest.Guard(t, features, harness)
}

func TestTxStore(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, features, harness)
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers)
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers)
}

func TestSagas(t *testing.T) {
	t.Parallel()
	storetest.Sagas(t, features, harness)
}

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, sagaKit)
}

// TestSagaHeap measures memory, so it does not run alongside other tests.
func TestSagaHeap(t *testing.T) { //nolint:paralleltest // see above
	scenariotest.Heap(t, sagaKit)
}

func TestSagaModel(t *testing.T) {
	t.Parallel()
	scenariotest.Model(t, sagaKit)
}

func TestSagaTorture(t *testing.T) {
	t.Parallel()
	scenariotest.Torture(t, sagaKit)
}

var sagaKit = scenariotest.Kit[*sql.Tx]{
	Open: func(t testing.TB) scenariotest.Store[*sql.Tx] {
		_, db := cloned(t, 0)
		return newStore(t, db, sqlite.Config{})
	},
	Bubble: true,
}
