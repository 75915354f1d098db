package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/crash"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// world is a server with an outbox and the tables of the load.
type world struct {
	t      *testing.T
	dir    string
	url    string // of the database, for the binary and the stores
	db     *sql.DB
	random *rand.Rand
	relays int // processes of the binary
	// pause is the least time between two faults, and pauses what is added at random. Default: 1 s and 3 s.
	pause, pauses time.Duration
	// end is the deadline for everything to arrive: set when the first check begins.
	end time.Time
}

// awaitEnd waits until nothing is left, for up to patience for all checks together; anything left is an error.
func (w *world) awaitEnd(what string, left func() string) {
	w.t.Helper()
	if w.end.IsZero() {
		w.end = time.Now().Add(patience)
	}
	if missing := awaitUntil(w.t, w.end, left); missing != "" {
		w.t.Errorf("waited %s in vain until %s: %s", patience, what, missing)
	}
}

// awaitNone waits until left returns 0, as long as it falls: a load that a machine cannot carry leaves thousands. It reports whether none
// is left; the checks that follow have their own time.
func (w *world) awaitNone(what string, left func() (int64, error)) bool {
	w.t.Helper()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for least, deadline := int64(math.MaxInt64), time.Now().Add(patience); ; <-poll.C {
		n, err := left()
		switch {
		case err == nil && n == 0:
			w.end = time.Time{}
			return true
		case err == nil && n < least:
			least, deadline = n, time.Now().Add(patience)
		case time.Now().After(deadline):
			w.t.Errorf("%d %s, as many as %s ago (%v)", n, what, patience, err)
			return false
		}
	}
}

func newWorld(t *testing.T, dir, url string) *world {
	t.Helper()
	return &world{t: t, dir: dir, url: url, random: seeded(t), pause: time.Second, pauses: 3 * time.Second}
}

// testLogger writes warnings to a file that is printed when the test fails.
func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.Close()
		if b, err := os.ReadFile(path); err == nil && t.Failed() && len(b) > 0 {
			t.Logf("the log ends:\n%s", b[max(0, len(b)-600):])
		}
	})
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// postrider runs the binary to its end.
func (w *world) postrider(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), program, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("postrider %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// startRelay starts a process of the binary with one relay, and returns when it is ready.
func (w *world) startRelay(settings string) *process.Process {
	w.t.Helper()
	w.relays++
	config := filepath.Join(w.dir, fmt.Sprintf("postrider-%d.yaml", w.relays))
	if err := os.WriteFile(config, fmt.Appendf(nil, "store: {url: %q}\nrelays:\n%s", w.url, settings), 0o600); err != nil {
		w.t.Fatal(err)
	}
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "postrider relay", Path: program, Args: []string{"relay", "--config", config},
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

// runner is a relay or a consumer.
type runner interface {
	Run(ctx context.Context) error
	Ready() error
}

// run runs a relay or consumer until the test ends, and returns when it is ready.
func (w *world) run(r runner) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running sync.WaitGroup
	var ended error
	done := make(chan struct{})
	running.Go(func() {
		defer close(done)
		ended = r.Run(ctx)
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	await(w.t, "it works", func() string {
		select {
		case <-done:
			w.t.Fatalf("Run ended: %v", ended)
		default:
		}
		if err := r.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// newRelay returns a relay with defaults for tests.
func (w *world) newRelay(store store.Relay, cfg relay.Config) *relay.Relay {
	w.t.Helper()
	cfg.Logger, cfg.StopTimeout = testLogger(w.t), 5*time.Second
	if cfg.BackoffMax == 0 {
		cfg.BackoffMax = 500 * time.Millisecond
	}
	r, err := relay.New(store, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// facts reads the ledger.
func (w *world) facts() []crash.Fact {
	w.t.Helper()
	var facts []crash.Fact
	await(w.t, "the ledger can be read", func() string {
		var err error
		if facts, err = w.readFacts("select account, counter, transaction from ledger"); err != nil {
			return err.Error()
		}
		return ""
	})
	return facts
}

// effects reads what the handlers of a consumer have done, in order.
func (w *world) effects(consumer string) ([]crash.Fact, error) {
	return w.readFacts("select account, counter, transaction from effects where consumer = '" + consumer + "' order by n")
}

func (w *world) readFacts(text string) (facts []crash.Fact, err error) {
	rows, err := w.db.QueryContext(w.t.Context(), text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var f crash.Fact
		if err := rows.Scan(&f.Account, &f.Counter, &f.Transaction); err != nil {
			return nil, err
		}
		facts = append(facts, f)
	}
	return facts, rows.Err()
}

// awaitEffects waits until a consumer has processed all facts, and checks that it did everything once, in order.
func (w *world) awaitEffects(consumer string, facts []crash.Fact) {
	w.t.Helper()
	var done []crash.Fact
	w.awaitEnd("the effects of "+consumer+" are complete", func() string {
		var err error
		if done, err = w.effects(consumer); err != nil {
			return err.Error()
		}
		if n := missing(facts, done); n > 0 {
			return fmt.Sprintf("%d of %d are missing", n, len(facts))
		}
		return ""
	})
	if v := checkOrder(w.t, consumer, facts, done, false); v.Duplicates > 0 {
		w.t.Errorf("a promise broke: %s: %d effects happened twice", consumer, v.Duplicates)
	}
}

// awaitDelivered waits until a recorder has all facts, and checks what it has.
func (w *world) awaitDelivered(r *recorder, name string, facts []crash.Fact, phantoms bool) {
	w.t.Helper()
	w.awaitEnd(name+" has everything", func() string {
		if n := missing(facts, r.seen()); n > 0 {
			return fmt.Sprintf("%d of %d are missing", n, len(facts))
		}
		return ""
	})
	r.check(w.t, name, facts, phantoms)
}

// statusOf returns the status of relays and consumers by name.
func statusOf(ctx context.Context, st store.StatusReader) (map[string]store.RelayStatus, error) {
	s, err := st.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]store.RelayStatus)
	for _, r := range s.Relays {
		out[r.Name] = r
	}
	return out, nil
}

// awaitSettled waits until no relay has undelivered, parked, held or dead-lettered messages.
func (w *world) awaitSettled(st store.StatusReader) map[string]store.RelayStatus {
	w.t.Helper()
	var all map[string]store.RelayStatus
	w.awaitEnd("nothing is left undelivered, parked, held or dead", func() string {
		var err error
		if all, err = statusOf(w.t.Context(), st); err != nil {
			return err.Error()
		}
		for _, s := range all {
			if s.Backlog.N+s.Parked.N+s.Held.N+s.Dead.N > 0 {
				return fmt.Sprintf("%s: backlog %d, parked %d, held %d, dead %d", s.Name, s.Backlog.N, s.Parked.N, s.Held.N, s.Dead.N)
			}
		}
		return ""
	})
	return all
}

// hurt makes faults happen, each at least once, for a time.
func (w *world) hurt(least time.Duration, faults []fault) (happened int) {
	w.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for began := time.Now(); happened < len(faults) || time.Since(began) < least; happened++ {
		f := faults[happened%len(faults)]
		if happened >= len(faults) {
			f = faults[w.random.IntN(len(faults))]
		}
		<-time.After(time.Duration(200+w.random.IntN(1000)) * time.Millisecond)
		w.t.Logf("%s: %s", time.Now().Format("15:04:05.000"), f.name)
		f.happen()
	}
	return happened
}

// checkCounts checks the counter of delivered messages.
func (w *world) checkCounts(all map[string]store.RelayStatus, messages int, relays ...string) {
	w.t.Helper()
	for _, name := range relays {
		if got := all[name].Delivered; got != int64(messages) {
			w.t.Errorf("%s: the status counts %d messages as delivered, want each of %d once", name, got, messages)
		}
	}
}

// makeTables creates outbox and tables.
func (w *world) makeTables(tables string) {
	w.t.Helper()
	w.postrider("migrate", "up", "--store", w.url)
	for statement := range strings.SplitSeq(tables, ";") {
		w.exec(statement)
	}
	var rows []string
	for i := range accounts {
		rows = append(rows, fmt.Sprintf("(%d, 0)", i))
	}
	w.exec("insert into accounts (id, counter) values " + strings.Join(rows, ", "))
	w.exec("insert into totals (id, total) select id, 0 from accounts")
}

func (w *world) exec(text string) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), text); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
}
