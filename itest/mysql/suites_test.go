//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/saga/scenariotest"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/storetest"
)

// The suites of this file run without the race detector, which costs half of their time. Where goroutines meet in them, in relays,
// consumers and engines of sagas, the same suites run under the race detector on store/memory; those of the store itself meet in the
// model tests and in the tests of this package without a build tag, which run in both ways.

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

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers)
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers)
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
		_, db := shared.clone(t, server(t), 0)
		exec(t, db, "CREATE TABLE two_rows (n INT PRIMARY KEY, updates INT NOT NULL) AS SELECT 0 AS n, 0 AS updates UNION ALL SELECT 1, 0")
		return newStore(t, db, mysqlstore.Config{})
	},
	Rows: func(testing.TB, scenariotest.Store[*sql.Tx]) func(ctx context.Context, tx *sql.Tx, row int) error {
		return func(ctx context.Context, tx *sql.Tx, row int) error {
			_, err := tx.ExecContext(ctx, "UPDATE two_rows SET updates = updates + 1 WHERE n = ?", row)
			return err
		}
	},
}

// TestContractElsewhere: sequences not reserved per statement (innodb_autoinc_lock_mode 2), a row-based binary log, small
// packets, server and sessions far from UTC, READ COMMITTED by default, and connections not in utf8mb4. It runs the tests that execute every
// statement, and all of what the settings are about: transactions, late commits, leases and times.
func TestContractElsewhere(t *testing.T) {
	t.Parallel()
	server := elsewhere(t, "--innodb-autoinc-lock-mode=2", "--log-bin=binlog", "--binlog-format=ROW", "--sync-binlog=0",
		"--max-allowed-packet=4M", "--default-time-zone=+05:30", "--transaction-isolation=READ-COMMITTED",
		"--character-set-server=latin1")
	location, err := time.LoadLocation("America/New_York")
	must(t, err)
	must(t, server.Apply(mysql.Charset("latin1", "")))
	server.Params = map[string]string{"time_zone": "'-07:30'"}
	server.ParseTime, server.Loc, server.ClientFoundRows, server.InterpolateParams = true, location, true, true
	there := harness
	var own templates
	there.Open = func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
		d, db := own.clone(t, server, partitions)
		return opened{newStore(t, db, mysqlstore.Config{}), d}
	}
	storetest.Contract(t, features, there, "Transactions", "Fetch", "LateCommits", "Leases", "Due")
}
