package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

const (
	oursKeyed   = "Postrider, 10,000 keys"
	oursUnkeyed = "Postrider, no keys"
	oursOneKey  = "Postrider, one key"
)

var drainSuite = suite{
	name: "drain", title: "Drain a backlog to a handler that does nothing", figure: figureRate, unit: "msg/s", also: usual,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		logs, err := b.logs(ctx)
		if err != nil {
			return nil, err
		}
		queue := watermillQueue(1000, 0).name
		entries := []entry{
			{name: bareLoop, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.bareLoop(ctx, keyedPrefix, b.n, func([]postrider.Message) error { return nil })
			}},
			{name: "bare loop, nothing decoded", role: report.Limit, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.bareRead(ctx, keyedPrefix, b.n)
			}},
			b.drainEntry(oursKeyed, bareLoop, queue, logs.keyed),
			b.drainEntry(oursUnkeyed, bareLoop, queue, logs.unkeyed),
			b.drainEntry(oursOneKey, bareLoop, queue, logs.oneKey),
			b.observedEntry(logs.keyed),
			{name: "Postrider, 10,000 keys, a message at a time", role: report.Ours, limit: bareLoop, peer: riverBest.name,
				run: func(ctx context.Context) (report.Figures, error) {
					return nil, b.drainToHandler(ctx, logs.keyed, relay.Config{}, b.n, nil)
				}},
		}
		peers, err := b.drainPeers(ctx)
		return append(entries, peers...), err
	},
}

// backlogs are outboxes, each with the messages of one run.
type backlogs struct{ keyed, unkeyed, oneKey *postgres.Store }

const keyedPrefix = "keyed_"

// logs creates the suite's database and fills its outboxes. Relays do not change a log, so it serves every run.
func (b *bundle) logs(ctx context.Context) (l backlogs, err error) {
	if err := b.database(ctx); err != nil {
		return l, err
	}
	for _, o := range []struct {
		prefix string
		keys   keys
		store  **postgres.Store
	}{{keyedPrefix, manyKeys, &l.keyed}, {"unkeyed_", 0, &l.unkeyed}, {"onekey_", 1, &l.oneKey}} {
		if *o.store, err = b.store(ctx, o.prefix); err != nil {
			return l, err
		}
		if err := b.fill(ctx, *o.store, o.keys, b.n); err != nil {
			return l, err
		}
	}
	return l, nil
}

// drainEntry drains an outbox to a publisher that does nothing, equivalent to a batch handler.
func (b *bundle) drainEntry(name, limit, peer string, s store.Relay) entry {
	return entry{name: name, role: report.Ours, limit: limit, peer: peer, run: func(ctx context.Context) (report.Figures, error) {
		return nil, b.drain(ctx, s, relay.Config{Publisher: &counter{}}, b.n)
	}}
}

// drainPeers are the peers that deliver to functions.
func (b *bundle) drainPeers(ctx context.Context) ([]entry, error) {
	river, err := newRiver(ctx, b)
	if err != nil {
		return nil, err
	}
	nothing := func(context.Context, riverJob) error { return nil }
	entries := []entry{
		{name: riverBest.name, role: report.Peer, prepare: func(ctx context.Context) error { return river.fill(ctx, b.n) },
			run: func(ctx context.Context) (report.Figures, error) {
				return nil, river.drain(ctx, riverBest, b.n, nothing)
			}},
		{name: riverDefaults.name, role: report.Peer, messages: 3000, prepare: func(ctx context.Context) error { return river.fill(ctx, 3000) },
			run: func(ctx context.Context) (report.Figures, error) {
				return nil, river.drain(ctx, riverDefaults, 3000, nothing)
			}},
	}
	for _, set := range []watermillSchema{watermillQueue(1000, 0), watermillQueue(100, 0), watermillDefault(1000, 0), watermillDefault(100, 0)} {
		p, err := newWatermill(ctx, b, set)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: set.name, role: report.Peer, prepare: func(ctx context.Context) error { return p.fill(ctx, b.n) },
			run: func(ctx context.Context) (report.Figures, error) {
				return nil, p.drain(ctx, b.n, func(context.Context, *message.Message) error { return nil })
			}})
	}
	return append(entries,
		// Measured once, on 2 cores and PostgreSQL 15.18, draining 100,000 messages of 478 bytes.
		entry{name: "oagudo/outbox, batches of 1,000", role: report.Quoted, quoted: 85_576},
		entry{name: "open-outbox relay, batches of 1,000", role: report.Quoted, quoted: 28_838},
	), nil
}

// counter is a publisher that accepts and counts everything.
type counter struct {
	taken atomic.Int64
	want  int64
	all   chan struct{} // closed when want messages were accepted
}

// Capabilities implements postrider.Publisher.
func (*counter) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// Publish implements postrider.Publisher.
func (c *counter) Publish(_ context.Context, msgs []*postrider.Message) []error {
	c.count(len(msgs))
	return nil
}

func (c *counter) count(n int) {
	if total := c.taken.Add(int64(n)); total >= c.want && total-int64(n) < c.want {
		close(c.all)
	}
}

// expect makes the counter wait for n messages.
func (c *counter) expect(n int) { c.want, c.all = int64(n), make(chan struct{}) }

// relays numbers the relays of this process, so that each begins at the oldest message.
var relays atomic.Int64

// drain runs a relay until n messages were delivered and recorded.
func (b *bundle) drain(ctx context.Context, s store.Relay, c relay.Config, n int) error {
	r, err := newRelay(s, &c)
	if err != nil {
		return err
	}
	sink := c.Publisher.(*counter)
	sink.expect(n)
	return runUntil(ctx, r, sink.all)
}

// drainToHandler is drain with a handler of single messages; nil does nothing.
func (b *bundle) drainToHandler(ctx context.Context, s store.Relay, c relay.Config, n int, handle postrider.Handler) error {
	r, err := newRelay(s, &c)
	if err != nil {
		return err
	}
	var count counter
	count.expect(n)
	if err := r.HandleFunc(messageType, func(ctx context.Context, m *postrider.Message) error {
		if handle != nil {
			if err := handle(ctx, m); err != nil {
				return err
			}
		}
		count.count(1)
		return nil
	}); err != nil {
		return err
	}
	return runUntil(ctx, r, count.all)
}

func newRelay(s store.Relay, c *relay.Config) (*relay.Relay, error) {
	c.Name = fmt.Sprintf("bench-%d", relays.Add(1))
	c.Logger = slog.New(slog.DiscardHandler)
	return relay.New(s, *c)
}

// patience limits a run that makes no progress.
const patience = 10 * time.Minute

// runUntil runs a relay until done is closed, and stops it, so that everything is recorded.
func runUntil(ctx context.Context, r *relay.Relay, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-done:
		if err := r.Stop(ctx); err != nil {
			return err
		}
		return <-ended
	case err := <-ended:
		return fmt.Errorf("the relay ended before all was delivered: %w", errors.Join(err, context.Cause(ctx)))
	}
}
