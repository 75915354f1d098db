package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
)

// paced publishes messages at a steady pace, independently of their delivery, and records the times. It is an open loop:
// a delayed message does not delay the next ones, so slowness is visible.
type paced struct {
	rate    int // per second
	writers int
	n       int
	// committed and handled are times in nanoseconds since began, by message number.
	began              time.Time
	committed, handled []atomic.Int64
	left               atomic.Int64
	done               chan struct{}
}

func newPaced(rate, n int) *paced {
	p := &paced{rate: rate, writers: 8, n: n, began: time.Now(), committed: make([]atomic.Int64, n), handled: make([]atomic.Int64, n),
		done: make(chan struct{})}
	p.left.Store(int64(n))
	return p
}

// publishAll calls publish for every message on schedule and records when it returned.
func (p *paced) publishAll(ctx context.Context, publish func(ctx context.Context, i int) error) error {
	began := time.Now()
	return parallel(ctx, p.writers, p.n, func(ctx context.Context, i int) error {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(p.rate))); wait > 0 {
			time.Sleep(wait)
		}
		if err := publish(ctx, i); err != nil {
			return err
		}
		p.committed[i].Store(int64(time.Since(p.began)))
		return nil
	})
}

// handle records that a message has reached its handler. Duplicates do not count.
func (p *paced) handle(i int) {
	if p.handled[i].CompareAndSwap(0, int64(time.Since(p.began))) && p.left.Add(-1) == 0 {
		close(p.done)
	}
}

// message returns a message that carries its number.
func (p *paced) message(i int) *postrider.Message {
	m := keys(manyKeys).message(i)
	m.AggregateVersion = int64(i + 1)
	return m
}

// handler is a relay's handler.
func (p *paced) handler(_ context.Context, m *postrider.Message) error {
	p.handle(int(m.AggregateVersion - 1))
	return nil
}

// figures waits for the last message and returns the quantiles. It ignores the first tenth, in which connections and
// statements are prepared. A handler can be earlier than the client that waits for the response to its commit; this
// counts as 0.
func (p *paced) figures(ctx context.Context) (report.Figures, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-limit.C:
		return nil, fmt.Errorf("%d messages of %d were never delivered", p.left.Load(), p.n)
	}
	var ms []float64
	for i := p.n / 10; i < p.n; i++ {
		ms = append(ms, max(float64(p.handled[i].Load()-p.committed[i].Load()), 0)/float64(time.Millisecond))
	}
	slices.Sort(ms)
	return report.Figures{
		figureP50: report.Quantile(ms, 0.5), figureP99: report.Quantile(ms, 0.99), figureP999: report.Quantile(ms, 0.999),
		figurePace: float64(p.rate),
	}, nil
}
