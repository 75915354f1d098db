package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
)

// counters are read before and after a run.
type counters struct {
	at      time.Time
	client  time.Duration
	server  time.Duration
	broker  time.Duration
	wal     int64
	mallocs uint64
}

func (b *bundle) count(ctx context.Context) (c counters, err error) {
	if b.pool != nil {
		if err := b.pool.QueryRow(ctx, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&c.wal); err != nil {
			return c, err
		}
	}
	if b.postgres != nil && b.pool != nil {
		if c.server, err = treeCPU(b.postgres.PID()); err != nil {
			return c, err
		}
	}
	if b.nats != nil {
		if c.broker, err = treeCPU(b.nats.PID()); err != nil {
			return c, err
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.mallocs = m.Mallocs
	if c.client, err = ownCPU(); err != nil {
		return c, err
	}
	c.at = time.Now()
	return c, nil
}

// observe runs an entry once and returns its figures: the usual ones, and those that the entry returns.
func (b *bundle) observe(ctx context.Context, e *entry) (report.Figures, error) {
	if e.prepare != nil {
		if err := e.prepare(ctx); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	if b.pool != nil {
		// Checkpoint now, so that none happens during the run, and all runs write full pages after one.
		if _, err := b.pool.Exec(ctx, "checkpoint"); err != nil {
			return nil, err
		}
	}
	runtime.GC()
	before, err := b.count(ctx)
	if err != nil {
		return nil, err
	}
	own, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(before.at)
	after, err := b.count(ctx)
	if err != nil {
		return nil, err
	}
	n := float64(b.n)
	if e.messages > 0 {
		n = float64(e.messages)
	}
	figures := report.Figures{
		figureRate:   n / elapsed.Seconds(),
		figureClient: float64((after.client - before.client).Microseconds()) / n,
		figureAllocs: float64(after.mallocs-before.mallocs) / n,
	}
	if b.pool != nil {
		figures[figureWAL] = float64(after.wal-before.wal) / n
	}
	if after.server > 0 {
		figures[figureServer] = float64((after.server - before.server).Microseconds()) / n
	}
	if after.broker > 0 {
		figures[figureBroker] = float64((after.broker - before.broker).Microseconds()) / n
	}
	maps.Copy(figures, own)
	return figures, nil
}
