package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store/postgres"
)

// dsn is the server that the test command started.
func dsn(t testing.TB) string {
	t.Helper()
	return servertest.Get(t, servertest.Postgres)
}

// TestMain runs more tests in parallel than there are processors: most of them wait, for the server or for a retry.
func TestMain(m *testing.M) {
	const parallel = "8"
	chosen := false
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// newPool connects to the test server with at most size connections.
func newPool(t testing.TB, dsn string, size int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = size
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newSchema creates a schema for one test.
func newSchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	name := "t_" + hex.EncodeToString(b)
	ctx := context.Background()
	if _, err := pool.Exec(ctx, "create schema "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := pool.Exec(ctx, "drop schema "+name+" cascade")
		for range 10 { // the last statements of a process that was cut off may still run
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "40P01" {
				break
			}
			_, err = pool.Exec(ctx, "drop schema "+name+" cascade")
		}
		if err != nil {
			t.Errorf("drop the test's schema: %v", err)
		}
	})
	return name
}

// longTTL is for leases that must not end during a test.
const longTTL = 10 * time.Minute

// bundle is a store with its own schema.
type bundle struct {
	*postgres.Store
	pool   *pgxpool.Pool
	config postgres.Config
}

// setup returns a store on a new outbox.
func setup(t testing.TB, config postgres.Config) *bundle {
	t.Helper()
	return setupOn(t, dsn(t), config)
}

func setupOn(t testing.TB, dsn string, config postgres.Config) *bundle {
	t.Helper()
	return setupWith(t, dsn, config, 16)
}

// setupWith is setupOn with a pool of the given size.
func setupWith(t testing.TB, dsn string, config postgres.Config, size int32) *bundle {
	t.Helper()
	pool := newPool(t, dsn, size)
	if config.Schema == "" {
		config.Schema = newSchema(t, pool)
	}
	if _, err := postgres.Migrate(context.Background(), pool, config, postgres.Latest); err != nil {
		t.Fatal(err)
	}
	return &bundle{Store: open(t, pool, config), pool: pool, config: config}
}

func open(t testing.TB, pool *pgxpool.Pool, config postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// table names a table of the bundle's outbox.
func (b *bundle) table(name string) string {
	prefix := b.config.Prefix
	if prefix == "" {
		prefix = postgres.DefaultPrefix
	}
	return pgx.Identifier{b.config.Schema, prefix + name}.Sanitize()
}

// exec runs a statement that must succeed.
func (b *bundle) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](t testing.TB, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := q.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
