package operations_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// world is a PostgreSQL and a NATS server of its own, and processes of the program that run relays between them.
type world struct {
	t        *testing.T
	dir      string
	cluster  *process.Postgres
	database *process.Server
	nats     *process.Server
	db       *pgxpool.Pool

	absent atomic.Bool // the process of the consumers does not answer Prometheus

	mu      sync.Mutex
	load    map[string]bool // topics that get messages
	targets []http.Handler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), load: make(map[string]bool)}
	base, err := os.MkdirTemp("", "postrider-operations-") //nolint:usetesting // PostgreSQL runs as another user
	must(t, err)
	must(t, os.Chmod(base, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	w.cluster, err = process.NewPostgres(t.Context(), base)
	must(t, err)
	w.startDatabase()
	t.Cleanup(func() { _ = w.database.Kill() })
	w.startNATS(0)
	t.Cleanup(func() { _ = w.nats.Kill() })
	w.postrider("migrate", "up", "--store", w.database.URL)
	c, err := pgxpool.ParseConfig(w.database.URL)
	must(t, err)
	c.MaxConns = 30 // consumers that hang keep some
	w.db, err = pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(w.db.Close)
	return w
}

func (w *world) startDatabase() {
	w.t.Helper()
	var err error
	w.database, err = w.cluster.Start(context.WithoutCancel(w.t.Context()))
	must(w.t, err)
}

// startNATS starts the broker, on the port that it had.
func (w *world) startNATS(port int) {
	w.t.Helper()
	var err error
	w.nats, err = process.StartNATS(context.WithoutCancel(w.t.Context()), servertest.Get(w.t, servertest.NATSBin), w.dir, port)
	must(w.t, err)
}

// postrider runs a command of the program.
func (w *world) postrider(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "POSTRIDER_STORE_URL="+w.database.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("postrider %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// program is a process that runs relays; it can be started again.
type program struct {
	*process.Process
	start func() *process.Process
}

// configure writes the configuration of all processes.
func (w *world) configure(relays ...string) {
	w.t.Helper()
	text := fmt.Sprintf("store: {url: %q}\nrelays:\n  - %s\ntelemetry: {read_every: 500ms}\n", w.database.URL, strings.Join(relays, "\n  - "))
	must(w.t, os.WriteFile(filepath.Join(w.dir, "postrider.yaml"), []byte(text), 0o600))
}

// relays starts a process with relays of the configuration, which Prometheus scrapes.
func (w *world) relays(only string) *program {
	w.t.Helper()
	port := servertest.Port(w.t)
	w.targets = append(w.targets, proxy(port))
	name := fmt.Sprintf("%s-%d", only, port)
	p := &program{start: func() *process.Process {
		started, err := process.Start(context.WithoutCancel(w.t.Context()), process.Command{
			Name: name, Path: binary, Log: filepath.Join(w.dir, name+".log"), Ready: "relay works",
			Args: []string{"relay", "--config", filepath.Join(w.dir, "postrider.yaml"), "--only", only, "--metrics", fmt.Sprintf("127.0.0.1:%d", port)},
		})
		must(w.t, err)
		return started
	}}
	p.Process = p.start()
	w.t.Cleanup(func() {
		_ = p.Kill()
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", name, p.Tail())
		}
	})
	return p
}

// restart starts it again; it has ended.
func (p *program) restart() { p.Process = p.start() }

// proxy forwards scrapes to the port of a process, which may be gone.
func proxy(port int) http.Handler {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	return p
}

// publishing says whether messages are published to topics all the time.
func (w *world) publishing(is bool, topics ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, topic := range topics {
		w.load[topic] = is
	}
}

// publish publishes in SQL, until the test ends. While the database is down, it publishes nothing.
func (w *world) publish() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var done sync.WaitGroup
	w.t.Cleanup(func() { cancel(); done.Wait() })
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			w.mu.Lock()
			var topics []string
			for topic, is := range w.load {
				if is {
					topics = append(topics, topic)
				}
			}
			w.mu.Unlock()
			for _, topic := range topics {
				_ = w.send(ctx, topic, fmt.Sprint(n%50))
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
}

func (w *world) send(ctx context.Context, topic, key string) error {
	_, err := w.db.Exec(ctx, `select postrider_publish($1, $2, 't', '{}')`, topic, key)
	return err
}

// lockLeases locks the leases of a relay, as a session that somebody has forgotten, until the returned function is called.
func (w *world) lockLeases(relay string) (unlock func()) {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	must(w.t, err)
	rows, err := tx.Query(w.t.Context(), `select partition from postrider_leases where relay = $1 for update`, relay)
	must(w.t, err)
	if locked, err := pgx.CollectRows(rows, pgx.RowTo[int16]); err != nil || len(locked) != 8 {
		w.t.Fatalf("locked %v: %v", locked, err)
	}
	unlock = sync.OnceFunc(func() { must(w.t, tx.Rollback(context.WithoutCancel(w.t.Context()))) })
	w.t.Cleanup(unlock)
	return unlock
}

// refuseLeases makes the database refuse to grant leases of a relay, until the returned function is called.
func (w *world) refuseLeases(relay string) (allow func()) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), fmt.Sprintf(`create function refuse() returns trigger language plpgsql as
		'begin raise exception ''permission denied''; end';
		create trigger refuse before insert or update on postrider_leases for each row when (new.relay = '%s' and new.owner <> '') execute function refuse()`, relay))
	must(w.t, err)
	return func() {
		_, err := w.db.Exec(w.t.Context(), `drop trigger refuse on postrider_leases`)
		must(w.t, err)
	}
}
