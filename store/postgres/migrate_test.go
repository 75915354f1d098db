//go:build !race

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestTableIsMissing: an error names the table, and the command that explains it if migrations have nothing to do.
func TestTableIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, "alter table "+b.table("cursors")+" rename to gone")
	_, err := b.Status(t.Context())
	if !errors.Is(err, postgres.ErrSchemaMissing) {
		t.Fatalf("the error is %v", err)
	}
	for _, words := range []string{"cursors", "`postrider migrate up`", "`postrider doctor`"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("no %s in: %v", words, err)
		}
	}
}

func TestMigrateWithoutASchemaSaysHowToMakeIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 1)
	_, err := postgres.Migrate(t.Context(), pool, postgres.Config{Schema: "not_there"}, postgres.Latest)
	if err == nil || !strings.Contains(err.Error(), "there is no schema not_there in the database; make it first") ||
		!strings.Contains(err.Error(), ": create schema not_there: ") {
		t.Errorf("migrate: %v", err)
	}
}

// TestMigrateWhereTheServerKeepsItsIdentity: as in a database where not every role may call pg_control_system().
func TestMigrateWhereTheServerKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	admin := newPool(t, dsn(t), 2)
	name := newSchema(t, admin)
	exec := func(pool *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(admin, "create role "+name)
	t.Cleanup(func() { exec(admin, "drop role "+name) })
	exec(admin, "create database "+name+" owner "+name)
	t.Cleanup(func() { exec(admin, "drop database "+name) })
	u, err := url.Parse(dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	there := newPool(t, u.String(), 1)
	exec(there, "revoke execute on function pg_control_system() from public")
	exec(there, "create schema authorization "+name)

	b := setupOn(t, withParam(t, u.String(), "role", name), postgres.Config{Schema: name})
	if one[bool](t, b.pool, "select system_identifier is not null from "+b.table("meta")) {
		t.Error("the outbox has the identity of a server that does not tell it")
	}
	b.maintain(t, store.Retention{For: time.Hour})
	if _, err := b.Heartbeat(t.Context(), "r", store.Owner{ID: "o"}, longTTL); err != nil {
		t.Error(err)
	}
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 4)
	config := postgres.Config{Schema: newSchema(t, pool), Prefix: "a_"}
	ctx := t.Context()
	tables := func() int64 {
		return one[int64](t, pool, "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1", config.Schema) +
			one[int64](t, pool, "select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1", config.Schema)
	}
	for round := range 2 {
		steps, err := postgres.Migrate(ctx, pool, config, postgres.Latest)
		if err != nil || len(steps) == 0 {
			t.Fatalf("round %d: up: %d steps, %v", round, len(steps), err)
		}
		all, err := postgres.MigrationStatus(ctx, pool, config)
		if err != nil || len(all) != len(steps) {
			t.Fatalf("status: %d migrations, %v", len(all), err)
		}
		for _, m := range all {
			if !m.Applied || m.AppliedAt.IsZero() {
				t.Errorf("migration %+v is not applied", m)
			}
		}
		open(t, pool, config)
		for v := len(steps) - 1; v >= 0; v-- { // one by one
			if _, err := postgres.Migrate(ctx, pool, config, v); err != nil {
				t.Fatalf("down to %d: %v", v, err)
			}
			s, err := postgres.New(pool, config)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Open(ctx)
			want := postgres.ErrSchemaOlder
			if v == 0 {
				want = postgres.ErrSchemaMissing
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "postrider migrate up") {
				t.Errorf("open at version %d: %v, want %v naming the command", v, err, want)
			}
		}
		if n := tables(); n != 0 {
			t.Errorf("round %d: %d tables, indexes and functions are left after all is down", round, n)
		}
	}
}

func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 10)
	config := postgres.Config{Schema: newSchema(t, pool)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	steps := 0
	for range 8 {
		wg.Go(func() {
			done, err := postgres.Migrate(t.Context(), pool, config, postgres.Latest)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			steps += len(done)
		})
	}
	wg.Wait()
	if all, err := postgres.MigrationStatus(t.Context(), pool, config); err != nil || steps != len(all) {
		t.Errorf("%d steps for %d migrations, %v", steps, len(all), err)
	}
}

func TestOpenRefusesANewerSchema(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, "insert into "+b.table("migrations")+" (version, name) values (99, 'from_the_future')")
	s, err := postgres.New(b.pool, b.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); !errors.Is(err, postgres.ErrSchemaNewer) || !strings.Contains(err.Error(), "postrider migrate up") {
		t.Errorf("open: %v, want ErrSchemaNewer naming the command", err)
	}
	if _, err := postgres.Migrate(t.Context(), b.pool, b.config, 0); !errors.Is(err, postgres.ErrSchemaNewer) {
		t.Errorf("migrate: %v, want ErrSchemaNewer", err)
	}
}

func TestPrintedMigrationsWork(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 4)
	config := postgres.Config{Schema: newSchema(t, pool), Partitions: 3}
	var text bytes.Buffer
	if err := postgres.PrintMigrations(&text, config); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), text.String(), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if n, err := open(t, pool, config).Partitions(t.Context()); err != nil || n != 3 {
		t.Errorf("%d partitions, %v", n, err)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 1)
	_, err := postgres.New(pool, postgres.Config{Schema: `a"; drop table x`, Prefix: "Über", Partitions: 2000, SegmentFor: 1})
	for _, field := range []string{"Schema", "Prefix", "Partitions", "SegmentFor"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}
