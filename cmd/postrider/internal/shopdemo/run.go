package shopdemo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store"
)

// Run runs the shop under a load for the time that is configured, or until ctx ends. Errors: BrokenError; what prevented it from
// running.
func Run(ctx context.Context, cfg Config) (err error) {
	rate, err := RateOf(cfg.Load)
	if err != nil {
		return err
	}
	w, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	l, screen := newLoad(w, rate), newScreen(cfg, w)
	opening, closeShop := context.WithCancel(ctx)
	defer closeShop()
	if cfg.For > 0 {
		opening, closeShop = context.WithTimeout(ctx, cfg.For)
		defer closeShop()
	}
	var working sync.WaitGroup
	working.Go(func() { l.run(opening) })
	failed := screen.watch(opening, l)
	closeShop()
	working.Wait()
	if failed != nil {
		return failed
	}
	screen.close()
	closing, closed := context.WithCancel(context.WithoutCancel(ctx))
	defer closed()
	working.Go(func() { _ = screen.watch(closing, l) }) // what it finds, settle finds too
	tally, err := w.settle(closing)
	closed()
	working.Wait()
	if err != nil {
		return fmt.Errorf("check the ledger: %w", err)
	}
	wrongOrders, err := l.judgeOpen(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("look at the orders: %w", err)
	}
	broken := append(tally.Broken, wrongOrders...)
	counts, p50, p95 := l.stats()
	screen.result(tally, counts, p50, p95, broken)
	if len(broken) > 0 {
		return &BrokenError{broken}
	}
	return nil
}

// ledgerLines say what the ledger found.
func ledgerLines(t shop.Tally) []string {
	heading := "ledger exact"
	if !t.Exact() {
		heading = fmt.Sprintf("LEDGER NOT EXACT: %s, first: %s", drawing.Plural(t.Violations, "violation"), t.Broken[0])
	}
	return []string{
		fmt.Sprintf("%s · %s shipped worth %s, %s cancelled, %s refunded", heading, drawing.Number(t.Shipped), t.Charged, drawing.Number(t.Cancelled), t.Refunded),
		fmt.Sprintf("stock %s = %s free + %s reserved + %s sold", drawing.Number(t.Bought), drawing.Number(t.Free), drawing.Number(t.Reserved), drawing.Number(t.Sold)),
	}
}

// figures is what the screen shows at one time.
type figures struct {
	elapsed  time.Duration
	tally    shop.Tally
	counts   loadCounts
	p50, p95 time.Duration
	sagas    map[store.SagaStatus]int64
	services []serviceFigures
	latest   []latestOrder
}

// serviceFigures are the messages of a service that wait.
type serviceFigures struct {
	name, address         string
	backlog, parked, dead int64
}

// latestOrder is one of the last orders.
type latestOrder struct {
	id, kind string
	total    shop.Money
	status   shop.Status
}

// read reads what the screen shows.
func (w *world) read(ctx context.Context, l *load) (f figures, err error) {
	if f.tally, err = w.check(ctx); err != nil {
		return f, fmt.Errorf("check the ledger: %w", err)
	}
	f.counts, f.p50, f.p95 = l.stats()
	counts, err := w.dbs["orders"].CountSagas(ctx)
	if err != nil {
		return f, fmt.Errorf("count the sagas: %w", err)
	}
	f.sagas = make(map[store.SagaStatus]int64)
	for _, c := range counts {
		f.sagas[c.Status] += c.Count
	}
	for _, name := range shop.Names {
		s := serviceFigures{name: name, address: w.service(name).address()}
		status, err := w.dbs[name].Store.(store.StatusReader).Status(ctx)
		if err != nil {
			return f, fmt.Errorf("read the status of %s: %w", name, err)
		}
		for _, r := range status.Relays {
			s.backlog, s.parked, s.dead = s.backlog+r.Backlog.N, s.parked+r.Parked.N, s.dead+r.Dead.N
		}
		f.services = append(f.services, s)
	}
	f.latest, err = w.latest(ctx)
	return f, err
}

// latestOrders is how many orders the screen shows.
const latestOrders = 5

func (w *world) latest(ctx context.Context) (found []latestOrder, err error) {
	const query = `SELECT id, kind, total, status FROM orders ORDER BY created DESC LIMIT $1`
	rows, err := w.dbs["orders"].DB.QueryContext(ctx, query, latestOrders)
	if err != nil {
		return nil, fmt.Errorf("read the latest orders: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var o latestOrder
		if err := rows.Scan(&o.id, &o.kind, &o.total, &o.status); err != nil {
			return nil, err
		}
		found = append(found, o)
	}
	return found, rows.Err()
}
