package web_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// large fills the log with undelivered messages of $1 partitions, and adds dead letters of 40 causes.
var large = []string{
	`insert into postrider_log (partition, id, topic, key, type, source, payload)
	select n % 8, 'm-' || n, 'orders', 'order/' || n % 100000, 'order.placed', 'shop', convert_to(repeat('x', 200), 'UTF8') from generate_series(1, 10000000) as n`,
	`insert into postrider_dead (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
		content_type, headers, correlation_id, causation_id, payload, created_at, reason, cause, attempts, history, died_at, redrives, fingerprint)
	select 'to-nats', n % 8, n, 'd-' || n, 'orders', 'order/' || n, 'order.placed', 'shop', '', '', now(), 0, 0, 'application/json', '{}', '', '',
		convert_to(repeat('x', 200), 'UTF8'), now(), 'attempts exhausted', 'cause ' || n % 40, 10, '[]', now(), 0, 'print-' || n % 40
	from generate_series(1, 100000) as n`,
	"vacuum analyze postrider_log", "vacuum analyze postrider_dead",
}

// BenchmarkOverview makes an overview of 10 million messages and 100,000 dead letters, none of it from a cache.
func BenchmarkOverview(b *testing.B) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, database(b))
	check(b, err)
	defer pool.Close()
	_, err = postgres.Migrate(ctx, pool, postgres.Config{}, postgres.Latest)
	check(b, err)
	s, err := postgres.New(pool, postgres.Config{})
	check(b, err)
	var claims []store.LeaseClaim
	for partition := range 8 {
		claims = append(claims, store.LeaseClaim{Partition: partition, Token: store.NewToken()})
	}
	for _, relay := range []string{"to-nats", "to-kafka"} {
		process := store.Owner{ID: relay + "-1", Host: "a"}
		_, err = s.Heartbeat(ctx, relay, process, time.Hour)
		check(b, err)
		_, err = s.Acquire(ctx, relay, process, store.AcquireRequest{Claims: claims, TTL: time.Hour})
		check(b, err)
	}
	for _, statement := range large {
		_, err := pool.Exec(ctx, statement)
		check(b, err)
	}
	for b.Loop() {
		o, err := admin.New(s, admin.Config{}).Overview(ctx, admin.Principal{Subject: "anna", Role: admin.Viewer})
		if check(b, err); o.Dead.N == 0 || len(o.Relays) != 2 {
			b.Fatalf("%+v", o)
		}
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
