package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store/postgres"
)

const (
	acrossRelay = "publish, then a handler in another process"
	acrossAll   = "publish, postrider relay, JetStream, effect of a consumer"
	acrossIdle  = "the first message after a second or more, without a notification"

	acrossRate = 1000 // messages per second
)

// acrossSuite measures how long messages take to other processes, which have default settings.
var acrossSuite = suite{
	name: "across", title: "Latency from commit to another process at 1,000 messages per second", figure: figureP99, unit: "ms at p99", lower: true,
	also: latencyColumns, share: 0.1, long: true,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
			return nil, err
		}
		program, err := b.buildProgram(ctx)
		if err != nil {
			return nil, err
		}
		return []entry{
			b.across(acrossRelay, b.n, postgres.Config{}, b.handlerElsewhere, paceAll),
			b.across(acrossAll, b.n, postgres.Config{}, func(ctx context.Context, a *across) error { return b.wholeWay(ctx, program, a) }, paceAll),
			// As published in SQL by a program in another language, which does not notify.
			b.across(acrossIdle, min(max(b.n/500, 5), 20), postgres.Config{NotifyEvery: -1}, b.handlerElsewhere, paceIdle),
		}, nil
	},
}

// across is a run whose messages have their effects in other processes.
type across struct {
	n            int
	prefix, name string
	times        string // the file that is written with the last effect
	store        *postgres.Store
	processes    []*process.Process
}

// across publishes n messages to a new outbox, and measures when they have their effect in the processes that start starts.
func (b *bundle) across(name string, n int, cfg postgres.Config, start func(context.Context, *across) error,
	publish func(context.Context, *paced, func(context.Context, int) error) error,
) entry {
	var a *across
	prepare := func(ctx context.Context) (err error) {
		number := relays.Add(1)
		a = &across{n: n, prefix: fmt.Sprintf("across%d_", number), name: fmt.Sprintf("across-%d", number)}
		a.times, cfg.Prefix = filepath.Join(b.dir, a.name+".json"), a.prefix
		if a.store, err = b.storeWith(ctx, cfg); err != nil {
			return err
		}
		b.after(func() { // in case the run fails before it stops them
			for _, p := range a.processes {
				_ = p.Kill()
			}
		})
		return start(ctx, a)
	}
	return entry{name: name, role: report.Ours, messages: n, prepare: prepare, run: func(ctx context.Context) (report.Figures, error) {
		o, err := newOutbox(a.store)
		if err != nil {
			return nil, err
		}
		p := newPaced(acrossRate, n)
		if err := publish(ctx, p, func(ctx context.Context, i int) error { return placePaced(ctx, o, p, i) }); err != nil {
			return nil, err
		}
		if err := p.adopt(ctx, a.times); err != nil {
			return nil, err
		}
		figures, err := p.figures(ctx)
		for _, running := range a.processes {
			err = errors.Join(err, running.Stop())
		}
		return figures, err
	}}
}

// paceAll publishes at a steady pace.
func paceAll(ctx context.Context, p *paced, publish func(context.Context, int) error) error {
	return p.publishAll(ctx, publish)
}

// paceIdle publishes one message after another, with more than a second between them, after which a relay polls least often. The waits
// differ, so that the messages meet each part of an interval of 100 ms.
func paceIdle(ctx context.Context, p *paced, publish func(context.Context, int) error) error {
	p.rate = 1
	for i := range p.n {
		select {
		case <-time.After(time.Second + time.Duration(i*37%100)*4*time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := publish(ctx, i); err != nil {
			return err
		}
		p.committed[i].Store(int64(time.Since(p.began)))
	}
	return nil
}

// handlerElsewhere starts a relay with a handler.
func (b *bundle) handlerElsewhere(ctx context.Context, a *across) error {
	return b.startAcross(ctx, a, handlerCommand, &child{Postgres: b.url, Prefix: a.prefix, Name: a.name, Times: a.times, Count: a.n})
}

// wholeWay starts a relay to a stream, and a consumer of it.
func (b *bundle) wholeWay(ctx context.Context, program string, a *across) error {
	nats, err := b.startNATS(ctx)
	if err != nil {
		return err
	}
	stream := fmt.Sprintf("ACROSS%d", streams.Add(1))
	publisher, err := natsbroker.Open(ctx, nats, natsbroker.Config{Stream: stream}) // creates the stream
	if err == nil {
		err = publisher.Close()
	}
	if err == nil {
		err = b.createDone(ctx, a.prefix)
	}
	if err != nil {
		return err
	}
	consumer := &child{Postgres: b.url, Prefix: a.prefix, Name: a.name, NATS: nats, Stream: stream, Times: a.times, Count: a.n}
	if err := b.startAcross(ctx, a, consumerCommand, consumer); err != nil {
		return err
	}
	p, err := b.startProgram(ctx, program, a.prefix, stream)
	if err != nil {
		return err
	}
	a.processes = append(a.processes, p)
	return b.await(ctx, fmt.Sprintf("select count(*) = 8 from %sleases where relay <> '%s' and owner <> ''", a.prefix, a.name))
}

func (b *bundle) startAcross(ctx context.Context, a *across, command string, c *child) error {
	p, err := b.startChild(ctx, command, c)
	if err == nil {
		a.processes = append(a.processes, p)
	}
	return err
}
