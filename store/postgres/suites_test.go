//go:build !race

package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// The suites of this file run without the race detector, which costs half of their time. Where goroutines meet in them, in relays,
// consumers and engines of sagas, the same suites run under the race detector on store/memory; those of the store itself meet in the
// model tests and in the tests of this package without a build tag, which run in both ways.

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, inboxFeatures, harness(dsn(t)))
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	storetest.DeadLetters(t, storetest.Features{CoarseRetention: coarse}, harness(dsn(t)))
}

func TestTxStore(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, inboxFeatures, harness(dsn(t)))
}

func TestTxStoreWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.HandleTx(t, inboxFeatures, harness(withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol")))
}

func TestTxStoreOverPgBouncer(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.HandleTx(t, inboxFeatures, harness(withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")))
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers(dsn(t)))
}

func TestInbox(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, inboxFeatures, harness(dsn(t)))
}

func TestInboxWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	notInShort(t)
	dsn := withParam(t, withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol"), "bytea_output", "escape")
	storetest.Inbox(t, again, harness(dsn))
}

func TestInboxOverPgBouncer(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.Inbox(t, again, harness(withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")))
}

func TestInboxOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			storetest.Inbox(t, again, sqlHarness(dsn(t), driver))
		})
	}
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers(dsn(t)))
}

func TestGuard(t *testing.T) {
	t.Parallel()
	storetest.Guard(t, inboxFeatures, harness(dsn(t)))
}

// TestStoreWithSimpleProtocol runs every statement with parameters written into it and results in text format, on a database whose
// session defaults differ from a new one's: all tests of transactions and late commits, since that goes for their isolation too.
func TestStoreWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	notInShort(t)
	dsn := withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol")
	for name, value := range map[string]string{"default_transaction_isolation": "repeatable read", "datestyle": "German",
		"bytea_output": "escape"} {
		dsn = withParam(t, dsn, name, value)
	}
	contract(t, dsn, postgres.Config{}, "Transactions", "LateCommits")
}

// TestStoreOverPgBouncer runs every statement through PgBouncer in transaction mode, where each transaction may use another
// connection, in the two modes without prepared statements; with messages delivered after a flush, all tests of what is fetched.
func TestStoreOverPgBouncer(t *testing.T) {
	t.Parallel()
	notInShort(t)
	pgbouncer := startPgBouncer(t)
	run := func(mode string, config postgres.Config, whole ...string) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			contract(t, withParam(t, pgbouncer, "default_query_exec_mode", mode), config, whole...)
		})
	}
	run("exec", postgres.Config{DeliverAfterFlush: true}, "Fetch", "LateCommits", "Leases")
	run("cache_describe", postgres.Config{})
}

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, sagaKit)
}

func TestSagaModel(t *testing.T) {
	t.Parallel()
	scenariotest.Model(t, sagaKit)
}

func TestSagaTorture(t *testing.T) {
	t.Parallel()
	scenariotest.Torture(t, sagaKit)
}

// sagaPool is the size of a scenario's pool. The server starts a process for each connection, and plans every statement in each: with 16, the
// scenarios took a third more processor time, with 4 a tenth less.
const sagaPool = 6

var sagaKit = scenariotest.Kit[pgx.Tx]{
	Open: func(t testing.TB) scenariotest.Store[pgx.Tx] { return cloned(t, dsn(t), postgres.Config{}, sagaPool) },
	Rows: func(t testing.TB, s scenariotest.Store[pgx.Tx]) func(ctx context.Context, tx pgx.Tx, row int) error {
		if _, err := s.(*bundle).pool.Exec(t.Context(), "create table rows as select n, 0 as updates from generate_series(0, 1) n"); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context, tx pgx.Tx, row int) error {
			_, err := tx.Exec(ctx, "update rows set updates = updates + 1 where n = $1", row)
			return err
		}
	},
}

func TestSagas(t *testing.T) {
	t.Parallel()
	storetest.Sagas(t, inboxFeatures, harness(dsn(t)))
}

func TestSagasWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	notInShort(t)
	dsn := withParam(t, withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol"), "bytea_output", "escape")
	storetest.Sagas(t, again, harness(dsn))
}

func TestSagasOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			storetest.Sagas(t, again, sqlHarness(dsn(t), driver))
		})
	}
}

// TestStoreOnSQLDB runs every statement on a *sql.DB alone, and all tests of transactions.
func TestStoreOnSQLDB(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.Contract(t, again, onDBHarness(dsn(t)), "Transactions")
}

func TestInboxOnSQLDB(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.Inbox(t, again, onDBHarness(dsn(t)))
}

func TestTxStoreOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	notInShort(t)
	storetest.HandleTx(t, inboxFeatures, sqlTxHarness(dsn(t)))
}

func TestHandleTxOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	notInShort(t)
	inboxtest.HandleTx(t, inboxtest.Harness[*sql.Tx]{
		Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
			return onSQLTx(t, cloned(t, dsn(t), postgres.Config{Partitions: 4}, 40))
		},
		Again: true,
	})
}

func TestSagaOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	notInShort(t)
	scenariotest.Run(t, scenariotest.Kit[*sql.Tx]{
		Open: func(t testing.TB) scenariotest.Store[*sql.Tx] {
			return onSQLTx(t, cloned(t, dsn(t), postgres.Config{}, sagaPool))
		},
		Again: true,
	})
}
