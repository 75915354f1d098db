package crash

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

//go:embed testdata/mysql.sql
var mysqlSQL string

// mysqlWorld is a world whose outbox is in a database on MySQL or MariaDB.
type mysqlWorld struct {
	*world
	server *url.URL
	name   string // of the database
	db     *sql.DB
}

// newMySQLWorld creates a database on the test server, creates the outbox in it with the binary, and starts a JetStream
// server.
func newMySQLWorld(t *testing.T, relaySettings string) *mysqlWorld {
	t.Helper()
	dir := t.TempDir()
	w := &mysqlWorld{world: &world{t: t, dir: dir, start: startsNATS(t, dir)}}
	var err error
	if w.server, err = url.Parse(servertest.Get(t, servertest.MySQL)); err != nil {
		t.Fatalf("POSTRIDER_TEST_MYSQL: %v", err)
	}
	w.name = "crash_" + strings.ToLower(rand.Text()[:10])
	admin := w.connectMySQL("")
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+w.name); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP DATABASE "+w.name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	in := *w.server
	in.Path = "/" + w.name
	w.dsn = in.String()
	w.postrider("migrate", "up", "--store", w.dsn)
	w.db = w.connectMySQL(w.name)
	for statement := range strings.SplitSeq(mysqlSQL, "\n\n") {
		if _, err := w.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("set up the load's tables: %v\n%s", err, statement)
		}
	}
	w.stream = w.newStream()
	w.configure(w.broker.URL+"?stream=ACCOUNTS&dedupe_window=100ms", relaySettings)
	return w
}

// newStream starts the broker and creates a stream with the shortest possible dedupe window.
func (w *mysqlWorld) newStream() jetstream.Stream {
	w.t.Helper()
	w.startBroker(0)
	w.t.Cleanup(func() {
		if err := w.broker.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	nc, err := nats.Connect(w.broker.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	stream, err := js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "ACCOUNTS", Subjects: []string{"ACCOUNTS.>"}, Duplicates: shortestDedupe,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return stream
}

func (w *mysqlWorld) connectMySQL(database string) *sql.DB {
	w.t.Helper()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", w.server.Host, w.server.User.Username(), database
	c.Passwd, _ = w.server.User.Password()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		w.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	w.t.Cleanup(func() { _ = db.Close() })
	return db
}

// startSlap starts mariadb-slap with 16 connections, each of which runs transactions for a time.
func (w *mysqlWorld) startSlap(duration time.Duration) *process.Process {
	w.t.Helper()
	args := []string{
		"--no-defaults", "--host=" + w.server.Hostname(), "--port=" + w.server.Port(), "--user=" + w.server.User.Username(),
		"--protocol=tcp", "--create-schema=" + w.name, "--no-drop", "--concurrency=16", "--number-of-queries=16",
		"--query=CALL work(" + strconv.Itoa(max(int(duration.Seconds()), 1)) + ")",
	}
	if password, ok := w.server.User.Password(); ok {
		args = append(args, "--password="+password)
	}
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "mariadb-slap", Path: servertest.Get(w.t, servertest.MariaDBSlapBin), Args: args, Log: filepath.Join(w.dir, "slap.log"),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Kill() })
	return p
}

// facts reads the committed facts from the history, and checks the history against the accounts: each counter says how
// many there are.
func (w *mysqlWorld) facts() []Fact {
	w.t.Helper()
	var wrong int
	if err := w.db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM accounts a WHERE counter <>
		(SELECT COUNT(DISTINCT counter) FROM history WHERE account = a.id)`).Scan(&wrong); err != nil {
		w.t.Fatal(err)
	}
	if wrong > 0 {
		w.t.Fatalf("the load itself is wrong: %d accounts have another counter than steps", wrong)
	}
	rows, err := w.db.QueryContext(w.t.Context(), "SELECT account, counter, transaction FROM history")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var facts []Fact
	for rows.Next() {
		var f Fact
		if err := rows.Scan(&f.Account, &f.Counter, &f.Transaction); err != nil {
			w.t.Fatal(err)
		}
		facts = append(facts, f)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return facts
}

// slowest is the 99th percentile of the time that publishing took in the database.
func (w *mysqlWorld) slowest() time.Duration {
	w.t.Helper()
	var micros int64
	if err := w.db.QueryRowContext(w.t.Context(), `SELECT took FROM (SELECT took, PERCENT_RANK() OVER (ORDER BY took) AS place FROM history) h
		WHERE place >= 0.99 ORDER BY place LIMIT 1`).Scan(&micros); err != nil {
		w.t.Fatal(err)
	}
	return time.Duration(micros) * time.Microsecond
}

// TestCrashMySQL: mariadb-slap publishes in its transactions while the relay is killed three times and one transaction
// stays open throughout. Nothing is lost, nothing invented, the order of each key is kept, and there are no deadlocks.
func TestCrashMySQL(t *testing.T) {
	t.Parallel()
	w := newMySQLWorld(t, shortLease)
	duration := loadTime(t, 10*time.Second)
	relay := w.startRelay()
	open, err := w.db.BeginTx(t.Context(), nil) // REPEATABLE READ
	if err == nil {
		_, err = open.ExecContext(t.Context(), "CALL step(0, 50)")
	}
	if err != nil {
		t.Fatalf("publish in a transaction that stays open: %v", err)
	}
	began := time.Now()
	load := w.startSlap(duration)
	w.awaitDelivery(load, "the start")
	const kills = 3
	for i := range kills {
		<-time.After(time.Until(began.Add(duration * time.Duration(i+1) / (kills + 1))))
		w.killRelay(relay)
		relay = w.startRelay()
		w.awaitDelivery(load, "a kill of the relay")
	}
	w.awaitLoad(load, duration)
	if err := open.Commit(); err != nil {
		t.Fatalf("commit the long transaction: %v", err)
	}
	outcome := w.check(w.facts())
	t.Logf("after %s of load: %s; publishing took up to %s (p99)", duration, outcome, w.slowest())
	if !outcome.Kept() {
		t.Errorf("a promise broke: %q", outcome.Examples)
	}
	if outcome.Committed < 10*int(duration.Seconds()) {
		t.Errorf("only %d transactions were committed in %s: that is no load", outcome.Committed, duration)
	}
	w.await("the status shows that all is delivered", func() bool { return w.settled() == "" })
	w.stopRelay(relay)
	w.checkDeadlocks()
}

// checkDeadlocks checks whether the server's last deadlock was in this database.
func (w *mysqlWorld) checkDeadlocks() {
	w.t.Helper()
	var kind, name, status string
	if err := w.db.QueryRowContext(w.t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status); err != nil {
		w.t.Fatal(err)
	}
	_, deadlock, found := strings.Cut(status, "LATEST DETECTED DEADLOCK")
	deadlock, _, _ = strings.Cut(deadlock, "\nTRANSACTIONS\n")
	if found && strings.Contains(deadlock, w.name) {
		w.t.Errorf("there was a deadlock:\n%s", deadlock)
	}
}
