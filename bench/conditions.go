package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

const (
	undisturbed = "undisturbed"
	drainOpenTx = "a transaction left open"
	drainFailed = "1% of the messages fail once"
	figureLast  = "last" // seconds until the last message was delivered
)

// conditionsSuite drains to a handler of single messages, with and without failures.
var conditionsSuite = suite{
	name: "conditions", title: "Drain a backlog of 10,000 keys to a handler, in good times and bad", figure: figureRate, unit: "msg/s",
	also: append([]report.Column{{Figure: figureLast, Title: "all after s"}}, usual...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
			return nil, err
		}
		calm, err := b.store(ctx, "calm_")
		if err != nil {
			return nil, err
		}
		if err := b.fill(ctx, calm, manyKeys, b.n); err != nil {
			return nil, err
		}
		return []entry{
			{name: undisturbed, role: report.Ours, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.drainToHandler(ctx, calm, relay.Config{}, b.n, nil)
			}},
			{name: drainOpenTx, role: report.Ours, limit: undisturbed, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.whileOpen(ctx, func() error { return b.drainToHandler(ctx, calm, relay.Config{}, b.n, nil) })
			}},
			{name: drainFailed, role: report.Ours, limit: undisturbed,
				run: func(ctx context.Context) (report.Figures, error) { return b.drainFailing(ctx, "calm_", calm) }},
		}, nil
	},
}

// failEvery selects the messages that fail at their first attempt: every hundredth.
const failEvery = 100

// drainFailing makes messages fail once and measures the keys without failing messages: the rate is measured at their
// last message. The others wait for a retry, or for a message that waits for one; "last" is when all were delivered.
func (b *bundle) drainFailing(ctx context.Context, prefix string, s store.Relay) (report.Figures, error) {
	rows, err := b.pool.Query(ctx, "select distinct key from "+prefix+"log where seq % $1 = 0", failEvery)
	if err != nil {
		return nil, err
	}
	failing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	stopped := make(map[string]bool, len(failing))
	for _, key := range failing {
		stopped[key] = true
	}
	began := time.Now()
	var others, last atomic.Int64 // messages of the other keys, and when the last one was delivered
	err = b.drainToHandler(ctx, s, relay.Config{}, b.n, func(_ context.Context, m *postrider.Message) error {
		switch {
		case m.Sequence%failEvery == 0 && m.Attempt == 1:
			return errors.New("fails once")
		case !stopped[m.Key]:
			others.Add(1)
			last.Store(int64(time.Since(began)))
		}
		return nil
	})
	return report.Figures{
		figureRate: float64(others.Load()) / time.Duration(last.Load()).Seconds(), figureLast: time.Since(began).Seconds(),
	}, err
}
