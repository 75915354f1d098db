package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// handled is a Store with one traced connection, whose transactions handle messages.
type handled struct {
	*postgres.Store
	pool  *pgxpool.Pool
	trips roundTrips
	lease store.Lease
	table string // of effects
}

func setupHandled(t *testing.T) *handled {
	t.Helper()
	b := setup(t, postgres.Config{Partitions: 1})
	h := &handled{lease: b.lease(t, "c")[0], table: b.table("done")}
	b.exec(t, "create table "+h.table+" (id text)")
	config, err := pgxpool.ParseConfig(b.dsn)
	must(t, err)
	config.MaxConns, config.ConnConfig.Tracer = 1, &h.trips
	h.pool, err = pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(h.pool.Close)
	h.Store = open(t, h.pool, b.config)
	return h
}

func (h *handled) effect() string { return "insert into " + h.table + " values ($1)" }

// handle consumes a message: begin with its claim, the effect, and the commit under the lease.
func (h *handled) handle(t *testing.T, id string, also func(tx pgx.Tx)) (pgx.Tx, error) {
	t.Helper()
	tx, claimed, err := h.BeginClaim(t.Context(), "c", []store.ClaimRequest{{ID: id, Key: "k"}})
	must(t, err)
	if len(claimed) != 1 || !claimed[0].Fresh {
		t.Fatalf("claimed %+v", claimed)
	}
	_, err = tx.Exec(t.Context(), h.effect(), id)
	must(t, err)
	also(tx)
	_, err = h.CommitSettled(t.Context(), tx, "c", store.Settlement{Partition: h.lease.Partition, Token: h.lease.Token})
	return tx, err
}

// effects is how many messages had an effect, read on the one connection, so it has to be free.
func (h *handled) effects(t *testing.T) int {
	t.Helper()
	return one[int](t, h.pool, "select count(*)::int4 from "+h.table)
}

// TestMessageIsThreeRoundTrips counts them: a fourth ends the transaction that follows when a handler has got hold of the connection. Besides
// the effect, the statements are begin, the limit, the claim, the look for a held key; the fence, and commit (and begin).
func TestMessageIsThreeRoundTrips(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	nothing := func(pgx.Tx) {}
	for _, c := range []struct {
		id            string
		also          func(pgx.Tx)
		want, batched int64
	}{
		{"prepares the statements", nothing, 0, 0},
		{"plain", nothing, 3, 6},
		{"with the connection", func(tx pgx.Tx) { _ = tx.Conn() }, 4, 7},
	} {
		h.trips.n.Store(0)
		h.trips.batched.Store(0)
		if _, err := h.handle(t, c.id, c.also); err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		if got := h.trips.n.Load(); c.want > 0 && got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.id, got, c.want)
		}
		if got := h.trips.batched.Load(); c.want > 0 && got != c.batched {
			t.Errorf("%s: %d statements in batches, want %d", c.id, got, c.batched)
		}
	}
}

// TestLateStatements: a goroutine of a handler goes on after the commit. What it executes fails, and touches no transaction of others
// that the connection has by then.
func TestLateStatements(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	tx, err := h.handle(t, "1", func(pgx.Tx) {})
	must(t, err)
	other, err := h.pool.Begin(t.Context()) // on the same connection
	must(t, err)
	ctx := t.Context()
	for name, late := range map[string]func() error{
		"Exec":     func() error { _, err := tx.Exec(ctx, h.effect(), "late"); return err },
		"Query":    func() error { _, err := tx.Query(ctx, "select 1"); return err },
		"QueryRow": func() error { return tx.QueryRow(ctx, "select 1").Scan(new(int)) },
		"SendBatch": func() error {
			batch := &pgx.Batch{}
			batch.Queue(h.effect(), "late")
			return tx.SendBatch(ctx, batch).Close()
		},
		"CopyFrom":      func() error { _, err := tx.CopyFrom(ctx, pgx.Identifier{"x"}, nil, nil); return err },
		"Prepare":       func() error { _, err := tx.Prepare(ctx, "late", "select 1"); return err },
		"Begin":         func() error { _, err := tx.Begin(ctx); return err },
		"LargeObjects":  func() error { large := tx.LargeObjects(); _, err := large.Create(ctx, 0); return err },
		"Commit":        func() error { return tx.Commit(ctx) },
		"Rollback":      func() error { return tx.Rollback(ctx) },
		"CommitSettled": func() error { _, err := h.CommitSettled(ctx, tx, "c", store.Settlement{}); return err },
	} {
		if err := late(); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v, want pgx.ErrTxClosed", name, err)
		}
	}
	must(t, other.Commit(ctx))
	if n := h.effects(t); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// TestCommitWhileAHandlerReads: rows that a handler has left open keep the connection busy; nothing is committed then.
func TestCommitWhileAHandlerReads(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	if _, err := h.handle(t, "1", func(tx pgx.Tx) {
		_, err := tx.Query(context.Background(), "select generate_series(1, 1000)")
		must(t, err)
	}); err == nil {
		t.Error("committed")
	}
	if n := h.effects(t); n != 0 {
		t.Errorf("%d effects, want 0", n)
	}
}

// TestCommitThatFails: a statement fails in front of the COMMIT that was sent with it, or COMMIT itself. Nothing is committed, and the
// connection goes on as if nothing had happened.
func TestCommitThatFails(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	state := func() (pid int, settings string) {
		must(t, h.pool.QueryRow(t.Context(), `select pg_backend_pid(), concat_ws(' ', current_setting('idle_in_transaction_session_timeout'),
			current_setting('enable_seqscan'), current_setting('plan_cache_mode'), current_setting('transaction_isolation'))`).Scan(&pid, &settings))
		return pid, settings
	}
	_, err := h.pool.Exec(t.Context(), "alter table "+h.table+" add unique (id) deferrable initially deferred")
	must(t, err)
	pid, settings := state()
	valid := h.lease.Token
	for name, c := range map[string]struct {
		want string
		also func(tx pgx.Tx)
	}{
		"the lease is lost":      {"lease was lost", func(pgx.Tx) { h.lease.Token = "another" }},
		"the handler has failed": {"an earlier statement of the transaction failed", func(tx pgx.Tx) { _, _ = tx.Exec(t.Context(), "select 1/0") }},
		"the commit is refused": {"duplicate key", func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), h.effect(), "the commit is refused")
			must(t, err)
		}},
	} {
		if _, err := h.handle(t, name, c.also); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		h.lease.Token = valid
		if n := h.effects(t); n != 0 {
			t.Errorf("%s: %d effects, want 0", name, n)
		}
		if p, s := state(); p != pid || s != settings {
			t.Errorf("%s: connection %d with %s, want %d with %s", name, p, s, pid, settings)
		}
	}
	_, err = h.handle(t, "goes on", func(pgx.Tx) {})
	must(t, err)
	if p, s := state(); p != pid || s != settings {
		t.Errorf("after a commit: connection %d with %s, want %d with %s", p, s, pid, settings)
	}
}

// TestRollbackWhileAHandlerCopies: a goroutine of a handler copies rows that do not come. The relay can go on nevertheless, and the
// connection is returned when the goroutine ends.
func TestRollbackWhileAHandlerCopies(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	tx, err := h.BeginLimited(t.Context(), 0)
	must(t, err)
	rows := &rowsThatWait{asked: make(chan struct{}), come: make(chan struct{})}
	copied := make(chan error, 1)
	go func() {
		table := strings.Split(strings.ReplaceAll(h.table, `"`, ""), ".")
		_, err := tx.CopyFrom(context.Background(), table, []string{"id"}, rows)
		copied <- err
	}()
	select {
	case <-rows.asked:
	case err := <-copied:
		t.Fatal(err)
	}
	rolledBack := make(chan struct{})
	go func() {
		defer close(rolledBack)
		_ = h.Rollback(t.Context(), tx) // the connection is busy
	}()
	select {
	case <-rolledBack:
	case <-time.After(patience):
		t.Error("the rollback waits for the handler")
	}
	close(rows.come)
	if err := <-copied; err == nil {
		t.Error("copied")
	}
	if n := h.effects(t); n != 0 {
		t.Errorf("%d effects, want 0", n)
	}
}

// rowsThatWait is one row.
type rowsThatWait struct{ asked, come chan struct{} }

func (r *rowsThatWait) Next() bool {
	select {
	case <-r.asked:
		return false
	default:
	}
	close(r.asked)
	<-r.come
	return true
}

func (r *rowsThatWait) Values() ([]any, error) { return []any{"copied"}, nil }
func (r *rowsThatWait) Err() error             { return nil }
