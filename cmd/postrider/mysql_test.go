package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/servertest"
)

// mysqlServer returns the URL of the test server, which may be MariaDB or MySQL, and a connection to it as a superuser.
func mysqlServer(t *testing.T) (*url.URL, *sql.DB) {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.MySQL))
	if err != nil || u.Host == "" {
		t.Fatalf("%s must be a URL such as mysql://root@127.0.0.1:3306/: %v", servertest.MySQL, err)
	}
	return u, connectMySQL(t, u)
}

func connectMySQL(t *testing.T, u *url.URL) *sql.DB {
	t.Helper()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.Trim(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// newMySQL returns the URL of a fresh, empty database on the test server.
func newMySQL(t *testing.T) *url.URL {
	t.Helper()
	server, admin := mysqlServer(t)
	u := *server
	u.Path = "/cmd_" + strings.ToLower(rand.Text()[:10])
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+u.Path[1:])
	must(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+u.Path[1:])
		must(t, err)
	})
	return &u
}

// newMySQLOutbox returns the URL of a fresh outbox on the test server.
func newMySQLOutbox(t *testing.T) string {
	t.Helper()
	u := newMySQL(t).String()
	ok(t, "migrate", "up", "--store", u)
	return u
}

func TestMySQLFromMigrationToRelay(t *testing.T) {
	t.Parallel()
	u, broker := newMySQL(t), startNATS(t)
	url := u.String()
	fails(t, exitFailed, "postrider migrate up", "status", "--store", url)
	fails(t, exitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--store", url)
	contains(t, ok(t, "migrate", "up", "--store", url+"?partitions=3"), "up 0001_")
	ok(t, "migrate", "status", "--store", url)
	contains(t, ok(t, "migrate", "print", "--store", url), "CREATE TABLE", "DELIMITER ;;")
	contains(t, ok(t, "status", "--store", url), "3 partitions")

	publishKeys(t, url, "order/1", "order/2")
	_, err := connectMySQL(t, u).ExecContext(t.Context(), `CALL postrider_publish('orders', 'order/1', 'order.placed', '{}', NULL)`)
	must(t, err)
	if n := strings.Count(ok(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json"), "\n"); n != 3 {
		t.Errorf("tail shows %d messages", n)
	}
	follower := start(t, nil, "tail", "--store", url, "--from", "1h")
	follower.out.await(t.Context(), t, "order/2")

	r := start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS")
	r.err.await(t.Context(), t, "relay works")
	arrivals(t, broker, "ORDERS", 3)
	publishKeys(t, url, "order/3")
	arrivals(t, broker, "ORDERS", 4)
	follower.out.await(t.Context(), t, "order/3")
	contains(t, ok(t, "status", "--store", url, "--details"), "to-nats", "alive")
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
	follower.end(t)
	contains(t, ok(t, "status", "--store", url, "--details"), "nobody")
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url), "not held; its partition has a backlog of 0")
	contains(t, ok(t, "migrate", "down", "--to", "0", "--yes", "--store", url), "down 0001_")
}

// TestMySQLReplay: a relay with a new name redelivers what another has delivered, as long as the log keeps it.
func TestMySQLReplay(t *testing.T) {
	t.Parallel()
	url, broker := newMySQLOutbox(t), startNATS(t)
	publishKeys(t, url, "order/1", "order/2", "order/1")
	settleAll(t, openOutbox(t, url), "to-nats", delivered)
	config := writeFile(t, `
store: {url: "`+url+`"}
relays:
  - {name: again, start: oldest, publisher: "`+broker+`?stream=AGAIN"}
`)
	r := start(t, nil, "relay", "--config", config)
	r.err.await(t.Context(), t, "relay works")
	got := strings.Join(arrivals(t, broker, "AGAIN", 3), "\n")
	if strings.Count(got, `"order/1"`) != 2 || strings.Count(got, `"order/2"`) != 1 {
		t.Errorf("delivered again:\n%s", got)
	}
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
}

func TestMySQLHeldAndDead(t *testing.T) {
	t.Parallel()
	url := newMySQLOutbox(t)
	head := publishID(t, url, "order/1")
	publishKeys(t, url, "order/1", "order/2")
	hold(t, url, "to-nats")
	contains(t, ok(t, "held", "list", "--store", url), "order/1", "order/2", "receiver says no")
	contains(t, ok(t, "held", "show", "order/1", "--store", url), "2 messages")
	contains(t, ok(t, "explain", head, "--store", url), "blocks its held key", "receiver says no")
	contains(t, ok(t, "held", "retry", "order/2", "--store", url), "key order/2 of relay to-nats is due at once")
	contains(t, ok(t, "held", "skip", "order/1", "--because", "broken", "--store", url), "skipped the blocking message of key order/1")
	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "later", "--store", url)
	contains(t, ok(t, "dead", "list", "--key", "order/1", "--from", "1h", "--store", url), "later")
	contains(t, ok(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url), "redriven 1 dead letter")
	fails(t, exitFailed, "no such dead letter", "dead", "show", "99", "--store", url)
	contains(t, ok(t, "explain", head, "--store", url), "discarded")

	publishKeys(t, url, "order/7", "order/8")
	deadLetterOne(t, url, "to-nats")
	var r deadletter.Redrive
	must(t, json.Unmarshal([]byte(ok(t, "redrive", "start", "--relay", "to-nats", "--yes", "--json", "--store", url)), &r))
	if r.State != deadletter.RedriveFinished || r.Done != 2 {
		t.Errorf("redrive: %+v", r)
	}
}

func TestMySQLInboxStatus(t *testing.T) {
	t.Parallel()
	url := newMySQLOutbox(t)
	contains(t, run(t, "inbox", "status", "--store", url).err, "no consumer has run on this store")
	consume(t, url)
	contains(t, ok(t, "inbox", "status", "--store", url), "CONSUMER", "view", "1 IDs", "ledger", "1 watermark", "orders/0", "4,711")
	contains(t, ok(t, "dead", "list", "--side", "consumer", "--store", url), "view", "refused")
}

func TestMySQLOutboxPartitions(t *testing.T) {
	t.Parallel()
	url := newMySQLOutbox(t)
	publishKeys(t, url, "order/1", "order/2", "order/1")
	hold(t, url, "to-nats")
	publishKeys(t, url, "order/3")
	fails(t, exitFailed, "a relay has undelivered messages: to-nats", "outbox", "partitions", "5", "--yes", "--store", url)
	settleAll(t, openOutbox(t, url), "to-nats", delivered)
	contains(t, ok(t, "outbox", "partitions", "5", "--yes", "--store", url), "has 5 partitions now, before 8; start the relays")
	contains(t, ok(t, "status", "--store", url), "5 partitions")
	contains(t, ok(t, "held", "show", "order/1", "--store", url), "2 messages")
	contains(t, ok(t, "outbox", "forget", "to-nats", "--because", "switched off", "--yes", "--discard", "--store", url), "3 messages discarded")
}

func TestDemoOnMySQLRemovesItsDatabase(t *testing.T) {
	t.Parallel()
	server := newMySQL(t)
	contains(t, ok(t, "demo", "--for", "3s", "--store", server.String()), "Every promise was kept.")
	var left int
	must(t, connectMySQL(t, server).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.tables
		WHERE table_schema = DATABASE()`).Scan(&left))
	if left != 0 {
		t.Errorf("%d tables are left behind in the database that was named", left)
	}
}

// TestMySQLSaysWhatToDo: an error in a URL, a server or a user's privileges includes its fix, without the password.
func TestMySQLSaysWhatToDo(t *testing.T) {
	t.Parallel()
	u := newMySQL(t)
	_, admin := mysqlServer(t)
	ok(t, "migrate", "up", "--store", u.String())
	publishKeys(t, u.String(), "order/1")
	user := "cmd_" + strings.ToLower(rand.Text()[:10])
	exec := func(statement string) {
		t.Helper()
		_, err := admin.ExecContext(context.Background(), statement)
		must(t, err)
	}
	exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'Secret-4711'")
	t.Cleanup(func() { exec("DROP USER " + user + "@'%'") })
	as := func(password, database string) string {
		other := *u
		other.User, other.Path = url.UserPassword(user, password), "/"+database
		return other.String()
	}
	mine := u.Path[1:]
	refused := func(words string, args ...string) {
		t.Helper()
		r := run(t, args...)
		expect(t, r, exitFailed, words, args...)
		if strings.Contains(r.err, "Secret") {
			t.Errorf("the error gives the password away:\n%s", r.err)
		}
	}
	nowhere := *u
	nowhere.Host = "127.0.0.1:1"
	refused("is the server running there", "status", "--store", nowhere.String())
	missing := *u
	missing.Path = "/not_there"
	refused("CREATE DATABASE not_there", "status", "--store", missing.String())
	refused("check the user and the password", "status", "--store", as("Secret-wrong", mine))
	refused("GRANT", "status", "--store", as("Secret-4711", mine)) // no privileges in the database
	exec("GRANT SELECT ON " + mine + ".* TO " + user + "@'%'")
	ok(t, "status", "--store", as("Secret-4711", mine))
	refused("docs/stores/mysql.md", "publish", "--store", as("Secret-4711", mine), "--type", "t", "--payload", "{}")
	refused("docs/stores/mysql.md", "outbox", "partitions", "3", "--yes", "--store", as("Secret-4711", mine))
	refused("docs/stores/mysql.md", "migrate", "down", "--to", "0", "--yes", "--store", as("Secret-4711", mine))
	fails(t, exitUsage, "names no host or no database", "status", "--store", "mysql://127.0.0.1")
	fails(t, exitUsage, "options of github.com/go-sql-driver/mysql", "status", "--store", u.String()+"?tls=perhaps")
}
