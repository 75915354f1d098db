package crash

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store"
)

// patience limits every wait for something that must happen.
const patience = 5 * time.Minute

// binary is the program under test, built as users build it.
var binary string

func TestMain(m *testing.M) {
	runConsumer()
	flag.Parse()
	var err error
	if binary, err = process.Postrider("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// loadTime is how long the load runs: short in the test suite, as set by make torture otherwise.
func loadTime(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what needs a load")
	}
	text := os.Getenv("POSTRIDER_TORTURE")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("POSTRIDER_TORTURE: %v", err)
	}
	return d
}

// inTorture chooses between the load of make torture and that of the test suite, in which many tests run at the same time.
func inTorture[T any](torture, suite T) T {
	if os.Getenv("POSTRIDER_TORTURE") != "" {
		return torture
	}
	return suite
}

// world is a database with an outbox, a JetStream server, and the processes that run relays between them.
type world struct {
	t      *testing.T
	dir    string
	dsn    string
	start  func(port int) (*process.Server, error)
	broker *process.Server
	stream jetstream.Stream
	relays int
}

//go:embed testdata/setup.sql
var setupSQL string

// newWorld creates a database on the test server, creates the outbox in it with the binary, and starts a JetStream
// server.
func newWorld(t *testing.T, relaySettings string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, start: startsNATS(t, dir)}
	w.createDatabase(servertest.Get(t, servertest.Postgres))
	w.postrider("migrate", "up", "--store", w.dsn)
	db := w.connect()
	if _, err := db.Exec(t.Context(), setupSQL); err != nil {
		t.Fatalf("set up the load's tables: %v", err)
	}
	w.startBroker(0)
	t.Cleanup(func() {
		if err := w.broker.Stop(); err != nil {
			t.Error(err)
		}
	})
	nc, err := nats.Connect(w.broker.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// The stream has the shortest dedupe window, so that it does not hide duplicates from the checker.
	if w.stream, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ACCOUNTS", Subjects: []string{"ACCOUNTS.>"}, Duplicates: shortestDedupe,
	}); err != nil {
		t.Fatal(err)
	}
	w.configure(w.broker.URL+"?stream=ACCOUNTS&dedupe_window=100ms", relaySettings)
	return w
}

// startsNATS returns a function that starts a JetStream server.
func startsNATS(t *testing.T, dir string) func(port int) (*process.Server, error) {
	bin := servertest.Get(t, servertest.NATSBin)
	return func(port int) (*process.Server, error) { return process.StartNATS(t.Context(), bin, dir, port) }
}

// configure writes the configuration of the relay.
func (w *world) configure(publisher, relaySettings string) {
	w.t.Helper()
	w.write("postrider.yaml", fmt.Sprintf(`store: {url: %q}
relays:
  - name: to-nats
    publisher: %q
%s`, w.dsn, publisher, relaySettings))
}

// shortestDedupe is the shortest dedupe window that a JetStream server accepts.
const shortestDedupe = 100 * time.Millisecond

func (w *world) createDatabase(server string) {
	w.t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		w.t.Fatalf("POSTRIDER_TEST_POSTGRES: %v", err)
	}
	name := "crash_" + strings.ToLower(rand.Text()[:10])
	admin := func(ctx context.Context, sql string) error {
		db, err := pgx.Connect(ctx, server)
		if err != nil {
			return err
		}
		_, err = db.Exec(ctx, sql)
		return errors.Join(err, db.Close(ctx))
	}
	if err := admin(w.t.Context(), "create database "+name); err != nil {
		w.t.Fatalf("create a database for the test: %v", err)
	}
	w.t.Cleanup(func() {
		if err := admin(context.Background(), "drop database "+name+" with (force)"); err != nil {
			w.t.Errorf("drop the test's database: %v", err)
		}
	})
	u.Path = "/" + name
	w.dsn = u.String()
}

func (w *world) connect() *pgx.Conn {
	w.t.Helper()
	db, err := pgx.Connect(w.t.Context(), w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// postrider runs the binary to its end and returns its output.
func (w *world) postrider(args ...string) []byte {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("postrider %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return out
}

// status is the relay's postrider status; empty before its first process has started.
func (w *world) status() store.RelayStatus {
	w.t.Helper()
	var s store.Status
	if err := json.Unmarshal(w.postrider("status", "--json", "--store", w.dsn), &s); err != nil {
		w.t.Fatalf("postrider status --json: %v", err)
	}
	switch len(s.Relays) {
	case 0:
		return store.RelayStatus{}
	case 1:
		return s.Relays[0]
	}
	w.t.Fatalf("status shows %d relays, want 1", len(s.Relays))
	panic("unreachable")
}

// startRelay starts a process of the relay.
func (w *world) startRelay() *process.Process {
	w.t.Helper()
	w.relays++
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "postrider relay", Path: binary, Args: []string{"relay", "--config", filepath.Join(w.dir, "postrider.yaml")},
		Log: filepath.Join(w.dir, fmt.Sprintf("relay-%d.log", w.relays)), Ready: "relay works",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = p.Kill()
		if w.t.Failed() {
			w.t.Logf("process %d of the relay wrote:\n%s", p.PID(), p.Tail())
		}
	})
	return p
}

// stopRelay stops a process of the relay gracefully.
func (w *world) stopRelay(p *process.Process) {
	w.t.Helper()
	if err := p.Stop(); err != nil {
		w.t.Error(err)
	} else if code := p.ExitCode(); code != 0 {
		w.t.Errorf("relay ended with exit code %d\n%s", code, p.Tail())
	}
}

func (w *world) killRelay(p *process.Process) {
	w.t.Helper()
	if err := p.Kill(); err != nil {
		w.t.Fatal(err)
	}
}

// startBroker starts the broker, on a new port if port is 0, otherwise on its old one.
func (w *world) startBroker(port int) {
	w.t.Helper()
	var err error
	if w.broker, err = w.start(port); err != nil {
		w.t.Fatal(err)
	}
}

// restartBroker stops the broker and restarts it on the same port after a time.
func (w *world) restartBroker(away time.Duration) {
	w.t.Helper()
	u, err := url.Parse(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.broker.Stop(); err != nil {
		w.t.Fatal(err)
	}
	<-time.After(away)
	w.startBroker(port)
}

// stored is the sequence of the last message in the stream.
func (w *world) stored() uint64 {
	w.t.Helper()
	info, err := w.stream.Info(w.t.Context())
	if err != nil {
		w.t.Fatalf("look at the stream: %v", err)
	}
	return info.State.LastSeq
}

// await looks until a condition holds. Some looks run a program or count all rows: the longer a look takes, the longer the pause after it.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	for began := time.Now(); ; {
		looked := time.Now()
		if holds() {
			return
		}
		if time.Since(began) > patience {
			w.t.Fatalf("waited %s in vain: %s", patience, what)
		}
		<-time.After(min(max(25*time.Millisecond, 4*time.Since(looked)), time.Second))
	}
}

// awaitDelivery waits until the stream has grown, which shows that messages flow, or until there is no load any more: on a busy machine, it may
// end before this process has looked.
func (w *world) awaitDelivery(load *process.Process, after string) {
	w.t.Helper()
	before := w.stored()
	w.await("messages flow after "+after, func() bool {
		select {
		case <-load.Done():
			return true
		default:
			return w.stored() > before
		}
	})
}
