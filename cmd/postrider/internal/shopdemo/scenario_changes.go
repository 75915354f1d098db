package shopdemo

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// ordersAround is how many orders are placed before a change, and how many after it.
const ordersAround = 15

// underLoad runs a function while orders come in.
func (s *stage) underLoad(ctx context.Context, change func() error) (loadCounts, error) {
	rate, err := RateOf(cmp.Or(s.cfg.Load, "ambient"))
	if err != nil {
		return loadCounts{}, err
	}
	l := newLoad(s.world, rate)
	loading, end := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { l.run(loading) })
	err = l.more(ctx, ordersAround)
	if err == nil {
		err = change()
	}
	if err == nil {
		err = l.more(ctx, ordersAround)
	}
	end()
	working.Wait()
	counts, _, _ := l.stats()
	return counts, err
}

// more waits until a number of orders more has been placed.
func (l *load) more(ctx context.Context, n int) error {
	before, _, _ := l.stats()
	_, err := poll(ctx, patience, "orders are placed", func() (int, bool, error) {
		now, _, _ := l.stats()
		more := now.Orders - before.Orders
		return more, more >= n, nil
	})
	return err
}

func rebuildView(ctx context.Context, s *stage) error {
	if err := s.join(ctx, "view", "view"); err != nil {
		return err
	}
	s.do("the service view starts")
	counts, err := s.underLoad(ctx, func() error {
		if err := s.service("view").stop(); err != nil {
			return err
		}
		s.do("its database is dropped, while orders come in")
		return s.join(ctx, "view", "view_again")
	})
	if err != nil {
		return err
	}
	s.do("%d orders were placed and answered", counts.Orders+counts.Declined)
	tally, err := s.settle(ctx)
	if err != nil {
		return err
	}
	orders, err := states(ctx, s.dbs["orders"].DB, `SELECT id, status, total FROM orders`)
	if err != nil {
		return err
	}
	rows, err := poll(ctx, patience, "the read model has every order", func() (map[string]string, bool, error) {
		rows, err := states(ctx, s.dbs["view_again"].DB, `SELECT id, status, total FROM order_view`)
		return rows, maps.Equal(rows, orders), err
	})
	s.expect(err == nil, "the read model has %d rows, and is equal to the %d orders, row by row", len(rows), len(orders))
	var charges int
	if err := s.dbs["payments"].DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM payments`).Scan(&charges); err != nil {
		return err
	}
	s.expect(charges == tally.Shipped, "no saga ran again: %d charges for %d orders", charges, tally.Shipped)
	return nil
}

// states reads rows of an ID, a status and a total.
func states(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[string]string)
	for rows.Next() {
		var id, status string
		var total shop.Money
		if err := rows.Scan(&id, &status, &total); err != nil {
			return nil, err
		}
		found[id] = status + " " + total.String()
	}
	return found, rows.Err()
}

func joinConsumer(ctx context.Context, s *stage) error {
	counts, err := s.underLoad(ctx, func() error {
		s.do("the service loyalty starts for the first time, while orders come in")
		return s.join(ctx, "loyalty", "loyalty")
	})
	if err != nil {
		return err
	}
	s.do("%d orders were placed and answered", counts.Orders+counts.Declined)
	if _, err := s.settle(ctx); err != nil {
		return err
	}
	var want int64
	if err := s.dbs["orders"].DB.QueryRowContext(ctx, `SELECT COALESCE(SUM(total / 100), 0) FROM orders WHERE status = 'SHIPPED'`).Scan(&want); err != nil {
		return err
	}
	got, err := poll(ctx, patience, "the customers have their points", func() (got int64, done bool, err error) {
		err = s.dbs["loyalty"].DB.QueryRowContext(ctx, `SELECT COALESCE(SUM(points), 0) FROM points`).Scan(&got)
		return got, got == want, err
	})
	s.expect(err == nil, "the customers have %d points for the shipped orders, those before it started included; %d are right", got, want)
	return s.extendContract(ctx)
}

// extendContract adds the points to the contract: its version 2, while an order of version 1 is in progress.
func (s *stage) extendContract(ctx context.Context) error {
	if err := s.service("payments").stop(); err != nil {
		return err
	}
	order := orderRequest{Customer: "customer-08", Lines: []shop.Line{{SKU: "P-08", Quantity: 1}}}
	first, _, err := s.placed(ctx, choreographed, order, 0)
	if err != nil {
		return err
	}
	if _, err := poll(ctx, patience, "the order waits for its payment", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, first)
		return found, found.has("step.done", choreographed.reserve), err
	}); err != nil {
		return err
	}
	s.do("payments is stopped, so the order waits")
	if err := s.service("orders").stop(); err != nil {
		return err
	}
	s.service("orders").configure(func(c *Settings) { c.Limits.Version = 2 })
	if err := errors.Join(s.service("orders").start(ctx), s.service("payments").start(ctx)); err != nil {
		return err
	}
	s.do("orders is deployed with version 2 of the contract, which has the points, and payments is started")
	second, _, err := s.placed(ctx, choreographed, order, 0)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		id      string
		version int
	}{{first, 1}, {second, 2}} {
		if _, err := s.await(ctx, o.id, 0, shop.Shipped); err != nil {
			return err
		}
		found, err := poll(ctx, patience, "the saga has seen all its events", func() (shownSaga, bool, error) {
			found, err := s.saga(ctx, o.id)
			return found, found.has("step.done", "order.shipped") && (o.version == 1 || found.has("step.done", "points.given")), err
		})
		if err != nil {
			return err
		}
		s.expect(found.Version == o.version && found.Status == store.SagaCompleted && found.has("step.done", "points.given") == (o.version > 1),
			"order %s: its saga is %s with version %d, and %d of its events are points", short(o.id), found.Status, found.Version, found.count("step.done", "points.given"))
	}
	return nil
}

func deploy(ctx context.Context, s *stage) error {
	n := cmp.Or(s.cfg.InFlight, 1000)
	ids, err := s.holdOrders(ctx, n)
	if err != nil {
		return err
	}
	s.do("%d orders are confirmed and held, with version 1 of the saga", n)
	if err := s.diff(ctx, n); err != nil {
		return err
	}
	if err := s.service("orders").stop(); err != nil {
		return err
	}
	s.service("orders").configure(func(c *Settings) { c.Limits.Version = 2 })
	if err := s.service("orders").start(ctx); err != nil {
		return err
	}
	s.do("orders is deployed with the versions 1 and 2")
	expensive := newOrder()
	order := orderRequest{Customer: "customer-06", Lines: []shop.Line{{SKU: workstation, Quantity: 1}}}
	if _, err := s.place(ctx, orchestrated, expensive, order, 0); err != nil {
		return err
	}
	if _, err := poll(ctx, patience, "the order waits for a person", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, expensive)
		return found, found.Waiting == "review", err
	}); err != nil {
		return err
	}
	s.do("order %s of 1 × %s waits for a person: review", short(expensive), workstation)
	if err := s.operate(ctx, expensive, saga.Operation{Verb: saga.AnswerAsk, Step: "review", Option: "release", Actor: "demo", Reason: "known customer"}); err != nil {
		return err
	}
	s.by("postrider saga answer", "a person releases it")
	for _, id := range ids {
		if r, err := s.request(ctx, "PATCH", "orders", "/orders/"+id+"/release", nil); err != nil || r.status >= 300 {
			return errors.Join(err, fmt.Errorf("release order %s: %d %s", id, r.status, r.text()))
		}
	}
	s.do("the customers release the %d orders", n)
	tally, err := s.settle(ctx)
	if err != nil {
		return err
	}
	s.expect(tally.Shipped == n+1, "all %d orders are shipped", tally.Shipped)
	for _, v := range []struct{ version, want int }{{1, n}, {2, 1}} {
		got, err := s.completed(ctx, v.version)
		if err != nil {
			return err
		}
		s.expect(got == v.want, "%d sagas completed with version %d", got, v.version)
	}
	return nil
}

// holdOrders places orders that are held, and waits until they are confirmed.
func (s *stage) holdOrders(ctx context.Context, n int) ([]string, error) {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newOrder()
		o := orderRequest{Customer: "customer-07", Lines: []shop.Line{{SKU: fmt.Sprintf("P-%02d", 1+i%19), Quantity: 1}}, Hold: true}
		if _, err := s.place(ctx, orchestrated, ids[i], o, 0); err != nil {
			return nil, err
		}
	}
	_, err := poll(ctx, patience, "the orders are confirmed", func() (got int, done bool, err error) {
		err = s.dbs["orders"].DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM orders WHERE status = 'CONFIRMED'`).Scan(&got)
		return got, got == n, err
	})
	return ids, err
}

// diff asks what two builds would do with the orders in progress.
func (s *stage) diff(ctx context.Context, n int) error {
	var graphs [3][]byte
	for version := 1; version <= 2; version++ {
		d := shop.Fulfilment(version, shop.Terms{}, func(shop.Status) func(context.Context, *sql.Tx, *shop.Order) error {
			return func(context.Context, *sql.Tx, *shop.Order) error { return nil }
		})
		graph, _, err := d.Graph()
		if err != nil {
			return err
		}
		graphs[version] = graph
	}
	for _, build := range []struct {
		what   string
		graphs []byte
		want   saga.DiffClass
	}{
		{"version 2 alone", graphs[2], saga.DiffStops},
		{"both versions", append(graphs[1], graphs[2]...), saga.DiffPinned},
	} {
		found, err := saga.NewOperator(s.dbs["orders"]).Diff(ctx, build.graphs)
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("diff of a build with %s: %+v", build.what, found)
		}
		s.expect(found[0].Class == build.want && found[0].Count == n, "postrider saga diff: with %s, %d instances: %s", build.what, found[0].Count, found[0].Class)
	}
	return nil
}

// completed counts the sagas that completed with a version.
func (s *stage) completed(ctx context.Context, version int) (n int, err error) {
	const page = 500
	for after := ""; ; {
		found, err := s.dbs["orders"].ListSagas(ctx, store.SagaFilter{Version: version, Status: []store.SagaStatus{store.SagaCompleted}}, after, page)
		if err != nil || len(found) == 0 {
			return n, err
		}
		n, after = n+len(found), found[len(found)-1].Run
	}
}
