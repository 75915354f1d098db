package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/postrider/postrider/bench/internal/report"
)

// River, github.com/riverqueue/river: jobs in a table of PostgreSQL, claimed by an update and completed by another.

// riverJob is the message as a job.
type riverJob struct{ number int }

// Kind implements river.JobArgs.
func (riverJob) Kind() string { return messageType }

const riverNumber = `"number":"`

// MarshalJSON makes the job's arguments equal to the others' payload, with its number in it.
func (j riverJob) MarshalJSON() ([]byte, error) {
	const tail = `"}`
	text := fmt.Appendf(nil, `{%s%010d",`, riverNumber, j.number)
	return append(append(text, payload[1:len(payload)-len(text)+1-len(tail)]...), tail...), nil
}

// UnmarshalJSON reads only the number: the other handlers do not decode their payloads either. River stores arguments as
// jsonb, which puts a space after the colon.
func (j *riverJob) UnmarshalJSON(text []byte) (err error) {
	at := bytes.Index(text, []byte(`"number"`)) + len(riverNumber) + 1
	if at+10 > len(text) {
		return fmt.Errorf("no number in %q", text)
	}
	j.number, err = strconv.Atoi(string(text[at : at+10]))
	return err
}

// riverSettings are the settings of a client.
type riverSettings struct {
	name                   string
	workers                int
	fetchCooldown, polling time.Duration
}

var (
	// riverDefaults: FetchCooldownDefault and FetchPollIntervalDefault; MaxWorkers has no default, 100 is the value in
	// River's documentation.
	riverDefaults = riverSettings{name: "River, defaults", workers: 100}
	// riverBest are the settings of River's own benchmark (cmd/river/riverbench).
	riverBest = riverSettings{name: "River, settings of its benchmark", workers: 2000, fetchCooldown: 2 * time.Millisecond, polling: 20 * time.Millisecond}
)

// riverPeer is River in a bundle's database.
type riverPeer struct {
	b      *bundle
	insert *river.Client[pgx.Tx]
}

func newRiver(ctx context.Context, b *bundle) (*riverPeer, error) {
	driver := riverpgxv5.New(b.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	p := &riverPeer{b: b}
	p.insert, err = river.NewClient(driver, &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return p, err
}

// riverPublish writes an order and a job.
func riverPublish(ctx context.Context, b *bundle) (way, error) {
	p, err := newRiver(ctx, b)
	if err != nil {
		return way{}, err
	}
	return way{name: "River, InsertTx", role: report.Peer, publish: p.placeOrder}, nil
}

// placeOrder writes an order and its job in one transaction.
func (p *riverPeer) placeOrder(ctx context.Context, i int) error {
	return pgx.BeginFunc(ctx, p.b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrderSQL, customer, i); err != nil {
			return err
		}
		_, err := p.insert.InsertTx(ctx, tx, riverJob{number: i}, nil)
		return err
	})
}

// fill inserts n jobs in River's fastest way, after removing those of earlier runs.
func (p *riverPeer) fill(ctx context.Context, n int) error {
	if _, err := p.b.pool.Exec(ctx, "truncate river_job"); err != nil {
		return err
	}
	const chunk = 1000
	for left := n; left > 0; left -= chunk {
		jobs := make([]river.InsertManyParams, min(chunk, left))
		for i := range jobs {
			jobs[i].Args = riverJob{number: n - left + i}
		}
		if _, err := p.insert.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	_, err := p.b.pool.Exec(ctx, "vacuum analyze river_job")
	return err
}

// riverWorker passes each job to a function.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	handle func(ctx context.Context, job riverJob) error
}

// Work implements river.Worker.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	return w.handle(ctx, job.Args)
}

// drain works n jobs and returns when all are completed according to the table.
func (p *riverPeer) drain(ctx context.Context, set riverSettings, n int, handle func(ctx context.Context, job riverJob) error) error {
	var worked atomic.Int64
	all := make(chan struct{})
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &riverWorker{handle: func(ctx context.Context, job riverJob) error {
		if err := handle(ctx, job); err != nil {
			return err
		}
		if worked.Add(1) == int64(n) {
			close(all)
		}
		return nil
	}}); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(p.b.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: set.workers}}, Workers: workers,
		FetchCooldown: set.fetchCooldown, FetchPollInterval: set.polling, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := client.Stop(ctx); err != nil { // it completes the worked jobs
		return err
	}
	var completed int
	if err := p.b.pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&completed); err != nil {
		return err
	}
	if completed != n {
		return fmt.Errorf("river completed %d jobs of %d", completed, n)
	}
	return nil
}
