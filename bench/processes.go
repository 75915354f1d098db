package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store/postgres"
)

const oneProcess = "1 process"

// processesSuite drains a backlog with several relay processes that share its partitions. Processes and server share this
// machine's processors, so more processes are faster only while processors are idle.
var processesSuite = suite{
	name: "processes", title: "Drain a backlog by several relay processes", figure: figureRate, unit: "msg/s", long: true,
	also: []report.Column{{Figure: figureServer, Title: "server µs/msg"}, {Figure: figureWAL, Title: "WAL B/msg"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		b.n *= 3
		entries := []entry{b.drainByProcesses(1), b.drainByProcesses(2), b.drainByProcesses(4)}
		for i := range entries[1:] {
			entries[1+i].limit = oneProcess
		}
		return entries, nil
	},
}

// share is a run of several processes: prepare's results for run.
type share struct {
	b            *bundle
	count        int
	prefix, name string
	store        *postgres.Store
	processes    []*process.Process
	backlog      pgx.Tx // has written everything
}

// drainByProcesses starts relay processes on an empty outbox, waits until each has its share, and measures the time from
// the commit of the one transaction that publishes everything.
func (b *bundle) drainByProcesses(count int) entry {
	s := &share{b: b, count: count}
	return entry{name: processesName(count), role: report.Ours, prepare: s.prepare, run: s.run}
}

func processesName(count int) string {
	if count == 1 {
		return oneProcess
	}
	return fmt.Sprintf("%d processes", count)
}

func (s *share) prepare(ctx context.Context) (err error) {
	number := relays.Add(1)
	s.prefix, s.name = fmt.Sprintf("procs%d_", number), fmt.Sprintf("bench-%d", number)
	if s.store, err = s.b.storeWith(ctx, postgres.Config{Prefix: s.prefix}); err != nil {
		return err
	}
	for range s.count {
		p, err := s.b.startChild(ctx, relayCommand, &child{Postgres: s.b.url, Prefix: s.prefix, Name: s.name})
		if err != nil {
			return err
		}
		s.processes = append(s.processes, p)
		s.b.after(func() { _ = p.Kill() }) // in case the run fails before it stops them
	}
	if err := s.b.await(ctx, fmt.Sprintf("select count(*) = 8 and count(distinct owner) = %d from %sleases where relay = '%s' and owner <> ''",
		s.count, s.prefix, s.name)); err != nil {
		return fmt.Errorf("the processes do not share the partitions: %w", err)
	}
	if s.backlog, err = s.b.pool.Begin(ctx); err != nil {
		return err
	}
	_, err = s.backlog.Exec(ctx, fmt.Sprintf(generateSQL, s.prefix), messageType, source, payload, s.b.n, manyKeys)
	return err
}

func (s *share) run(ctx context.Context) (report.Figures, error) {
	if err := s.backlog.Commit(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	s.store.Wake()
	if err := s.b.await(ctx, fmt.Sprintf(`select coalesce(sum(c.delivered), 0) >= %d from %sleases l cross join lateral (select delivered
		from %[2]scursors c where c.relay = l.relay and c.partition = l.partition order by n desc limit 1) as c where l.relay = '%[3]s'`,
		s.b.n, s.prefix, s.name)); err != nil {
		return nil, err
	}
	figures := report.Figures{figureRate: float64(s.b.n) / time.Since(began).Seconds()}
	for _, p := range s.processes {
		if err := p.Stop(); err != nil {
			return nil, err
		}
	}
	s.processes = nil
	return figures, nil
}

// await queries the database every 2 ms until the result is true.
func (b *bundle) await(ctx context.Context, question string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var yes bool
		if err := b.pool.QueryRow(ctx, question).Scan(&yes); err != nil {
			return fmt.Errorf("%s: %w", question, err)
		}
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
