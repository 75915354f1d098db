package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

const (
	engineAlone  = "Postrider, engine alone, with generated replies"
	endToEnd     = "Postrider, with three participants"
	atPace       = "Postrider, 100 sagas/s"
	manyItems    = "Postrider, an Each of 1,000 items"
	figureWaited = "waited" // ms at p99, from the commit of the last transition to the return of Wait
	figureEnding = "ending" // ms at p99, from the last transition, before its commit, to the return of Wait
	figureTook   = "took"   // seconds
	figureWALMB  = "wal_mb" // megabytes
	pace         = 100      // sagas per second
)

// flowSuite runs whole sagas: starts, six hand-overs and all transitions.
var flowSuite = suite{
	name: "saga-flow", title: "Sagas of three steps, from start to end", figure: figureRate, unit: "sagas/s", long: true, share: 0.03, also: sagaColumns,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		ours := []entry{
			{name: engineAlone, role: report.Ours, run: b.engineAlone},
			{name: endToEnd, role: report.Ours, run: b.endToEnd, peer: temporalPeer},
		}
		if b.options.temporal == "" {
			ours[1].peer = ""
			return ours, nil
		}
		peer, err := newTemporal(ctx, b)
		if err != nil {
			return nil, err
		}
		return append(ours, entry{name: temporalPeer, role: report.Peer, run: peer.run}), nil
	},
}

// engineAlone starts instances together with the replies to all their steps, while the engine works on them.
func (b *bundle) engineAlone(ctx context.Context) (report.Figures, error) {
	s, err := newSagas(ctx, b, fulfilment(), 0)
	if err != nil {
		return nil, err
	}
	r, err := s.engineRelay(relay.Config{})
	if err != nil {
		return nil, err
	}
	return s.flow(ctx, 0, func(ctx context.Context, tx pgx.Tx, number int) error {
		if err := s.place(ctx, tx, number); err != nil {
			return err
		}
		id := orderOf(number).ID
		s.mu.Lock()
		at := slices.IndexFunc(s.commands, func(headers map[string]string) bool { return headers["postrider-saga"] == id })
		command := s.commands[at]
		s.commands = slices.Delete(s.commands, at, at+1)
		s.mu.Unlock()
		msgs := make([]*postrider.Message, len(orderSteps))
		for i, step := range orderSteps {
			msgs[i] = reply(command, step)
		}
		_, err := s.box.Publish(ctx, tx, msgs...)
		return err
	}, r)
}

// endToEnd also runs the participants.
func (b *bundle) endToEnd(ctx context.Context) (report.Figures, error) {
	s, err := newSagas(ctx, b, fulfilment(), 0)
	if err != nil {
		return nil, err
	}
	engine, err := s.engineRelay(relay.Config{})
	if err != nil {
		return nil, err
	}
	participants, err := s.participants()
	if err != nil {
		return nil, err
	}
	return s.flow(ctx, b.n/refusedOf, s.place, engine, participants)
}

// flow starts instances, 50 in a transaction of two writers, while relays run, until all have ended.
func (s *sagas) flow(ctx context.Context, compensated int, start func(ctx context.Context, tx pgx.Tx, number int) error, relays ...*relay.Relay) (
	report.Figures, error,
) {
	const size = 50
	done := s.expectEnds(s.b.n)
	done.begin()
	var all sync.WaitGroup
	var startErr error
	all.Go(func() {
		startErr = parallel(ctx, 2, (s.b.n+size-1)/size, func(ctx context.Context, i int) error {
			_, err := s.box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				for number := i * size; number < min((i+1)*size, s.b.n); number++ {
					if err := start(ctx, tx, number); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		})
	})
	err := runAll(ctx, done.all, relays...)
	all.Wait()
	if err != nil || startErr != nil {
		return nil, fmt.Errorf("run %d sagas: %w; start them: %w", s.b.n, err, startErr)
	}
	rate := float64(s.b.n) / done.ended.Sub(done.began).Seconds()
	return report.Figures{figureRate: rate}, s.ended(ctx, s.b.n, compensated, len(relays) > 1)
}

// expectEnds counts the instances that end.
func (s *sagas) expectEnds(n int) *effects {
	done := expectEffects(n)
	s.observe(func(t observe.Transitioned) {
		if t.Status.Ended() {
			done.end()
		}
	})
	return done
}

// sagaLatencySuite starts sagas at a steady pace.
var sagaLatencySuite = suite{
	name: "saga-latency", title: "From the start of a saga to its end, at 100 sagas/s, with three participants in one log", figure: figureP99, unit: "ms at p99",
	lower: true, long: true, share: 0.01, also: append([]report.Column{{Figure: figureP50, Title: "p50"}, {Figure: figureWaited, Title: "Wait, p99"}, {Figure: figureEnding, Title: "commit and Wait, p99"}}, sagaColumns...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		return []entry{{name: atPace, role: report.Ours, run: b.sagaLatency}}, nil
	},
}

// orderNumber is the number of an order, by the ID of its instance.
func orderNumber(id string) (number int, ok bool) {
	_, err := fmt.Sscanf(id, "order-%d", &number)
	return number, err == nil
}

// commits records when what ended each saga was committed.
func (p *paced) commits(into []atomic.Int64) *observe.Relay {
	return &observe.Relay{Attempted: func(_ context.Context, a observe.Attempted) {
		now := int64(time.Since(p.began))
		for _, m := range a.Attempts {
			if number, ok := orderNumber(m.Message.Headers["postrider-saga"]); ok && m.Outcome == observe.AttemptDelivered && p.handled[number].Load() > 0 {
				into[number].CompareAndSwap(0, now)
			}
		}
	}}
}

// waitedSince returns the milliseconds at p99. Wait may see a commit before the observer; this counts as 0.
func waitedSince(returned []int64, since []atomic.Int64) float64 {
	var ms []float64
	for i, at := range returned {
		ms = append(ms, milliseconds(max(time.Duration(at-since[i].Load()), 0)))
	}
	slices.Sort(ms)
	return report.Quantile(ms, 0.99)
}

// sagaLatency measures from the commit of each start, as its client sees it, to the last transition, and from there, and from its
// commit, to the end of Wait.
func (b *bundle) sagaLatency(ctx context.Context) (report.Figures, error) {
	s, err := newSagas(ctx, b, fulfilment(), 0)
	if err != nil {
		return nil, err
	}
	p, committed := newPaced(pace, b.n), make([]atomic.Int64, b.n)
	engine, err := s.engineRelay(relay.Config{Observer: p.commits(committed)})
	if err != nil {
		return nil, err
	}
	participants, err := s.participants()
	if err != nil {
		return nil, err
	}
	s.observe(func(t observe.Transitioned) {
		if number, ok := orderNumber(t.ID); ok && t.Status.Ended() {
			p.handle(number)
		}
	})
	var all sync.WaitGroup
	returned := make([]int64, b.n)
	startErr, waitErr := make(chan error, 1), make(chan error, b.n)
	go func() {
		err := p.publishAll(ctx, func(starting context.Context, i int) error {
			if _, err := s.box.InTx(starting, func(ctx context.Context, tx pgx.Tx) error { return s.place(ctx, tx, i) }); err != nil {
				return err
			}
			all.Go(func() {
				if _, err := s.orders.Wait(ctx, orderOf(i).ID); err != nil { // not with the context of the starts, which ends with them
					waitErr <- err
				}
				returned[i] = int64(time.Since(p.began))
			})
			return nil
		})
		all.Wait()
		close(waitErr)
		startErr <- errors.Join(err, <-waitErr)
	}()
	if err := runAll(ctx, p.done, engine, participants); err != nil {
		return nil, err
	}
	if err := <-startErr; err != nil {
		return nil, err
	}
	figures, err := p.figures(ctx)
	if err != nil {
		return nil, err
	}
	figures[figureWaited], figures[figureEnding] = waitedSince(returned, committed), waitedSince(returned, p.handled)
	return figures, s.ended(ctx, b.n, b.n/refusedOf, true)
}

// eachSuite runs one instance with many items.
var eachSuite = suite{
	name: "saga-each", title: "One instance that reserves each of 1,000 items, 16 at a time", figure: figureTook, unit: "s", lower: true, long: true,
	also: append([]report.Column{{Figure: figureWALMB, Title: "WAL MB"}}, sagaColumns...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		return []entry{{name: manyItems, role: report.Ours, messages: items, run: b.items}}, nil
	},
}

// items is how many items an Each has.
const items = 1000

func reserveAll() saga.Definition[placedOrder] {
	return saga.Definition[placedOrder]{Name: "reserve-all", Version: 1, Steps: []saga.Step[placedOrder]{saga.Each[placedOrder, part]{
		Name: "lines", ID: func(p part) string { return p.ID },
		Items: func(o placedOrder) (lines []part) {
			for i := range o.Lines {
				lines = append(lines, part{fmt.Sprint(i), i})
			}
			return lines
		},
		Steps: []saga.Step[part]{saga.Request[part, part, part]{Name: "reserve", Step: reserveStock, Command: func(p part) part { return p }, Timeout: time.Hour}},
	}}}
}

func (b *bundle) items(ctx context.Context) (report.Figures, error) {
	s, err := newSagas(ctx, b, reserveAll(), 0)
	if err != nil {
		return nil, err
	}
	engine, err := s.engineRelay(relay.Config{})
	if err != nil {
		return nil, err
	}
	participants, err := s.participants()
	if err != nil {
		return nil, err
	}
	before, err := b.count(ctx)
	if err != nil {
		return nil, err
	}
	done := s.expectEnds(1)
	done.begin()
	if _, err := s.box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := s.orders.Start(ctx, tx, placedOrder{ID: "order-0", Lines: items})
		return err
	}); err != nil {
		return nil, err
	}
	if err := runAll(ctx, done.all, engine, participants); err != nil {
		return nil, err
	}
	after, err := b.count(ctx)
	if err != nil {
		return nil, err
	}
	var effects int
	err = b.pool.QueryRow(ctx, fmt.Sprintf("select sum(done) from %sledger", s.prefix)).Scan(&effects)
	if err == nil && effects != items {
		err = fmt.Errorf("%d effects of %d items", effects, items)
	}
	return report.Figures{figureTook: done.ended.Sub(done.began).Seconds(), figureWALMB: float64(after.wal-before.wal) / 1e6}, err
}
