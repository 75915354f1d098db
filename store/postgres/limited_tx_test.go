package postgres_test

import (
	"context"
	"errors"
	"testing"

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

// TestMessageIsThreeRoundTrips counts them: a fourth ends the transaction that follows when a handler has got hold of the connection.
func TestMessageIsThreeRoundTrips(t *testing.T) {
	t.Parallel()
	h := setupHandled(t)
	nothing := func(pgx.Tx) {}
	for _, c := range []struct {
		id   string
		also func(pgx.Tx)
		want int64
	}{
		{"prepares the statements", nothing, 0},
		{"plain", nothing, 3},
		{"with the connection", func(tx pgx.Tx) { _ = tx.Conn() }, 4},
	} {
		h.trips.n.Store(0)
		if _, err := h.handle(t, c.id, c.also); err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		if got := h.trips.n.Load(); c.want > 0 && got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.id, got, c.want)
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
