package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/servertest"
)

// newPostgres returns the URL of a fresh, empty schema on the test server.
func newPostgres(t *testing.T) string {
	t.Helper()
	server := servertest.Get(t, servertest.Postgres)
	schema := "cmd_" + strings.ToLower(rand.Text()[:10])
	execute := func(ctx context.Context, statement string) {
		conn, err := pgx.Connect(ctx, server)
		must(t, err)
		_, err = conn.Exec(ctx, statement)
		must(t, err)
		must(t, conn.Close(ctx))
	}
	execute(t.Context(), "CREATE SCHEMA "+schema)
	t.Cleanup(func() { execute(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	joint := "?"
	if strings.Contains(server, "?") {
		joint = "&"
	}
	return server + joint + "schema=" + schema
}

func TestPostgresFromMigrationToRelay(t *testing.T) {
	t.Parallel()
	url, broker := newPostgres(t), startNATS(t)
	fails(t, exitFailed, "postrider migrate up", "status", "--store", url)
	fails(t, exitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--store", url)
	contains(t, ok(t, "migrate", "up", "--store", url+"&partitions=3"), "up 0001_")
	ok(t, "migrate", "status", "--store", url)
	contains(t, ok(t, "migrate", "print", "--store", url), "create table")
	contains(t, ok(t, "status", "--store", url), "3 partitions")

	publishKeys(t, url, "order/1", "order/2", "order/1")
	if n := strings.Count(ok(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json"), "\n"); n != 3 {
		t.Errorf("tail shows %d messages", n)
	}
	follower := start(t, nil, "tail", "--store", url, "--from", "1h")
	follower.out.await(t.Context(), t, "order/2")

	r := start(t, nil, "relay", "--store", url+"&notify=5ms", "--publisher", broker+"?stream=ORDERS")
	r.err.await(t.Context(), t, "relay works")
	arrivals(t, broker, "ORDERS", 3)
	publishKeys(t, url, "order/3")
	arrivals(t, broker, "ORDERS", 4)
	follower.out.await(t.Context(), t, "order/3")
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
	follower.end(t)
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url), "not held; its partition has a backlog of 0")
	contains(t, ok(t, "migrate", "down", "--to", "0", "--yes", "--store", url), "down 0001_")
}

func TestPostgresDeadAndHeld(t *testing.T) {
	t.Parallel()
	url := newPostgres(t)
	ok(t, "migrate", "up", "--store", url)
	publishKeys(t, url, "order/1", "order/1", "order/2")
	hold(t, url, "to-nats")
	contains(t, ok(t, "held", "show", "order/1", "--store", url), "2 messages")
	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "later", "--store", url)
	contains(t, ok(t, "dead", "list", "--key", "order/1", "--from", "1h", "--store", url), "later")
	contains(t, ok(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url), "redriven 2 dead letters")
	fails(t, exitFailed, "no such dead letter", "dead", "show", "99", "--store", url)
}

func TestPostgresThatCannotBeReached(t *testing.T) {
	t.Parallel()
	r := run(t, "status", "--store", "postgres://nobody:secret@127.0.0.1:1/none")
	expect(t, r, exitFailed, "connect to postgres://nobody:xxxxx@127.0.0.1:1/none")
	if strings.Contains(r.err, "secret") {
		t.Errorf("the error gives the password away:\n%s", r.err)
	}
}

// TestPostgresSaysWhatToDo: an error in a URL, a server or a role includes its fix, in one line.
func TestPostgresSaysWhatToDo(t *testing.T) {
	t.Parallel()
	mine, err := url.Parse(newPostgres(t))
	must(t, err)
	refused := func(words string, change func(u *url.URL), args ...string) {
		t.Helper()
		u := *mine
		change(&u)
		r := run(t, append(args, "--store", u.String())...)
		expect(t, r, exitFailed, words, args...)
		if strings.Count(r.err, "\n") != 1 {
			t.Errorf("more than one line:\n%s", r.err)
		}
	}
	refused("is the server running there, and may one connect", func(u *url.URL) { u.Host = "127.0.0.1:1" }, "status")
	refused(`; make it with CREATE DATABASE "not_there", or name another`, func(u *url.URL) { u.Path = "/not_there" }, "status")
	refused("; ", func(u *url.URL) { u.User = url.UserPassword("nobody_of_that_name", "wrong") }, "status") // the rest depends on pg_hba.conf
	refused("; of the options in the URL, deliver_after_flush, notify, partitions, prefix, schema are Postrider's", func(u *url.URL) { u.RawQuery += "&colour=blue" }, "status")
	refused("make it first, as the owner of the database: create schema not_there", func(u *url.URL) {
		query := u.Query()
		query.Set("schema", "not_there")
		u.RawQuery = query.Encode()
	}, "migrate", "up")
}

func TestDemoOnPostgresRemovesItsSchema(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), servertest.Get(t, servertest.Postgres)
	u, err := url.Parse(server)
	must(t, err)
	u.Path = "/cmd_demo_" + strings.ToLower(rand.Text()[:10])
	admin, err := pgx.Connect(ctx, server)
	must(t, err)
	_, err = admin.Exec(ctx, "CREATE DATABASE "+u.Path[1:])
	must(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+u.Path[1:]+" WITH (FORCE)")
		must(t, err)
		must(t, admin.Close(context.Background()))
	})

	contains(t, ok(t, "demo", "--for", "3s", "--store", u.String()), "Every promise was kept.")

	conn, err := pgx.Connect(ctx, u.String())
	must(t, err)
	defer conn.Close(context.Background())
	var left int
	must(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'postrider_demo_')").Scan(&left))
	if left != 0 {
		t.Errorf("%d schemas are left behind", left)
	}
}
