package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// movedClockSQL replaces the clock of a database by one that can be set: a table says how far it is ahead. The server calls its own functions by
// number, whatever their definition is, but puts a body in SQL that is one call, and not strict, in their place.
const movedClockSQL = `
create table public.clock (ahead interval not null);
insert into public.clock values ('0');
create function public.real_clock() returns timestamptz volatile strict parallel safe language internal as 'clock_timestamp';
create function public.moved_clock() returns timestamptz volatile language sql
	as $$select public.real_clock() operator(pg_catalog.+) (select c.ahead from public.clock c)$$;
create or replace function pg_catalog.clock_timestamp() returns timestamptz volatile language sql as 'select public.moved_clock()';
create or replace function pg_catalog.statement_timestamp() returns timestamptz volatile language sql as 'select public.moved_clock()';
create or replace function pg_catalog.now() returns timestamptz volatile language sql as 'select public.moved_clock()'`

// clockLeases are longer than a slow machine needs between a kill and a jump. They must not end during the test for another reason: backends
// that wait look as if they did so for as long as the clock is ahead, since the server notes when they began by its own clock.
const clockLeases = 15 * time.Second

// TestSagaClockJumps (A05): the clock of the database jumps by an hour, forth and back, while two engines share its partitions and sagas wait.
// A timer fires once, when its time has come by this clock, not sooner; and what needs no timer goes on meanwhile, and happens once.
func TestSagaClockJumps(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	p.exec(movedClockSQL)
	w := newClockWorld(p)

	soon, later := w.start("soon", 1)[0], w.start("later", 1)[0]
	w.inTime(w.jump(0), asleep) // the clock goes as usual
	w.open(soon, later)
	w.inTime(w.jump(time.Hour), asleep)
	w.inTime(soon, 30*time.Minute)

	dies := w.startChild(child{Role: sagaSleeper, URL: p.url, Leases: clockLeases}, childWorks)
	await(t, "all three processes have partitions", func() string { return w.unless(3) })
	waits := w.start("soon", 1)[0]
	_ = dies.Kill() // it may have ended
	naps := []string{w.jump(-time.Hour)}
	naps = append(naps, w.start("sleep", 40)...)
	await(t, "sagas that were started after the jump end", func() string {
		open, err := w.s.ListSagas(t.Context(), store.SagaFilter{Saga: "sleep", Status: store.OpenSagaStatuses}, "", 100)
		if err != nil {
			return err.Error()
		}
		if len(open) == len(naps) {
			return "none has ended"
		}
		return ""
	})
	w.open(waits, later)
	if few := w.unless(3); few != "" {
		t.Errorf("%s, want also the process that died: a clock that is set back prolongs its leases", few)
	}

	naps = append(naps, w.jump(2*time.Hour))
	for _, run := range naps {
		w.inTime(run, asleep)
	}
	w.inTime(waits, 30*time.Minute)
	w.inTime(later, 2*time.Hour)
	w.worked()
	if left, err := w.s.ListSagas(t.Context(), store.SagaFilter{Status: store.OpenSagaStatuses}, "", 10); err != nil || len(left) > 0 {
		t.Errorf("%d sagas are open (%v)", len(left), err)
	}
}

// clockWorld is a world whose database has a clock that can be set, and in which sagas that do not wait are started all the time.
type clockWorld struct {
	*sleeperWorld[pgx.Tx]
	stop    func()
	started []string // what works
}

func newClockWorld(p *postgresWorld) *clockWorld {
	w := new(clockWorld)
	for range 2 { // processes
		s, err := openSagaPostgres(p.t.Context(), p.url)
		if err != nil {
			p.t.Fatal(err)
		}
		w.sleeperWorld = newSleeperWorld[pgx.Tx](p.world, s, p.url)
		box, e, all, err := newSleeper(s)
		if err != nil {
			p.t.Fatal(err)
		}
		w.box, w.all = box, all
		r, err := sleeperRelay(s, e, relay.Config{LeaseTTL: clockLeases, Logger: testLogger(p.t)})
		if err != nil {
			p.t.Fatal(err)
		}
		w.run(r)
	}
	w.keepWorking()
	return w
}

// keepWorking starts sagas until stop is called.
func (w *clockWorld) keepWorking() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var working sync.WaitGroup
	w.stop = func() {
		cancel()
		working.Wait()
	}
	w.t.Cleanup(w.stop)
	working.Go(func() {
		for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; {
			id := postrider.NewID()
			if _, err := w.box.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx pgx.Tx) error {
				_, err := w.all["work"].Start(ctx, tx, nap{id}, saga.ID(id))
				return err
			}); err != nil {
				w.t.Errorf("start a saga: %v", err)
			}
			w.started = append(w.started, id)
			<-every.C
		}
	})
}

// jump sets the clock and starts a saga that sleeps, which must see it.
func (w *clockWorld) jump(ahead time.Duration) (run string) {
	w.t.Helper()
	w.exec(fmt.Sprintf("update public.clock set ahead = make_interval(secs => %f)", ahead.Seconds()))
	run = w.start("sleep", 1)[0]
	h, err := w.s.SagaHistory(w.t.Context(), run, 0, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	if off := h[0].At.Sub(time.Now().Add(ahead)).Abs(); off > 10*time.Minute {
		w.t.Fatalf("the clock of the database did not move: a saga was started at %s, and it is %s", h[0].At, time.Now())
	}
	return run
}

// worked stops starting sagas, and checks that each did its work, once.
func (w *clockWorld) worked() {
	w.t.Helper()
	w.stop()
	await(w.t, "all sagas have ended", func() string {
		open, err := w.s.ListSagas(w.t.Context(), store.SagaFilter{Saga: "work", Status: store.OpenSagaStatuses}, "", 1000)
		if err != nil {
			return err.Error()
		}
		if len(open) > 0 {
			return fmt.Sprintf("%d are open", len(open))
		}
		return ""
	})
	var rows, sagas int
	if err := w.db.QueryRowContext(w.t.Context(), "select count(*), count(distinct subject) from postrider_log where type = 'worked'").Scan(&rows, &sagas); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("%d sagas worked meanwhile", sagas)
	if len(w.started) == 0 || rows != len(w.started) || sagas != len(w.started) {
		w.t.Errorf("a promise broke: %d sagas were started; %d did their work, %d times", len(w.started), sagas, rows)
	}
}

// unless says how many processes have partitions, unless so many have.
func (w *clockWorld) unless(processes int) string {
	w.t.Helper()
	var n int
	if err := w.db.QueryRowContext(w.t.Context(), "select count(distinct owner) from postrider_leases where owner <> ''").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	if n == processes {
		return ""
	}
	return fmt.Sprintf("%d processes have partitions", n)
}

// open checks that sagas have not gone on.
func (w *clockWorld) open(runs ...string) {
	w.t.Helper()
	for _, run := range runs {
		if h, err := w.s.SagaHistory(w.t.Context(), run, 0, 10); err != nil || len(h) != 1 {
			w.t.Errorf("a promise broke: a timer fired before its time: %+v, %v", h, err)
		}
	}
}

// inTime waits until a saga's timer has fired.
func (w *clockWorld) inTime(run string, after time.Duration) {
	w.t.Helper()
	f := w.fires(run)
	if f.at.Sub(f.from) < after {
		w.t.Errorf("a promise broke: a timer of %s fired after %s", after, f.at.Sub(f.from))
	}
}
