package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"
)

// order is the argument of the workflow, of the same size as the data of the saga in package bench.
type order struct {
	ID      string `json:"id"`
	Number  int    `json:"number"`
	Note    string `json:"note"`
	Stock   string `json:"stock,omitzero"`
	Payment string `json:"payment,omitzero"`
	Parcel  string `json:"parcel,omitzero"`
}

// part is the argument and the result of activities.
type part struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
}

const (
	namespace = "bench"
	queue     = "orders"
	rows      = 1000 // that an activity updates, as in package bench
	refusedOf = 50   // charges for one that is refused
	callers   = 64   // that start workflows and wait for them
	pollers   = 16   // of the worker, for workflow tasks and for activities; the SDK's default is 2
)

// fulfil is the saga: three steps, and what was done is undone after a refusal.
func fulfil(ctx workflow.Context, o order) (order, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
	var s *shop // for the names of its methods
	p := part{o.ID, o.Number}
	var undo []any
	fail := func(err error) (order, error) {
		for i := len(undo) - 1; i >= 0; i-- {
			if err := workflow.ExecuteActivity(ctx, undo[i], p).Get(ctx, nil); err != nil {
				return o, err
			}
		}
		return o, err
	}
	var r part
	if err := workflow.ExecuteActivity(ctx, s.Reserve, p).Get(ctx, &r); err != nil {
		return fail(err)
	}
	o.Stock, undo = r.ID, append(undo, s.Release)
	if err := workflow.ExecuteActivity(ctx, s.Charge, p).Get(ctx, &r); err != nil {
		return fail(err)
	}
	o.Payment, undo = r.ID, append(undo, s.Refund)
	if err := workflow.ExecuteActivity(ctx, s.Ship, p).Get(ctx, &r); err != nil {
		return fail(err)
	}
	o.Parcel = r.ID
	return o, nil
}

// shop has the activities, each of which updates one row.
type shop struct {
	pool    *pgxpool.Pool
	client  client.Client
	worker  worker.Worker
	started atomic.Int64
}

// Reserve is a step.
func (s *shop) Reserve(ctx context.Context, p part) (part, error) { return s.do(ctx, "reserve", p) }

// Charge is a step. One of fifty is refused.
func (s *shop) Charge(ctx context.Context, p part) (part, error) {
	if p.Number%refusedOf == refusedOf-1 {
		return part{}, temporal.NewNonRetryableApplicationError("limit", "refused", nil)
	}
	return s.do(ctx, "charge", p)
}

// Ship is a step.
func (s *shop) Ship(ctx context.Context, p part) (part, error) { return s.do(ctx, "ship", p) }

// Release undoes Reserve.
func (s *shop) Release(ctx context.Context, p part) error { return s.undo(ctx, "reserve", p) }

// Refund undoes Charge.
func (s *shop) Refund(ctx context.Context, p part) error { return s.undo(ctx, "charge", p) }

func (s *shop) do(ctx context.Context, step string, p part) (part, error) {
	_, err := s.pool.Exec(ctx, "update temporal_ledger set done = done + 1 where step = $1 and n = $2", step, p.Number%rows)
	return part{ID: step + " of " + p.ID}, err
}

func (s *shop) undo(ctx context.Context, step string, p part) error {
	_, err := s.pool.Exec(ctx, "update temporal_ledger set undone = undone + 1 where step = $1 and n = $2", step, p.Number%rows)
	return err
}

// newShop makes the rows of the activities, and starts a worker.
func newShop(ctx context.Context, server, address string) (*shop, error) {
	s := &shop{}
	var err error
	if s.pool, err = pgxpool.New(ctx, server); err != nil {
		return nil, err
	}
	if _, err := s.pool.Exec(ctx, `drop table if exists temporal_ledger;
		create table temporal_ledger (step text not null, n int not null, done bigint not null, undone bigint not null, primary key (step, n)) with (fillfactor = 50);
		insert into temporal_ledger select s, n, 0, 0 from unnest(array['reserve', 'charge', 'ship']) s, generate_series(0, 999) n`); err != nil {
		return nil, err
	}
	names, err := client.NewNamespaceClient(client.Options{HostPort: address, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	defer names.Close()
	if err := retried(ctx, func() error {
		return names.Register(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
	}); err != nil {
		return nil, fmt.Errorf("register the namespace: %w", err)
	}
	if s.client, err = client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}}); err != nil {
		return nil, err
	}
	s.worker = worker.New(s.client, queue, worker.Options{MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers})
	s.worker.RegisterWorkflow(fulfil)
	s.worker.RegisterActivity(s)
	if err := s.worker.Start(); err != nil {
		return nil, err
	}
	return s, retried(ctx, func() error { return s.order(ctx) }) // until the server knows the namespace
}

// retried calls f until it succeeds, for some minutes.
func retried(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *shop) close() {
	s.worker.Stop()
	s.client.Close()
	s.pool.Close()
}

// order runs a workflow to its end.
func (s *shop) order(ctx context.Context) error {
	number := int(s.started.Add(1)) - 1
	o := order{ID: fmt.Sprint("order-", number), Number: number, Note: strings.Repeat("a", 540)}
	w, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: o.ID, TaskQueue: queue}, fulfil, o)
	if err != nil {
		return err
	}
	var ended order
	err = w.Get(ctx, &ended)
	var refused *temporal.ApplicationError
	if errors.As(err, &refused) && refused.Type() == "refused" {
		return nil
	}
	return err
}

// flow runs n workflows to their ends, and checks what they left.
func (s *shop) flow(ctx context.Context, n int) (map[string]float64, error) {
	if _, err := s.pool.Exec(ctx, "update temporal_ledger set done = 0, undone = 0"); err != nil {
		return nil, err
	}
	first := int(s.started.Load())
	cpu, err := ownCPU()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() {
			for range share(n, i) {
				if errs[i] = s.order(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	used, err := ownCPU()
	if err != nil {
		return nil, err
	}
	refused := (first+n)/refusedOf - first/refusedOf
	var wrong int
	if err := s.pool.QueryRow(ctx, `select count(*) from (select sum(done - undone) as left from temporal_ledger group by step) as e where e.left <> $1`,
		n-refused).Scan(&wrong); err != nil {
		return nil, err
	}
	if wrong > 0 {
		return nil, fmt.Errorf("%d of the steps do not have %d effects", wrong, n-refused)
	}
	return map[string]float64{"rate": float64(n) / took.Seconds(), "client_cpu": float64((used - cpu).Microseconds()) / float64(n)}, nil
}

// share is how many of n workflows a caller runs.
func share(n, caller int) int { return (n + callers - 1 - caller) / callers }

func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// quiet is a logger of the SDK that writes nothing.
type quiet struct{}

var _ sdklog.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
