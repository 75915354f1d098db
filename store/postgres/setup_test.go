package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store"
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
	code := m.Run()
	if err := dropTemplates(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// administrator connects to the test server, outside the tests' databases.
var administrator = sync.OnceValues(func() (*pgxpool.Pool, error) {
	url, err := servertest.Lookup(context.Background(), servertest.Postgres)
	if err != nil {
		return nil, err
	}
	return pgxpool.New(context.Background(), url)
})

// administer runs a statement that must not run in a transaction or in a test's database.
func administer(sql string) error {
	pool, err := administrator()
	if err != nil {
		return err
	}
	_, err = pool.Exec(context.Background(), sql)
	return err
}

func dropTemplates() (err error) {
	for _, create := range templates.Range {
		if name, failed := create.(func() (string, error))(); failed == nil {
			err = errors.Join(err, administer("drop database "+name))
		}
	}
	return err
}

// newPool connects to the test server with at most size connections.
func newPool(t testing.TB, dsn string, size int32) *pgxpool.Pool {
	t.Helper()
	return tracedPool(t, dsn, size, tracer{t})
}

// tracedPool is newPool with a tracer.
func tracedPool(t testing.TB, dsn string, size int32, by pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = size
	config.ConnConfig.Tracer = by
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func randomName() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return "t_" + hex.EncodeToString(b)
}

// newSchema creates a schema for one test.
func newSchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	name, ctx := randomName(), context.Background()
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

const (
	// longTTL is for leases that must not end during a test.
	longTTL = 10 * time.Minute
	// patience bounds every wait for a condition.
	patience = 3 * time.Minute
)

// bundle is a store with its own schema.
type bundle struct {
	*postgres.Store
	pool   *pgxpool.Pool
	dsn    string
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
	return &bundle{Store: open(t, pool, config), pool: pool, dsn: dsn, config: config}
}

// templates are the functions that create a database with a migrated outbox, by its kind.
var templates sync.Map

// kind is what databases cloned from a template have in common.
type kind struct {
	partitions int
	before     string // SQL that is run before the migrations
}

const clonedSchema = "outbox"

// template returns the name of a database with a migrated outbox.
func template(t testing.TB, k kind) string {
	t.Helper()
	create, _ := templates.LoadOrStore(k, sync.OnceValues(func() (string, error) {
		name := fmt.Sprintf("%s_%d_%d", randomName(), k.partitions, os.Getpid())
		if err := administer("create database " + name); err != nil {
			return "", err
		}
		return name, k.fill(context.Background(), inDatabase(t, dsn(t), name))
	}))
	name, err := create.(func() (string, error))()
	if err != nil {
		t.Fatalf("create a template: %v", err)
	}
	return name
}

// fill creates the outbox of a template.
func (k kind) fill(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close() // or the database cannot be cloned
	if _, err := pool.Exec(ctx, "create schema "+clonedSchema+";"+k.before); err != nil {
		return err
	}
	if _, err := postgres.Migrate(ctx, pool, postgres.Config{Schema: clonedSchema, Partitions: k.partitions}, postgres.Latest); err != nil {
		return err
	}
	pool.Reset()
	return pool.Ping(ctx) // a new connection writes the cache of the catalog to a file, which is cloned too
}

// inDatabase is a DSN for another database of the same server.
func inDatabase(t testing.TB, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// cloned returns a store on a new outbox in a database of its own, which is cloned from a template: this takes a fraction of
// the time of the migrations. Of the configuration, these may depend on Partitions alone.
func cloned(t testing.TB, dsn string, config postgres.Config, size int32) *bundle {
	t.Helper()
	return clonedFrom(t, kind{partitions: config.Partitions}, dsn, config, size)
}

func clonedFrom(t testing.TB, k kind, dsn string, config postgres.Config, size int32) *bundle {
	t.Helper()
	from, name := template(t, k), randomName()
	if err := administer("create database " + name + " template " + from + " strategy file_copy"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := administer("drop database " + name + " with (force)"); err != nil { // a pooler stays connected
			t.Errorf("drop the test's database: %v", err)
		}
	})
	config.Schema = clonedSchema
	b := &bundle{config: config, dsn: inDatabase(t, dsn, name)}
	b.pool = newPool(t, b.dsn, size)
	b.Store = open(t, b.pool, b.config)
	return b
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lease leases all partitions for a relay.
func (b *bundle) lease(t *testing.T, name string) []store.Lease {
	t.Helper()
	return b.leaseAll(t, name)
}

func (b *bundle) leaseAll(t testing.TB, name string) []store.Lease {
	t.Helper()
	n, err := b.Partitions(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	leases, err := b.Acquire(context.Background(), name, store.Owner{ID: "owner-of-" + name}, acquire(all...))
	if err != nil || len(leases) != n {
		t.Fatalf("leased %+v, %v", leases, err)
	}
	return leases
}

// acquire requests the leases of partitions.
func acquire(partitions ...int) store.AcquireRequest {
	req := store.AcquireRequest{TTL: time.Hour}
	for _, p := range partitions {
		req.Claims = append(req.Claims, store.LeaseClaim{Partition: p, Token: store.NewToken()})
	}
	return req
}
