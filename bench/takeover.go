package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/itest/process"
)

const (
	takeoverKilled = "a consumer of a stream, its holder killed"

	figureBeyond = "beyond_ttl" // seconds after the end of LeaseTTL, the longest takeover
	figureUsual  = "takeover"   // seconds, the median

	takeoverTTL  = 3 * time.Second
	takeoverRate = 200 // messages per second
)

// takeoverSuite kills the process that reads a stream, again and again, and measures when the next one goes on. A run fails if an effect
// is lost, happens twice, or is out of the order of its key.
var takeoverSuite = suite{
	name: "takeover", title: "Takeover of a stream after SIGKILL of its consumer, LeaseTTL 3 s", figure: figureBeyond, unit: "s beyond LeaseTTL, the longest",
	lower: true, most: 1, long: true,
	also: []report.Column{{Figure: figureUsual, Title: "median, s"}, {Figure: figureKills, Title: "kills"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		nats, err := b.startNATS(ctx)
		if err != nil {
			return nil, err
		}
		t := &takeover{b: b, nats: nats, stream: fmt.Sprintf("TAKEOVER%d", streams.Add(1)), kills: 10, alive: make(map[string]*process.Process)}
		if b.options.quick {
			t.kills = 2
		}
		return []entry{{name: takeoverKilled, role: report.Ours, run: t.run}}, nil
	},
}

const takeoverPrefix = "takeover_"

// takeover is a stream with two consumer processes.
type takeover struct {
	b            *bundle
	nats, stream string
	kills        int
	alive        map[string]*process.Process // by process ID
}

func (t *takeover) run(ctx context.Context) (_ report.Figures, err error) {
	if _, err := t.b.store(ctx, takeoverPrefix); err != nil {
		return nil, err
	}
	publisher, err := natsbroker.Open(ctx, t.nats, natsbroker.Config{Stream: t.stream})
	if err == nil {
		err = t.b.createDone(ctx, takeoverPrefix)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	defer func() {
		for _, p := range t.alive {
			err = errors.Join(err, p.Stop())
		}
	}()
	for range 2 {
		if err := t.start(ctx); err != nil {
			return nil, err
		}
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	type published struct {
		n   int
		err error
	}
	ended := make(chan published, 1)
	go func() {
		n, err := t.publish(publishing, ctx, publisher)
		ended <- published{n, err}
	}()
	var took []time.Duration
	for range t.kills {
		d, err := t.kill(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
		fmt.Fprintf(t.b.progress, "takeover: %.2f s after a SIGKILL\n", d.Seconds())
	}
	stop()
	all := <-ended
	if all.err != nil {
		return nil, all.err
	}
	return t.figures(ctx, took, all.n)
}

// publish publishes messages until publishing ends, and returns how many.
func (t *takeover) publish(publishing, ctx context.Context, p *natsbroker.Publisher) (n int, err error) {
	every := time.NewTicker(time.Second / takeoverRate)
	defer every.Stop()
	for {
		select {
		case <-publishing.Done():
			return n, nil
		case <-every.C:
		}
		m := keys(50).message(n)
		n++
		m.AggregateVersion = int64(n)
		m.FillDefaults(source, time.Now())
		if err := errors.Join(p.Publish(ctx, []*postrider.Message{m})...); err != nil {
			return n, err
		}
	}
}

func (t *takeover) start(ctx context.Context) error {
	p, err := t.b.startChild(ctx, consumerCommand, &child{
		Postgres: t.b.url, Prefix: takeoverPrefix, Name: "takeover", NATS: t.nats, Stream: t.stream, LeaseTTL: takeoverTTL,
	})
	if err == nil {
		t.alive[strconv.Itoa(p.PID())] = p
	}
	return err
}

// kill kills the process that had the last effects, starts another, and returns how long it took until the one that was there went on.
func (t *takeover) kill(ctx context.Context) (time.Duration, error) {
	holder, err := t.settled(ctx)
	if err != nil {
		return 0, err
	}
	at := time.Now()
	if err := t.alive[holder].Kill(); err != nil {
		return 0, err
	}
	delete(t.alive, holder)
	const nextSQL = "select extract(epoch from at)::float8 from " + takeoverPrefix + "done where process <> $1 and at > $2 order by n limit 1"
	limit := time.Now().Add(patience)
	for time.Now().Before(limit) {
		var next float64
		err := t.b.pool.QueryRow(ctx, nextSQL, holder, at).Scan(&next)
		switch {
		case err == nil:
			return time.Unix(0, int64(next*1e9)).Sub(at), t.start(ctx)
		case !errors.Is(err, pgx.ErrNoRows):
			return 0, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, errors.New("no process took over")
}

// settled waits until the effects of two seconds came from one process, and returns its ID.
func (t *takeover) settled(ctx context.Context) (holder string, err error) {
	err = t.b.await(ctx, "select count(distinct process) = 1 and min(at) < clock_timestamp() - interval '1.9 s' from "+takeoverPrefix+
		"done where at > clock_timestamp() - interval '2 s'")
	if err == nil {
		err = t.b.pool.QueryRow(ctx, "select process from "+takeoverPrefix+"done order by n desc limit 1").Scan(&holder)
	}
	if err == nil && t.alive[holder] == nil {
		err = fmt.Errorf("an effect of process %s, which does not run", holder)
	}
	return holder, err
}

// figures waits until everything has had its effect, and counts what is wrong.
func (t *takeover) figures(ctx context.Context, took []time.Duration, published int) (report.Figures, error) {
	if err := t.b.await(ctx, fmt.Sprintf("select count(distinct id) >= %d from %sdone", published, takeoverPrefix)); err != nil {
		return nil, fmt.Errorf("messages are lost: %w", err)
	}
	var twice, disordered int
	if err := t.b.pool.QueryRow(ctx, "select count(*) - count(distinct id), count(*) filter (where number < before) from (select id, number, "+
		"lag(number) over (partition by key order by n) as before from "+takeoverPrefix+"done) d").Scan(&twice, &disordered); err != nil {
		return nil, err
	}
	if twice+disordered > 0 {
		return nil, fmt.Errorf("%d effects twice, %d out of the order of their key", twice, disordered)
	}
	var seconds []float64
	for _, d := range took {
		seconds = append(seconds, d.Seconds())
	}
	s := report.Summarise(seconds)
	return report.Figures{figureBeyond: s.Max - takeoverTTL.Seconds(), figureUsual: s.Median, figureKills: float64(len(took))}, nil
}
