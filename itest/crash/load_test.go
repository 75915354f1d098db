package crash

import (
	_ "embed"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

//go:embed testdata/transaction.sql
var transactionSQL string

// startLoad starts pgbench, PostgreSQL's own client, with 16 connections. A rate of 0 means as fast as possible.
func (w *world) startLoad(duration time.Duration, rate int) *process.Process {
	w.t.Helper()
	w.write("transaction.sql", transactionSQL)
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--client=16", "--jobs=2",
		"--time=" + strconv.Itoa(max(int(duration.Seconds()), 1)),
		"--file=" + filepath.Join(w.dir, "transaction.sql"),
	}
	if rate > 0 {
		args = append(args, "--rate="+strconv.Itoa(rate))
	}
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "pgbench", Path: servertest.Get(w.t, servertest.PgBenchBin), Args: append(args, w.dsn),
		Log: filepath.Join(w.dir, "pgbench.log"),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Kill() })
	return p
}

// awaitLoad waits for the end of the load.
func (w *world) awaitLoad(p *process.Process, duration time.Duration) {
	w.t.Helper()
	select {
	case <-p.Done():
	case <-time.After(duration + patience):
		w.t.Fatalf("pgbench has not ended:\n%s", p.Tail())
	}
	if code := p.ExitCode(); code != 0 {
		w.t.Fatalf("pgbench ended with exit code %d:\n%s", code, p.Tail())
	}
}

// stopLoad ends the load at once and waits until the server has noticed, so that nothing is committed later.
func (w *world) stopLoad(p *process.Process) {
	w.t.Helper()
	if err := p.Kill(); err != nil {
		w.t.Fatal(err)
	}
	db := w.connect()
	w.await("the server has ended the sessions of the load", func() bool {
		var left int
		if err := db.QueryRow(w.t.Context(), "select count(*) from pg_stat_activity where application_name = 'pgbench' and datname = current_database()").Scan(&left); err != nil {
			w.t.Fatal(err)
		}
		return left == 0
	})
}

// longTransaction is a transaction that publishes, with its own account, and stays open.
type longTransaction struct {
	tx pgx.Tx
}

func (w *world) beginLongTransaction() longTransaction {
	w.t.Helper()
	tx, err := w.connect().BeginTx(w.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := tx.Exec(w.t.Context(), `
		with step as (update accounts set counter = counter + 1 where id = 0 returning counter),
		     told as (insert into history (account, counter, transaction)
		              select 0, counter, pg_current_xact_id()::text::bigint from step returning counter, transaction)
		select postrider_publish('accounts', 'account/0', 'account.changed',
		    json_build_object('account', 0, 'counter', counter, 'transaction', transaction)::text) from told`); err != nil {
		w.t.Fatalf("publish in a transaction that stays open: %v", err)
	}
	return longTransaction{tx}
}

func (w *world) commit(l longTransaction) {
	w.t.Helper()
	if err := l.tx.Commit(w.t.Context()); err != nil {
		w.t.Fatalf("commit the long transaction: %v", err)
	}
}

// committed reads the facts from the history, and checks the history against the accounts: each counter says how many
// there are.
func (w *world) committed() []Fact {
	w.t.Helper()
	db := w.connect()
	var wrong int
	if err := db.QueryRow(w.t.Context(), `select count(*) from accounts a where counter <>
		(select count(distinct counter) from history where account = a.id)`).Scan(&wrong); err != nil {
		w.t.Fatal(err)
	}
	if wrong > 0 {
		w.t.Fatalf("the load itself is wrong: %d accounts have another counter than steps", wrong)
	}
	rows, err := db.Query(w.t.Context(), "select account, counter, transaction from history")
	if err != nil {
		w.t.Fatal(err)
	}
	facts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fact])
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}
