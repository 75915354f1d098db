package faults

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

const (
	// sagaSleeper is a process whose sagas sleep.
	sagaSleeper role = "saga sleeper"
	asleep           = 2 * time.Second
	sleepers         = 1000
	// sleeperLeases is how long the process that is started after a killed one waits for its partitions.
	sleeperLeases = time.Second
)

// nap is the data of a saga that sleeps.
type nap struct{ ID string }

var wakeUp = postrider.Define[nap]("wake.up")

// newSleeper returns an engine whose sagas sleep: one for asleep, "soon" for 30 minutes, "later" for two hours. "work" publishes a message
// instead.
func newSleeper[Tx any](s sagaStores[Tx]) (*outbox.Outbox[Tx], *saga.Engine[Tx], map[string]*saga.Saga[Tx, nap], error) {
	box, err := outbox.New[Tx](s, outbox.Config{Source: "sleepers"})
	if err != nil {
		return nil, nil, nil, err
	}
	e, err := saga.New[Tx](s, box, saga.Config{Name: "sleepers"})
	if err != nil {
		return nil, nil, nil, err
	}
	all := make(map[string]*saga.Saga[Tx, nap])
	for name, timeout := range map[string]time.Duration{"sleep": asleep, "soon": 30 * time.Minute, "later": 2 * time.Hour} {
		var one error
		all[name], one = saga.Register(e, saga.Definition[nap]{Name: name, Version: 1, Steps: []saga.Step[nap]{
			saga.Await[nap, nap]{Name: "nap", Signal: wakeUp, Timeout: timeout, TimedOut: func(*nap) {}},
		}})
		err = errors.Join(err, one)
	}
	var one error
	all["work"], one = saga.Register(e, saga.Definition[nap]{Name: "work", Version: 1, Steps: []saga.Step[nap]{
		saga.Local[nap, Tx]{Name: "work", NoUndo: true, Do: func(ctx context.Context, tx Tx, n *nap) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: "worked", Topic: "works", Subject: n.ID})
			return err
		}},
	}})
	return box, e, all, errors.Join(err, one)
}

// sleeperRelay returns what runs the engine.
func sleeperRelay[Tx any](s sagaStores[Tx], e *saga.Engine[Tx], cfg relay.Config) (*relay.Relay, error) {
	cfg.Name, cfg.Topics, cfg.LeaseTTL = "sleepers", []string{e.Topic()}, cmp.Or(cfg.LeaseTTL, sleeperLeases)
	r, err := relay.New(s, cfg)
	if err != nil {
		return nil, err
	}
	return r, e.Relay(r)
}

// runSleeper runs the process.
func runSleeper[Tx any](ctx context.Context, leases time.Duration, s sagaStores[Tx], err error) error {
	if err != nil {
		return err
	}
	_, e, _, err := newSleeper(s)
	if err != nil {
		return err
	}
	r, err := sleeperRelay(s, e, relay.Config{LeaseTTL: leases})
	if err != nil {
		return err
	}
	go func() {
		for poll := time.NewTicker(5 * time.Millisecond); r.Ready() != nil; {
			<-poll.C
		}
		fmt.Println(childWorks)
	}()
	return r.Run(ctx)
}

func (c child) runSleeper(ctx context.Context) error {
	if strings.HasPrefix(c.URL, "postgres:") {
		s, err := openSagaPostgres(ctx, c.URL)
		return runSleeper(ctx, c.Leases, s, err)
	}
	s, err := openSagaMySQL(ctx, c.URL)
	return runSleeper(ctx, c.Leases, s, err)
}

// TestSagaTimersCrash: 1,000 sagas sleep for two seconds, and after one, the engine's process is killed, or the database server. Each timer
// fires once and none early, by the database's clock. With POSTRIDER_TORTURE, on a machine that does nothing else, the last one fires at most
// two seconds after the restart; without a fault, they say how slow the machine is, which is added twice.
func TestSagaTimersCrash(t *testing.T) {
	t.Parallel()
	t.Run("A04 PostgreSQL", func(t *testing.T) {
		t.Parallel()
		p := newPostgresWorld(t)
		s, err := openSagaPostgres(t.Context(), p.url)
		if err != nil {
			t.Fatal(err)
		}
		newSleeperWorld[pgx.Tx](p.world, s, p.url).underKills(func() {
			_ = p.server.Signal(syscall.SIGKILL) // it may have ended
			<-p.server.Done()
			await(t, "the server starts again", func() string { // not while a process of the old one lives
				var err error
				if p.server, err = p.cluster.Start(t.Context()); err != nil {
					return err.Error()
				}
				return ""
			})
		})
	})
	t.Run("A04 MariaDB", func(t *testing.T) {
		t.Parallel()
		m := newMariaWorld(t)
		dsn := "root@tcp(" + hostOf(t, m.server.URL) + ")/shop"
		s, err := openSagaMySQL(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		newSleeperWorld[*sql.Tx](m.world, s, dsn).underKills(m.crash)
	})
}

// sleeperWorld is a world with a process of the engine.
type sleeperWorld[Tx any] struct {
	*world
	s       sagaStores[Tx]
	box     *outbox.Outbox[Tx]
	all     map[string]*saga.Saga[Tx, nap]
	child   child
	process *process.Process
}

func newSleeperWorld[Tx any](w *world, s sagaStores[Tx], url string) *sleeperWorld[Tx] {
	w.t.Helper()
	box, _, all, err := newSleeper(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return &sleeperWorld[Tx]{world: w, s: s, box: box, all: all, child: child{Role: sagaSleeper, URL: url}}
}

func (w *sleeperWorld[Tx]) underKills(restartServer func()) {
	w.process = w.startChild(w.child, childWorks)
	slow := w.wake("nothing", func() {}, asleep/2)
	w.wake("the engine", func() {
		_ = w.process.Kill() // it may have ended
		w.process = w.startChild(w.child, childWorks)
	}, 2*time.Second+2*slow)
	w.wake("the database server", restartServer, 2*time.Second+2*slow)
}

// wake starts the sleepers, kills something after a second, and returns how late the last of them was: after its time, and after the restart.
func (w *sleeperWorld[Tx]) wake(what string, kill func(), most time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	runs := w.start("sleep", sleepers)
	<-time.After(time.Until(began.Add(asleep / 2)))
	kill()
	up := w.fires(w.start("sleep", 1)[0]).from
	first, last := 0, time.Duration(0)
	for _, run := range runs {
		f := w.fires(run)
		if early := asleep - f.at.Sub(f.from); early > 0 {
			w.t.Errorf("a promise broke: a timer fired %s early", early)
		}
		if f.at.After(up) {
			first++
		}
		last = max(last, min(f.at.Sub(up), f.at.Sub(f.from.Add(asleep))))
	}
	w.t.Logf("%s was killed: %d of %d timers fired after the restart, the last one %s late", what, first, len(runs), last)
	if first == 0 {
		w.t.Errorf("all timers had fired before %s was back", what)
	}
	if quiet := os.Getenv("POSTRIDER_TORTURE") != ""; quiet && what != "nothing" && last > most {
		w.t.Errorf("the last timer was %s late, want at most %s", last, most)
	}
	return last
}

// start starts sagas in one transaction, as soon as the database takes it, and returns their runs.
func (w *sleeperWorld[Tx]) start(name string, n int) (runs []string) {
	w.t.Helper()
	await(w.t, "sagas can be started", func() string {
		var ids []string
		_, err := w.box.InTx(w.t.Context(), func(ctx context.Context, tx Tx) error {
			for range n {
				id := postrider.NewID()
				ids = append(ids, id)
				if _, err := w.all[name].Start(ctx, tx, nap{id}, saga.ID(id)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err.Error()
		}
		found, err := w.s.SagasByID(w.t.Context(), ids)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range found {
			runs = append(runs, found[i].Run)
		}
		return ""
	})
	if len(runs) != n {
		w.t.Fatalf("%d sagas were started, want %d", len(runs), n)
	}
	return runs
}

// fired is when a saga was started and when its timer fired, by the database's clock.
type fired struct{ from, at time.Time }

// fires waits until the timer of a saga has fired, once, and ended the saga.
func (w *sleeperWorld[Tx]) fires(run string) (f fired) {
	w.t.Helper()
	await(w.t, "timers fire", func() string {
		h, err := w.s.SagaHistory(w.t.Context(), run, 0, 10)
		switch {
		case err != nil:
			return err.Error()
		case len(h) == 2 && h[1].Input == "timer" && has(h[1], "timed out") && has(h[1], string(store.SagaCompleted)):
			f = fired{h[0].At, h[1].At}
			return ""
		case len(h) > 1:
			w.t.Fatalf("a promise broke: the history of a saga that only slept is %+v", h)
		}
		return "it has not fired"
	})
	return f
}

func has(t store.SagaTransition, entry string) bool {
	for _, e := range t.Entries {
		if e.Name == entry {
			return true
		}
	}
	return false
}
