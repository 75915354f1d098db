package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

const (
	amongFew     = "Postrider, few instances wait"
	amongMany    = "Postrider, 30 times as many instances wait as -messages says"
	manyEnded    = "Postrider, as many have ended"
	timersAtOnce = "Postrider, timers that are due at once"
	timersOpenTx = "Postrider, the same while a transaction is left open"
	freshAlone   = "Postrider, signals while no timer is due"
	freshAmong   = "Postrider, signals while as many timers as -messages says are due"

	figureList  = "list"  // ms, the stuck instances
	figureCount = "count" // ms, the open instances
)

// waitingSuite takes transitions of some instances while many others wait or have ended.
var waitingSuite = suite{
	name: "saga-waiting", title: "Transitions of some instances while others wait, or have ended; one in a transaction", figure: figureRate, unit: "transitions/s",
	slow: true, long: true, share: 0.01, also: append([]report.Column{
		{Figure: figureStatements, Title: "idle statements/s"}, {Figure: figureList, Title: "list, ms"}, {Figure: figureCount, Title: "count, ms"},
		{Figure: figureRSS, Title: "peak memory of the program, MiB"},
	}, sagaColumns...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, "create extension if not exists pg_stat_statements"); err != nil {
			return nil, err
		}
		many := 30 * b.options.messages // a million, by default
		var entries []entry
		for _, of := range []struct {
			name, with, status string
			n                  int
		}{{amongFew, "", "running", 1000}, {amongMany, amongFew, "running", many}, {manyEnded, amongFew, "completed", many}} {
			c := &crowd{transitions: transitions{b: b}}
			if err := c.fill(ctx, of.status, of.n); err != nil {
				return nil, err
			}
			entries = append(entries, entry{name: of.name, role: report.Ours, limit: of.with, prepare: c.prepare, run: c.run})
		}
		return entries, nil
	},
}

// crowd is an engine with many instances that do nothing.
type crowd struct {
	transitions
	started int
}

// fill makes copies of an instance that waits, or of one that has ended.
func (c *crowd) fill(ctx context.Context, status string, n int) (err error) {
	if c.s, err = newSagas(ctx, c.b, fulfilment(), 1); err != nil {
		return err
	}
	if err := c.s.start(ctx, 0, 1); err != nil {
		return err
	}
	c.started = 1
	if status == "completed" {
		for _, step := range orderSteps {
			if err := c.s.answer(ctx, step); err != nil {
				return err
			}
		}
		if err := c.handle(ctx, 1, c.s.expectEnds(1).all); err != nil {
			return err
		}
	}
	c.s.commands = nil
	var columns string
	if err := c.b.pool.QueryRow(ctx, `select string_agg(quote_ident(attname), ', ') from pg_attribute
		where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attname not in ('run', 'id')`, c.s.prefix+"sagas").Scan(&columns); err != nil {
		return err
	}
	_, err = c.b.pool.Exec(ctx, fmt.Sprintf(`insert into %[1]ssagas (run, id, %[2]s)
		select 'run-' || lpad(i::text, 10, '0'), 'other-' || i, %[2]s from %[1]ssagas, generate_series(1, %[3]d) i where status = '%[4]s'`,
		c.s.prefix, columns, n, status))
	if err == nil {
		_, err = c.b.pool.Exec(ctx, "vacuum analyze "+c.s.prefix+"sagas")
	}
	return err
}

// prepare starts further instances, and answers their first step.
func (c *crowd) prepare(ctx context.Context) error {
	c.s.commands = nil
	err := c.s.start(ctx, c.started, c.b.n)
	if err == nil {
		err = c.s.answer(ctx, "reserve")
	}
	c.started += c.b.n
	if err != nil {
		return err
	}
	return resetPeak()
}

// run handles the answers, looks at the instances, and then waits.
func (c *crowd) run(ctx context.Context) (report.Figures, error) {
	r, err := c.s.engineRelay(relay.Config{Concurrency: 1, TxBatch: 1})
	if err != nil {
		return nil, err
	}
	done, idle := expectEffects(c.b.n), make(chan struct{})
	c.s.observe(func(observe.Transitioned) { done.begin(); done.end() })
	ended := make(chan error, 1)
	go func() { ended <- runUntil(ctx, r, idle) }()
	var figures report.Figures
	select {
	case <-done.all:
		figures, err = c.look(ctx)
		close(idle)
		if runErr := <-ended; err == nil {
			err = runErr
		}
	case err = <-ended:
	}
	if err != nil {
		return nil, err
	}
	figures[figureRate] = float64(c.b.n) / done.ended.Sub(done.began).Seconds()
	figures[figureRSS], err = peakRSS(os.Getpid())
	return figures, err
}

// look measures what tools read, and the statements of an engine that has nothing to do.
func (c *crowd) look(ctx context.Context) (report.Figures, error) {
	began := time.Now()
	if _, err := c.s.store.ListSagas(ctx, store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck}}, "", 50); err != nil {
		return nil, err
	}
	listed := time.Now()
	if _, err := c.s.store.CountSagas(ctx); err != nil {
		return nil, err
	}
	counted := time.Now()
	var before, after int64
	const settle, watch = time.Second, 4 * time.Second
	for _, read := range []struct {
		wait time.Duration
		into *int64
	}{{settle, &before}, {watch, &after}} {
		select {
		case <-time.After(read.wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := c.b.pool.QueryRow(ctx, callsSQL).Scan(read.into); err != nil {
			return nil, err
		}
	}
	return report.Figures{
		figureList: milliseconds(listed.Sub(began)), figureCount: milliseconds(counted.Sub(listed)),
		figureStatements: float64(after-before) / watch.Seconds(),
	}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timersSuite lets the timeouts of many instances end at the same moment.
var timersSuite = suite{
	name: "saga-timers", title: "Instances whose timeouts end at the same moment", figure: figureRate, unit: "timers/s", long: true, most: 1,
	also: append([]report.Column{{Figure: figureRSS, Title: "peak memory of the program, MiB"}}, sagaColumns...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
			return nil, err
		}
		t, alone, among := &timers{b: b}, &timers{b: b, fresh: b.n / 4}, &timers{b: b, due: b.n, fresh: b.n / 4}
		t.due = b.n
		return []entry{
			{name: timersAtOnce, role: report.Ours, prepare: t.prepare, run: t.run},
			{name: timersOpenTx, role: report.Ours, limit: timersAtOnce, prepare: t.prepare, run: func(ctx context.Context) (figures report.Figures, err error) {
				err = b.whileOpen(ctx, func() error { figures, err = t.run(ctx); return err })
				return figures, err
			}},
			{name: freshAlone, role: report.Ours, messages: alone.fresh, prepare: alone.prepare, run: alone.runFresh},
			{name: freshAmong, role: report.Ours, messages: among.fresh, limit: freshAlone, prepare: among.prepare, run: among.runFresh},
		}, nil
	},
}

// timers are instances that wait: those whose timers are due, and those that get a signal.
type timers struct {
	b          *bundle
	s          *sagas
	due, fresh int
}

var resumed = postrider.Define[part]("order.resumed")

// prepare starts instances that wait for an hour, parks their timers, lets the hour pass for those that are due, and sends the others
// their signals.
func (t *timers) prepare(ctx context.Context) (err error) {
	asleep := saga.Definition[placedOrder]{Name: "asleep", Version: 1, Steps: []saga.Step[placedOrder]{
		saga.Await[placedOrder, part]{Name: "sleep", Signal: resumed, Timeout: time.Hour, TimedOut: func(*placedOrder) {}},
	}}
	if t.s, err = newSagas(ctx, t.b, asleep, 0); err != nil {
		return err
	}
	if err := t.s.start(ctx, 0, t.due+t.fresh); err != nil {
		return err
	}
	r, err := t.s.engineRelay(relay.Config{})
	if err != nil {
		return err
	}
	parked := make(chan struct{})
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if t.b.await(waiting, fmt.Sprintf("select count(*) = %d from %sparked", t.due+t.fresh, t.s.prefix)) == nil {
			close(parked)
		}
	}()
	if err := runUntil(ctx, r, parked); err != nil {
		return err
	}
	if _, err := t.b.pool.Exec(ctx, fmt.Sprintf(`update %[1]ssagas set started_at = started_at - interval '2 hours';
		update %[1]sparked set due_at = due_at - interval '2 hours' where seq in (select seq from %[1]sparked order by seq limit %[2]d)`,
		t.s.prefix, t.due)); err != nil {
		return err
	}
	if err := t.signal(ctx); err != nil {
		return err
	}
	if _, err = t.b.pool.Exec(ctx, "vacuum analyze"); err != nil {
		return err
	}
	return resetPeak()
}

func (t *timers) run(ctx context.Context) (report.Figures, error) {
	done := expectEffects(t.b.n)
	t.s.observe(func(tr observe.Transitioned) {
		if tr.Status.Ended() {
			done.begin()
			done.end()
		}
	})
	r, err := t.s.engineRelay(relay.Config{})
	if err != nil {
		return nil, err
	}
	if err := runUntil(ctx, r, done.all); err != nil {
		return nil, err
	}
	peak, err := peakRSS(os.Getpid())
	if err != nil {
		return nil, err
	}
	return report.Figures{figureRate: float64(t.b.n) / done.ended.Sub(done.began).Seconds(), figureRSS: peak}, t.s.ended(ctx, t.b.n, 0, false)
}
