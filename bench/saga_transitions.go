package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
)

const (
	handTransition   = "by hand, one in a transaction"
	handTransitions  = "by hand, 100 in a transaction"
	oursTransition   = "Postrider, one in a transaction"
	oursTransitions  = "Postrider, up to 100 in a transaction"
	oursSecondChange = "Postrider, the second change of each row"

	figureHOT = "hot" // percent of the updates of instances that changed no index

	// figureToSingle is the rate relative to that of one in a transaction.
	figureToSingle = "to_single"
)

// transitionsSuite takes one transition of each of many instances: a reply becomes a change of its row, an entry in its history, and a
// command. Everything is done by one goroutine.
var transitionsSuite = suite{
	name: "saga-transitions", title: "Transitions of sagas: a reply, a changed row, an entry in the history, a command", figure: figureRate,
	unit: "transitions/s", long: true, share: 0.04, also: append([]report.Column{{Figure: figureHOT, Title: "HOT %"}}, sagaColumns...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		hand, err := newHandSagas(ctx, b)
		if err != nil {
			return nil, err
		}
		t := &transitions{b: b}
		return []entry{
			hand.entry(handTransition, 1),
			t.entry(oursTransition, handTransition, 1),
			hand.entry(handTransitions, 100),
			t.entry(oursTransitions, handTransitions, 100),
			t.second(),
		}, nil
	},
}

// transitions measures the engine.
type transitions struct {
	b      *bundle
	s      *sagas
	single float64 // the latest rate one by one
}

// entry handles one reply for each instance, in transactions of up to size.
func (t *transitions) entry(name, limit string, size int) entry {
	e := entry{name: name, role: report.Ours, limit: limit}
	e.prepare = func(ctx context.Context) error { return t.prepare(ctx, "reserve") }
	e.run = func(ctx context.Context) (report.Figures, error) {
		done := expectEffects(t.b.n)
		t.s.observe(func(observe.Transitioned) { done.begin(); done.end() })
		if err := t.handle(ctx, size, done.all); err != nil {
			return nil, err
		}
		rate := float64(t.b.n) / done.ended.Sub(done.began).Seconds()
		figures := report.Figures{figureRate: rate}
		if size == 1 {
			t.single = rate
		} else if t.single > 0 {
			figures[figureToSingle] = rate / t.single
		}
		return figures, t.check(ctx, 1)
	}
	return e
}

// second handles two replies for each instance, all first ones before all second ones, and measures the second ones: by then the log has a
// copy of each page of the instances.
func (t *transitions) second() entry {
	e := entry{name: oursSecondChange, role: report.Ours}
	e.prepare = func(ctx context.Context) error { return t.prepare(ctx, "reserve", "charge") }
	e.run = func(ctx context.Context) (report.Figures, error) {
		var handled atomic.Int64
		var first counters
		var countErr error
		done := expectEffects(t.b.n)
		t.s.observe(func(observe.Transitioned) {
			if n := handled.Add(1); n == int64(t.b.n) {
				first, countErr = t.b.count(ctx)
			} else if n > int64(t.b.n) {
				done.begin()
				done.end()
			}
		})
		if err := t.handle(ctx, 1, done.all); err != nil {
			return nil, err
		}
		last, err := t.b.count(ctx)
		if err = errors.Join(err, countErr); err != nil {
			return nil, err
		}
		hot, err := t.s.hot(ctx)
		if err != nil {
			return nil, err
		}
		n := float64(t.b.n)
		return report.Figures{
			figureRate: n / done.ended.Sub(done.began).Seconds(), figureWAL: float64(last.wal-first.wal) / n, figureHOT: hot,
			figureClient: float64((last.client - first.client).Microseconds()) / n, figureServer: float64((last.server - first.server).Microseconds()) / n,
		}, t.check(ctx, 2)
	}
	return e
}

// prepare starts instances, and publishes the replies to some of their steps.
func (t *transitions) prepare(ctx context.Context, steps ...string) (err error) {
	if t.s, err = newSagas(ctx, t.b, fulfilment(), 1); err != nil {
		return err
	}
	if err := t.s.start(ctx, 0, t.b.n); err != nil {
		return err
	}
	for _, step := range steps {
		if err := t.s.answer(ctx, step); err != nil {
			return err
		}
	}
	_, err = t.b.pool.Exec(ctx, "vacuum analyze")
	return err
}

func (t *transitions) handle(ctx context.Context, size int, done <-chan struct{}) error {
	r, err := t.s.engineRelay(relay.Config{Concurrency: 1, TxBatch: size})
	if err != nil {
		return err
	}
	return runUntil(ctx, r, done)
}

// check checks that every instance has made as many transitions since its start.
func (t *transitions) check(ctx context.Context, want int) error {
	var wrong, history int
	err := t.b.pool.QueryRow(ctx, fmt.Sprintf("select (select count(*) from %[1]ssagas where rev <> $1), (select count(*) from %[1]ssaga_history)", t.s.prefix),
		1+want).Scan(&wrong, &history)
	if err == nil && (wrong > 0 || history != (1+want)*t.b.n) {
		err = fmt.Errorf("%d instances did not make %d transitions, and the history has %d entries", wrong, want, history)
	}
	return err
}

// hot returns how many percent of the updates of instances changed no index.
func (s *sagas) hot(ctx context.Context) (percent float64, err error) {
	s.b.pool.Reset() // a connection that closes has counted
	table := s.prefix + "sagas"
	if err := s.b.await(ctx, fmt.Sprintf(`select n_tup_upd >= (select count(*) from %[1]s_history h where h.rev > 1)
		from pg_stat_user_tables where relname = '%[2]s'`, strings.TrimSuffix(table, "s"), table)); err != nil {
		return 0, err
	}
	err = s.b.pool.QueryRow(ctx, "select 100.0 * n_tup_hot_upd / n_tup_upd from pg_stat_user_tables where relname = $1", table).Scan(&percent)
	return percent, err
}
