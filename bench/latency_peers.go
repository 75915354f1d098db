package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postrider/postrider/bench/internal/report"
)

// peers are the peers that deliver to functions, with their fastest settings.
func (l *latency) peers(ctx context.Context) ([]entry, error) {
	queue, err := newWatermill(ctx, l.b, watermillQueue(100, time.Millisecond))
	if err != nil {
		return nil, err
	}
	river, err := newRiver(ctx, l.b)
	if err != nil {
		return nil, err
	}
	return []entry{
		{name: "Watermill, queue schema, polling every 1 ms", role: report.Peer, prepare: func(ctx context.Context) error { return queue.fill(ctx, 0) },
			run: func(ctx context.Context) (report.Figures, error) { return l.watermill(ctx, queue) }},
		{name: "River, cooldown 1 ms, polling every 5 ms", role: report.Peer, prepare: func(ctx context.Context) error { return river.fill(ctx, 0) },
			run: func(ctx context.Context) (report.Figures, error) { return l.river(ctx, river) }},
	}, nil
}

func (l *latency) watermill(ctx context.Context, w *watermillPeer) (report.Figures, error) {
	p := newPaced(l.rate, l.b.n)
	drained := make(chan error, 1)
	go func() {
		drained <- w.drain(ctx, l.b.n, func(_ context.Context, m *message.Message) error {
			return handleNumbered(p, m.UUID)
		})
	}()
	if err := p.publishAll(ctx, func(ctx context.Context, i int) error {
		return w.placeOrder(ctx, i, message.NewMessage(fmt.Sprint(i), payload))
	}); err != nil {
		return nil, err
	}
	if err := <-drained; err != nil {
		return nil, err
	}
	return p.figures(ctx)
}

func handleNumbered(p *paced, id string) error {
	var i int
	if _, err := fmt.Sscan(id, &i); err != nil {
		return err
	}
	p.handle(i)
	return nil
}

func (l *latency) river(ctx context.Context, r *riverPeer) (report.Figures, error) {
	p := newPaced(l.rate, l.b.n)
	settings := riverSettings{workers: 100, fetchCooldown: time.Millisecond, polling: 5 * time.Millisecond}
	drained := make(chan error, 1)
	go func() {
		drained <- r.drain(ctx, settings, l.b.n, func(_ context.Context, job riverJob) error {
			p.handle(job.number)
			return nil
		})
	}()
	if err := p.publishAll(ctx, r.placeOrder); err != nil {
		return nil, err
	}
	if err := <-drained; err != nil {
		return nil, err
	}
	return p.figures(ctx)
}
