package web_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// crowd fills a new outbox with undelivered messages of 8 partitions for two relays, and with dead letters of 40 causes.
func crowd(tb testing.TB, pool *pgxpool.Pool, messages, dead int) *postgres.Store {
	tb.Helper()
	ctx := context.Background()
	_, err := postgres.Migrate(ctx, pool, postgres.Config{}, postgres.Latest)
	check(tb, err)
	s, err := postgres.New(pool, postgres.Config{})
	check(tb, err)
	var claims []store.LeaseClaim
	for partition := range 8 {
		claims = append(claims, store.LeaseClaim{Partition: partition, Token: store.NewToken()})
	}
	for _, relay := range []string{"to-nats", "to-kafka"} {
		process := store.Owner{ID: relay + "-1", Host: "a"}
		_, err = s.Heartbeat(ctx, relay, process, time.Hour)
		check(tb, err)
		_, err = s.Acquire(ctx, relay, process, store.AcquireRequest{Claims: claims, TTL: time.Hour})
		check(tb, err)
	}
	for _, statement := range []string{
		fmt.Sprintf(`insert into postrider_log (partition, id, topic, key, type, source, payload)
		select n %% 8, 'm-' || n, 'orders', 'order/' || n %% 100000, 'order.placed', 'shop', convert_to(repeat('x', 200), 'UTF8')
		from generate_series(1, %d) as n`, messages),
		fmt.Sprintf(`insert into postrider_dead (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
			aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, cause, attempts, history, died_at,
			redrives, fingerprint)
		select 'to-nats', n %% 8, n, 'd-' || n, 'orders', 'order/' || n, 'order.placed', 'shop', '', '', now(), 0, 0, 'application/json', '{}', '', '',
			convert_to(repeat('x', 200), 'UTF8'), now(), 'attempts exhausted', 'cause ' || n %% 40, 10, '[]', now(), 0, 'print-' || n %% 40
		from generate_series(1, %d) as n`, dead),
		"vacuum analyze postrider_log", "vacuum analyze postrider_dead",
	} {
		_, err := pool.Exec(ctx, statement)
		check(tb, err)
	}
	return s
}

// overview makes an overview, none of it from a cache.
func overview(tb testing.TB, s *postgres.Store) {
	tb.Helper()
	o, err := admin.New(s, admin.Config{}).Overview(context.Background(), admin.Principal{Subject: "anna", Role: admin.Viewer})
	if check(tb, err); o.Dead.N == 0 || len(o.Relays) != 2 || len(o.Problems) < 5 {
		tb.Fatalf("%+v", o)
	}
}

// BenchmarkTenMillion is about an outbox with 10 million messages and 100,000 dead letters. On a busy machine, the time on processors says
// more than that on the clock: server-ms/op is that of the database, where it runs on this machine.
func BenchmarkTenMillion(b *testing.B) {
	pool, err := pgxpool.New(context.Background(), database(b))
	check(b, err)
	defer pool.Close()
	s := crowd(b, pool, 10_000_000, 100_000)
	b.Run("Overview", func(b *testing.B) { measured(b, pool, func() { overview(b, s) }) })
	b.Run("Doctor", func(b *testing.B) { measured(b, pool, func() { examine(b, s) }) })
	b.Run("RelayWithDoctor", func(b *testing.B) { relayWithDoctor(b, s) })
}

// measured reports how long the database was on a processor, too.
func measured(b *testing.B, pool *pgxpool.Pool, f func()) {
	b.Helper()
	f()
	began := onProcessor(b, pool)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64((onProcessor(b, pool)-began).Microseconds())/1000/float64(b.N), "server-ms/op")
}

// onProcessor returns how long the sessions of this database have been on a processor.
func onProcessor(tb testing.TB, pool *pgxpool.Pool) (out time.Duration) {
	tb.Helper()
	rows, err := pool.Query(context.Background(), "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'")
	check(tb, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	check(tb, err)
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			continue
		}
		var took time.Duration
		_, err = fmt.Sscan(string(text), &took)
		check(tb, err)
		out += took
	}
	return out
}

// counted counts statements.
type counted struct{ n atomic.Int64 }

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (*counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*counted) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counted) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.n.Add(1) }

func (*counted) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestOverviewReadsLittle: however many messages and dead letters there are, an overview takes a fixed number of statements, which read
// bounded numbers of rows, all by indices.
func TestOverviewReadsLittle(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(database(t))
	check(t, err)
	statements := &counted{}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, statements // statistics are those of one connection
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	check(t, err)
	defer pool.Close()
	s := crowd(t, pool, 60_000, 150_000)
	overview(t, s)
	type reads struct{ Scanned, Log, Dead int64 }
	look := func() reads {
		for _, flush := range []string{"select pg_stat_force_next_flush()", "select 1"} {
			_, err := pool.Exec(t.Context(), flush)
			check(t, err)
		}
		rows, err := pool.Query(t.Context(), `select sum(seq_tup_read)::int8, sum(idx_tup_fetch) filter (where relname like '%log%')::int8,
			sum(idx_tup_fetch) filter (where relname like '%dead')::int8 from pg_stat_user_tables where relname like '%log%' or relname like '%dead'`)
		check(t, err)
		out, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[reads])
		check(t, err)
		return out
	}
	before, sent := look(), statements.n.Load()
	overview(t, s)
	sent = statements.n.Load() - sent
	after := look()
	got := reads{after.Scanned - before.Scanned, after.Log - before.Log, after.Dead - before.Dead}
	// Each relay counts up to 10,000 messages and dead letters; causes are those of 50,000 dead letters, in pieces that are delimited and then counted.
	if got.Scanned != 0 || got.Log > 21_000 || got.Dead > 125_000 || sent > 60 {
		t.Errorf("an overview takes %d statements, which read %+v rows", sent, got)
	}
}

// database creates a database on PostgreSQL, and returns its URL.
func database(tb testing.TB) string {
	tb.Helper()
	u, err := url.Parse(servertest.Get(tb, servertest.Postgres))
	check(tb, err)
	name := "web_" + strings.ToLower(rand.Text())
	execute := func(statement string) {
		owner, err := pgx.Connect(context.Background(), u.String())
		check(tb, err)
		_, err = owner.Exec(context.Background(), statement)
		check(tb, err)
		check(tb, owner.Close(context.Background()))
	}
	execute("create database " + name)
	tb.Cleanup(func() { execute("drop database " + name + " with (force)") })
	made := *u
	made.Path = "/" + name
	return made.String()
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMillionDead reads lists of a million open dead letters (scenario C12): the first page takes less than 300 ms, and a search by the
// text of a cause that few have stops after two seconds, and says so.
func BenchmarkMillionDead(b *testing.B) {
	pool, err := pgxpool.New(context.Background(), database(b))
	check(b, err)
	defer pool.Close()
	service := admin.New(crowd(b, pool, 1_000, 1_000_000), admin.Config{Show: []admin.Rule{{Type: "*", Causes: true}}})
	p := admin.Principal{Subject: "anna", Role: admin.Operator}
	for name, f := range map[string]store.DeadFilter{"FirstPage": {}, "OfOneCause": {Fingerprint: "print-7"}, "ByText": {Cause: "timed out"}} {
		b.Run(name, func(b *testing.B) {
			measured(b, pool, func() {
				found, err := service.DeadLetters(context.Background(), p, f, 0, 50)
				if check(b, err); found.Complete && f.Fingerprint == "" || len(found.DeadLetters) != 50 && f.Cause == "" {
					b.Fatalf("%+v", found.FoundDead)
				}
			})
		})
	}
	b.Run("Causes", func(b *testing.B) {
		measured(b, pool, func() {
			found, err := service.Causes(context.Background(), p, store.DeadFilter{}, 100)
			if check(b, err); found.Complete || len(found.Causes) != 40 {
				b.Fatalf("%+v", found)
			}
		})
	})
}
