package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

const (
	maintainedNever  = "no maintenance"
	maintainedKilled = "segments ended, maintenance killed at each of its statements"
	figureKills      = "kills"
	figureSegments   = "segments"
)

// maintainedSuite publishes at full speed while no relay is alive, with and without maintenance that ends segments of the log
// and is killed while it does so.
var maintainedSuite = suite{
	name: "maintained", title: "Publish at full speed for 60 s with no relay alive, 8 writers", figure: figureP99, unit: "ms at p99", lower: true, slow: true, long: true,
	also: []report.Column{
		{Figure: figureP50, Title: "p50"}, {Figure: figureP999, Title: "p99.9"}, {Figure: figureRate, Title: "tx/s"},
		{Figure: figureSegments, Title: "segments ended"}, {Figure: figureKills, Title: "kills"},
	},
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
		killed, err := b.store(ctx, "killed_")
		if err != nil {
			return nil, err
		}
		return []entry{
			{name: maintainedNever, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) {
				return b.publishFor(ctx, calm, time.Minute)
			}},
			{name: maintainedKilled, role: report.Ours, limit: maintainedNever, run: func(ctx context.Context) (report.Figures, error) {
				return b.publishMaintained(ctx, killed, postgres.Config{Prefix: "killed_"}, time.Minute)
			}},
		}, nil
	},
}

// publishFor places orders from 8 writers and returns the quantiles of the transactions' durations. It ignores the first
// second.
func (b *bundle) publishFor(ctx context.Context, s store.Outbox[pgx.Tx], d time.Duration) (report.Figures, error) {
	const writers = 8
	o, err := newOutbox(s)
	if err != nil {
		return nil, err
	}
	var (
		took  [writers][]float64 // ms
		errs  [writers]error
		all   sync.WaitGroup
		began = time.Now()
	)
	for w := range writers {
		all.Go(func() {
			for i := w; errs[w] == nil; i += writers {
				before := time.Now()
				if before.Sub(began) >= d {
					return
				}
				errs[w] = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return placeOrder(ctx, o, tx, i) })
				if before.Sub(began) > time.Second {
					took[w] = append(took[w], float64(time.Since(before))/float64(time.Millisecond))
				}
			}
		})
	}
	all.Wait()
	ms := slices.Concat(took[:]...)
	slices.Sort(ms)
	return report.Figures{
		figureP50: report.Quantile(ms, 0.5), figureP99: report.Quantile(ms, 0.99), figureP999: report.Quantile(ms, 0.999),
		figureRate: float64(len(ms)) / (d - time.Second).Seconds(),
	}, errors.Join(errs[:]...)
}

// publishMaintained is publishFor while segments are ended, again and again, by maintenance whose connection is cut at its
// first packet, then at its second, and so on.
func (b *bundle) publishMaintained(ctx context.Context, s *postgres.Store, c postgres.Config, d time.Duration) (report.Figures, error) {
	first, err := b.segment(ctx, c)
	if err != nil {
		return nil, err
	}
	during, stop := context.WithCancel(ctx)
	var kills int
	ended := make(chan error, 1)
	go func() {
		var err error
		kills, err = b.killMaintenance(during, c)
		ended <- err
	}()
	figures, err := b.publishFor(ctx, s, d)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	last, err := b.segment(ctx, c)
	if err != nil {
		return nil, err
	}
	figures[figureSegments], figures[figureKills] = float64(last-first), float64(kills)
	return figures, nil
}

// segment returns the number of the segment to which publishers write; a segment has 2^39 numbers.
func (b *bundle) segment(ctx context.Context, c postgres.Config) (n int64, err error) {
	return n, b.pool.QueryRow(ctx, "select last_value >> 39 from "+c.Prefix+"log_seq_seq").Scan(&n)
}

// killMaintenance ages the segment that publishers write to and maintains the log, in turn with its connection cut, at a later
// packet each time, and undisturbed. It starts over with the first packet when nothing was cut, until ctx ends.
func (b *bundle) killMaintenance(ctx context.Context, c postgres.Config) (kills int, err error) {
	age := fmt.Sprintf(`update %[1]slog set created_at = created_at - interval '1 day' where seq in
		(select seq from %[1]slog where seq >= (select last_value >> 39 << 39 from %[1]slog_seq_seq) order by seq limit 1)`, c.Prefix)
	next := time.NewTicker(maintainEvery)
	defer next.Stop()
	for packet := int64(1); ; packet++ {
		for _, n := range []int64{packet, undisturbedMaintenance} {
			select {
			case <-next.C:
			case <-ctx.Done():
				return kills, nil
			}
			_, err := b.pool.Exec(ctx, age)
			var cut bool
			if err == nil {
				cut, err = b.maintainAndCut(ctx, c, n)
			}
			switch {
			case ctx.Err() != nil:
				return kills, nil
			case cut:
				kills++
			case err != nil:
				return kills, err
			case n == packet:
				packet = 0
			}
		}
	}
}

// maintainEvery is the time between two runs of maintenance, each of which opens connections of its own. It is 240 times shorter
// than a relay's; without a pause, what would be measured is how many connections the server opens.
const maintainEvery = 250 * time.Millisecond

// undisturbedMaintenance is a number of packets that is never reached.
const undisturbedMaintenance = math.MaxInt64

// maintainAndCut maintains the log as a process of its own, whose connection is cut before it sends its n-th packet after the
// start.
func (b *bundle) maintainAndCut(ctx context.Context, c postgres.Config, n int64) (cut bool, err error) {
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return false, err
	}
	var left atomic.Int64
	left.Store(-1)
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return cutConn{conn, &left}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer pool.Close()
	s, err := postgres.New(pool, c)
	if err != nil {
		return false, err
	}
	defer s.Close()
	if err := s.Open(ctx); err != nil {
		return false, err
	}
	left.Store(n)
	_, err = s.Maintain(ctx, store.Retention{For: 48 * time.Hour})
	return left.Load() <= 0, err
}

// cutConn closes the connection instead of sending a packet once left has reached 0.
type cutConn struct {
	net.Conn
	left *atomic.Int64
}

func (c cutConn) Write(p []byte) (int, error) {
	if c.left.Add(-1) == 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}
