package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/itest/process"
)

// The suites in this file measure the postrider program as shipped, with its default settings.

const (
	figureRSS        = "rss"        // the largest resident set, MiB
	figureIdleCPU    = "idle_cpu"   // percent of a core
	figureStatements = "statements" // per second on the server
)

// buildProgram builds postrider as it is released.
func (b *bundle) buildProgram(ctx context.Context) (string, error) {
	path := filepath.Join(b.dir, "postrider")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "github.com/postrider/postrider/cmd/postrider")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build postrider (run this in the repository): %w\n%s", err, out)
	}
	return path, nil
}

// startProgram runs postrider relay from an outbox to a stream.
func (b *bundle) startProgram(ctx context.Context, path, prefix, stream string) (*process.Process, error) {
	nats, err := b.startNATS(ctx)
	if err != nil {
		return nil, err
	}
	store, err := url.Parse(b.url)
	if err != nil {
		return nil, err
	}
	query := store.Query()
	query.Set("prefix", prefix)
	store.RawQuery = query.Encode()
	return process.Start(ctx, process.Command{
		Name: "postrider", Path: path, Log: filepath.Join(b.dir, stream+".log"),
		Args: []string{"relay", "--store", store.String(), "--publisher", nats + "?stream=" + stream},
	})
}

// memorySuite drains backlogs to JetStream with the program and reads its peak memory.
var memorySuite = suite{
	name: "memory", title: "Peak memory of postrider relay while it drains a backlog to JetStream", figure: figureRSS, unit: "MiB", lower: true, long: true,
	also: []report.Column{{Figure: figureRate, Title: "msg/s"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		program, err := b.buildProgram(ctx)
		if err != nil {
			return nil, err
		}
		return []entry{
			b.peakMemory(memorySmall, program, b.n),
			b.peakMemory(memoryLarge, program, 10*b.n),
			// Measured once, on 2 cores, draining 100,000 messages.
			{name: "River, 2,000 workers", role: report.Quoted, quoted: 93},
			{name: "open-outbox relay, batches of 1,000", role: report.Quoted, quoted: 35},
		}, nil
	},
}

const (
	memorySmall = "a backlog"
	memoryLarge = "ten times that backlog"
)

// peakMemory drains n messages in a new process.
func (b *bundle) peakMemory(name, program string, n int) entry {
	prefix, stream := "", ""
	return entry{
		name: name, role: report.Ours, messages: n,
		prepare: func(ctx context.Context) error {
			number := relays.Add(1)
			prefix, stream = fmt.Sprintf("memory%d_", number), fmt.Sprintf("MEMORY%d", number)
			if _, err := b.store(ctx, prefix); err != nil {
				return err
			}
			return b.generate(ctx, prefix, n)
		},
		run: func(ctx context.Context) (_ report.Figures, err error) {
			p, err := b.startProgram(ctx, program, prefix, stream)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, p.Stop()) }()
			if err := b.await(ctx, fmt.Sprintf(`select coalesce(sum(delivered), 0) >= %d from (select distinct on (partition) delivered from %scursors
				order by partition, n desc) as c`, n, prefix)); err != nil {
				return nil, fmt.Errorf("%w\n%s", err, p.Tail())
			}
			rss, err := peakRSS(p.PID())
			return report.Figures{figureRSS: rss}, err
		},
	}
}

// idleSuite measures the program while there is nothing to do.
var idleSuite = suite{
	name: "idle", title: "postrider relay with nothing to deliver, after 10 s, for 20 s", figure: figureIdleCPU, unit: "% of a core", lower: true, long: true,
	also: []report.Column{{Figure: figureStatements, Title: "statements/s"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, "create extension if not exists pg_stat_statements"); err != nil {
			return nil, err
		}
		program, err := b.buildProgram(ctx)
		if err != nil {
			return nil, err
		}
		return []entry{{name: idleRelay, role: report.Ours, messages: 1, run: b.idle(program)}}, nil
	},
}

const idleRelay = "postrider relay, idle"

// callsSQL counts the statements in the suite's database so far, except this one.
const callsSQL = `select coalesce(sum(calls), 0)::int8 from pg_stat_statements s join pg_database d on d.oid = s.dbid
	where d.datname = current_database() and s.query not like '%pg_stat_statements%'`

func (b *bundle) idle(program string) func(ctx context.Context) (report.Figures, error) {
	return func(ctx context.Context) (_ report.Figures, err error) {
		number := relays.Add(1)
		prefix := fmt.Sprintf("idle%d_", number)
		if _, err := b.store(ctx, prefix); err != nil {
			return nil, err
		}
		p, err := b.startProgram(ctx, program, prefix, fmt.Sprintf("IDLE%d", number))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.Stop()) }()
		read := func(wait time.Duration) (calls int64, cpu time.Duration, err error) {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return 0, 0, ctx.Err()
			}
			if err := b.pool.QueryRow(ctx, callsSQL).Scan(&calls); err != nil {
				return 0, 0, err
			}
			s, err := readStat(p.PID())
			return calls, s.own, err
		}
		const settle, watch = 10 * time.Second, 20 * time.Second
		callsBefore, cpuBefore, err := read(settle)
		if err != nil {
			return nil, err
		}
		calls, cpu, err := read(watch)
		return report.Figures{
			figureIdleCPU:    100 * (cpu - cpuBefore).Seconds() / watch.Seconds(),
			figureStatements: float64(calls-callsBefore) / watch.Seconds(),
		}, err
	}
}
