package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// The figures of a run at a steady pace, in milliseconds from the commit, as seen by its client, to the handler.
const (
	figureP50  = "p50"
	figureP99  = "p99"
	figureP999 = "p99.9"
	figurePace = "pace" // messages published per second
)

var latencyColumns = []report.Column{
	{Figure: figureP50, Title: "p50"}, {Figure: figureP999, Title: "p99.9"}, {Figure: figurePace, Title: "msg/s"},
	{Figure: figureClient, Title: "client µs/msg"}, {Figure: figureServer, Title: "server µs/msg"},
}

const (
	bareTrips      = "bare: commit seen, one select, handler"
	oursTogether   = "Postrider, relay in the same process"
	oursNotified   = "Postrider, another process, notified"
	oursPolling    = "Postrider, another process, polling"
	publishingOnly = "publishing alone"
)

// latencySuite measures at a rate; 0 means half of the maximum, which is measured first.
func latencySuite(name, title string, rate int, share float64) suite {
	return suite{
		name: name, title: title, figure: figureP99, unit: "ms at p99", lower: true, also: latencyColumns, share: share, long: true,
		setup: func(ctx context.Context, b *bundle) ([]entry, error) {
			if err := b.database(ctx); err != nil {
				return nil, err
			}
			if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
				return nil, err
			}
			l := &latency{b: b, rate: rate}
			if err := l.setup(ctx); err != nil {
				return nil, err
			}
			entries := []entry{
				{name: bareTrips, role: report.Limit, run: l.bare},
				{name: publishingOnly, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) {
					p := newPaced(l.rate, b.n)
					return report.Figures{figurePace: float64(l.rate)}, p.publishAll(ctx, l.publisher(p, l.ours))
				}},
				l.entry(oursTogether, l.ours, l.ours),
				l.entry(oursNotified, l.notifying, l.listening),
				l.entry(oursPolling, l.ours, l.remote),
			}
			entries[len(entries)-1].limit = "" // its latency is the current polling interval
			if rate == 0 {
				return entries, nil
			}
			peers, err := l.peers(ctx)
			return append(entries, peers...), err
		},
	}
}

// latency holds the outboxes of a latency suite. Several Stores on the same tables are as independent as those of several
// processes.
type latency struct {
	b    *bundle
	rate int

	ours, remote         *postgres.Store // the same tables, connected only through the database
	notifying, listening *postgres.Store
}

func (l *latency) setup(ctx context.Context) (err error) {
	if err := l.b.handOutbox(ctx); err != nil {
		return err
	}
	for _, s := range []struct {
		store  **postgres.Store
		config postgres.Config
	}{
		{&l.ours, postgres.Config{Prefix: "ours_", NotifyEvery: -1}}, {&l.remote, postgres.Config{Prefix: "ours_"}},
		{&l.notifying, postgres.Config{Prefix: "told_"}}, {&l.listening, postgres.Config{Prefix: "told_"}},
	} {
		if *s.store, err = l.b.storeWith(ctx, s.config); err != nil {
			return err
		}
	}
	if l.rate > 0 {
		return nil
	}
	most, err := l.most(ctx)
	l.rate = int(most / 2)
	return err
}

// most is the rate at which 8 writers publish at full speed and a relay delivers, in messages per second.
func (l *latency) most(ctx context.Context) (float64, error) {
	began := time.Now()
	if err := l.b.together(ctx, l.ours, l.b.n); err != nil {
		return 0, err
	}
	return float64(l.b.n) / time.Since(began).Seconds(), nil
}

// publisher places orders in an outbox.
func (l *latency) publisher(p *paced, s *postgres.Store) func(ctx context.Context, i int) error {
	o, err := newOutbox(s)
	return func(ctx context.Context, i int) error {
		if err != nil {
			return err
		}
		return placePaced(ctx, o, p, i)
	}
}

func placePaced(ctx context.Context, o *outbox.Outbox[pgx.Tx], p *paced, i int) error {
	_, err := o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrderSQL, customer, i); err != nil {
			return err
		}
		_, err := o.Publish(ctx, tx, p.message(i))
		return err
	})
	return err
}

// entry publishes to one store while a relay delivers from the other.
func (l *latency) entry(name string, to, from *postgres.Store) entry {
	return entry{name: name, role: report.Ours, limit: bareTrips, run: func(ctx context.Context) (report.Figures, error) {
		p := newPaced(l.rate, l.b.n)
		r, err := newRelay(from, &relay.Config{Start: relay.FromNow})
		if err != nil {
			return nil, err
		}
		if err := r.HandleFunc(messageType, p.handler); err != nil {
			return nil, err
		}
		return l.measure(ctx, p, r, l.publisher(p, to))
	}}
}

// measure runs a relay, publishes once it holds its partitions, and stops it.
func (l *latency) measure(ctx context.Context, p *paced, r *relay.Relay, publish func(ctx context.Context, i int) error) (report.Figures, error) {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	if err := waitReady(ctx, r); err != nil {
		return nil, err
	}
	if err := p.publishAll(ctx, publish); err != nil {
		return nil, err
	}
	figures, err := p.figures(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Stop(ctx); err != nil {
		return nil, err
	}
	return figures, <-ended
}

// waitReady waits until a relay has its partitions and has read what exists.
func waitReady(ctx context.Context, r *relay.Relay) error {
	for r.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return r.Drain(ctx)
}
