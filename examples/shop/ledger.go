package shop

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// Ledger compares what the four services have recorded, while they work. What is checked:
//
//   - A shipped order has one reservation for each line, one payment of its total, and one parcel.
//   - A cancelled order has neither goods nor parcel, and its money was refunded.
//   - Of each product, what is free, reserved and sold is what was bought.
//   - An order that is not final has a saga that has not ended, and the other way around. A choreographed order gets its saga when the
//     tracker has read that the order was created.
//
// What is late breaks no promise, so it is counted in Tally.Overdue.
//
// An order becomes final after everything about it was done or undone, and does not change any more. So Check reads the orders first,
// and compares the final ones with what the other services have: each once. It keeps only orders that are not final in memory.
type Ledger struct {
	Orders, Inventory, Payments, Shipping *sql.DB
	// Sagas are those of the orders service.
	Sagas store.SagaReader
	// OverdueAfter is how late a saga may notice its deadline, and the tracker an order. Default: 10 s.
	OverdueAfter time.Duration

	since   int64 // orders created before are final and checked
	checked map[string]bool
	tally   Tally
}

// Tally is the sum of what Ledger has checked.
type Tally struct {
	// Shipped and Cancelled count final orders, Open the others. Overdue counts those of them whose saga should have begun, or should
	// have noticed its deadline: the machine is slow, or something stands still.
	Shipped, Cancelled, Open, Overdue int
	// Charged is the value of the shipped orders. Refunded is what was charged for cancelled ones and given back.
	Charged, Refunded Money
	// Free, Reserved and Sold count goods; together they are Bought.
	Free, Reserved, Sold, Bought int64
	// Broken lists what is wrong: at most 20, the number of all is in Violations.
	Broken     []string
	Violations int
}

// Exact reports whether nothing is wrong.
func (t Tally) Exact() bool { return t.Violations == 0 }

// slack is how much later than a younger order an older one is committed. What takes longer is found by Totals.
const slack = 10 * time.Second

// Check checks what has changed since the last call. It is not safe for concurrent use.
func (l *Ledger) Check(ctx context.Context) (Tally, error) {
	orders, err := l.readOrders(ctx, l.since-int64(slack))
	if err != nil {
		return l.tally, fmt.Errorf("read the orders: %w", err)
	}
	l.tally.Open, l.tally.Overdue = 0, 0
	checked := make(map[string]bool)
	l.since = time.Now().UnixNano()
	for _, o := range orders {
		switch {
		case !o.Status.Final():
			l.tally.Open++
			l.since = min(l.since, o.created)
			err = l.checkOpen(ctx, o)
		case !l.checked[o.ID]:
			err = l.checkFinal(ctx, o)
			fallthrough
		default:
			checked[o.ID] = true
		}
		if err != nil {
			return l.tally, fmt.Errorf("check order %s: %w", o.ID, err)
		}
	}
	l.checked = checked
	if err := l.checkStock(ctx); err != nil {
		return l.tally, fmt.Errorf("check the stock: %w", err)
	}
	if err := l.checkSagas(ctx); err != nil {
		return l.tally, fmt.Errorf("check the sagas: %w", err)
	}
	return l.tally, nil
}

// Totals checks the sums over all orders, when none is open. Their cost grows with the number of orders.
func (l *Ledger) Totals(ctx context.Context) (Tally, error) {
	if _, err := l.Check(ctx); err != nil {
		return l.tally, err
	}
	s, err := l.sumUp(ctx)
	if err != nil {
		return l.tally, fmt.Errorf("sum up: %w", err)
	}
	if s.charged != l.tally.Charged || s.refunded != l.tally.Refunded || s.shipped != l.tally.Shipped { // Check has missed one
		broken, violations := l.tally.Broken, l.tally.Violations
		l.since, l.checked, l.tally = 0, nil, Tally{}
		if _, err := l.Check(ctx); err != nil {
			return l.tally, err
		}
		if violations > 0 {
			l.tally.Broken, l.tally.Violations = broken, violations
		}
	}
	if l.tally.Open > 0 {
		l.broken("%d orders are not final", l.tally.Open)
	}
	if s.charged != s.value || s.charged != l.tally.Charged || s.refunded != l.tally.Refunded {
		l.broken("charged %s and refunded %s, but shipped orders are worth %s; one by one, %s and %s", s.charged, s.refunded, s.value, l.tally.Charged, l.tally.Refunded)
	}
	if s.parcels != s.shipped || s.shipped != l.tally.Shipped {
		l.broken("%d parcels for %d shipped orders; one by one, %d", s.parcels, s.shipped, l.tally.Shipped)
	}
	return l.tally, nil
}

// sums are those over all orders.
type sums struct {
	value, charged, refunded Money
	shipped, parcels         int
}

func (l *Ledger) sumUp(ctx context.Context) (s sums, err error) {
	for _, q := range []struct {
		db    *sql.DB
		query string
		args  []any
		to    any
	}{
		{l.Orders, `SELECT COALESCE(SUM(total), 0) FROM orders WHERE status = $1`, []any{Shipped}, &s.value},
		{l.Orders, `SELECT COUNT(*) FROM orders WHERE status = $1`, []any{Shipped}, &s.shipped},
		{l.Payments, `SELECT COALESCE(SUM(amount), 0) FROM payments WHERE state = $1`, []any{paymentCaptured}, &s.charged},
		{l.Payments, `SELECT COALESCE(SUM(amount), 0) FROM payments WHERE state = $1`, []any{paymentRefunded}, &s.refunded},
		{l.Shipping, `SELECT COUNT(*) FROM parcels`, nil, &s.parcels},
	} {
		if err := q.db.QueryRowContext(ctx, q.query, q.args...).Scan(q.to); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (l *Ledger) broken(format string, args ...any) {
	if l.tally.Violations++; l.tally.Violations <= 20 {
		l.tally.Broken = append(l.tally.Broken, fmt.Sprintf(format, args...))
	}
}

// order is an order as Ledger reads it.
type order struct {
	OrderView
	created int64
}

func (l *Ledger) readOrders(ctx context.Context, since int64) ([]order, error) {
	type row struct {
		order
		lines string
	}
	const query = `SELECT id, kind, lines, total, status, created FROM orders WHERE created >= $1 ORDER BY created`
	rows, err := l.Orders.QueryContext(ctx, query, since)
	found, err := collect(rows, err, func(r *row) []any { return []any{&r.ID, &r.Kind, &r.lines, &r.Total, &r.Status, &r.created} })
	orders := make([]order, len(found))
	for i, r := range found {
		orders[i] = r.order
		if err := json.Unmarshal([]byte(r.lines), &orders[i].Lines); err != nil {
			return nil, fmt.Errorf("read the lines of order %s: %w", r.ID, err)
		}
	}
	return orders, err
}

// checkFinal compares a final order with its effects.
func (l *Ledger) checkFinal(ctx context.Context, o order) error {
	goods, err := texts(l.Inventory.QueryContext(ctx, `SELECT sku FROM reservations WHERE order_id = $1 AND state <> $2`, o.ID, released))
	if err != nil {
		return err
	}
	type payment struct {
		amount Money
		state  string
	}
	rows, err := l.Payments.QueryContext(ctx, `SELECT amount, state FROM payments WHERE order_id = $1`, o.ID)
	paid, err := collect(rows, err, func(p *payment) []any { return []any{&p.amount, &p.state} })
	if err != nil {
		return err
	}
	parcels, err := texts(l.Shipping.QueryContext(ctx, `SELECT number FROM parcels WHERE order_id = $1`, o.ID))
	if err != nil {
		return err
	}
	var charged, refunded Money
	charges := 0
	for _, p := range paid {
		if p.state == paymentRefunded {
			refunded += p.amount
			continue
		}
		charged += p.amount
		charges++
	}
	l.tally.Charged += charged
	l.tally.Refunded += refunded
	if o.Status == Shipped {
		l.tally.Shipped++
		if len(goods) != len(o.Lines) || charges != 1 || charged != o.Total || len(parcels) != 1 {
			l.broken("order %s is shipped: %d of %d lines reserved, %d charges of together %s for %s, %d parcels",
				o.ID, len(goods), len(o.Lines), charges, charged, o.Total, len(parcels))
		}
		return nil
	}
	l.tally.Cancelled++
	if len(goods) != 0 || charges != 0 || len(parcels) != 0 {
		l.broken("order %s is cancelled: %d lines reserved, %d charges of together %s, %d parcels", o.ID, len(goods), charges, charged, len(parcels))
	}
	return nil
}

// checkOpen checks that an order that was not final has a saga that has not ended.
func (l *Ledger) checkOpen(ctx context.Context, o order) error {
	if !o.needsSaga(o.Status) {
		return nil
	}
	found, err := l.Sagas.SagasByID(ctx, []string{o.ID})
	switch {
	case err != nil, len(found) == 1 && !found[0].Status.Ended():
		return err
	case len(found) == 0 && o.Kind == choreographed:
		l.late(time.Since(time.Unix(0, o.created)))
		return nil
	}
	status, err := l.statusOf(ctx, o.ID) // the saga may have gone on meanwhile
	if err == nil && o.needsSaga(status) {
		l.broken("order %s is %s and has no saga that works on it", o.ID, status)
	}
	return err
}

// needsSaga reports whether a saga must work on the order while it has a status: on a choreographed order until it is confirmed.
func (o *order) needsSaga(s Status) bool {
	return !s.Final() && (o.Kind != choreographed || s == Pending)
}

// late counts what is later than it should be.
func (l *Ledger) late(by time.Duration) {
	if by > cmp.Or(l.OverdueAfter, 10*time.Second) {
		l.tally.Overdue++
	}
}

func (l *Ledger) statusOf(ctx context.Context, id string) (status Status, err error) {
	err = l.Orders.QueryRowContext(ctx, `SELECT status FROM orders WHERE id = $1`, id).Scan(&status)
	return status, err
}

// checkSagas checks the sagas that have not ended: that they have an order that is not final, and whether they are overdue.
func (l *Ledger) checkSagas(ctx context.Context) error {
	const page = 500
	for after := ""; ; {
		found, err := l.Sagas.ListSagas(ctx, store.SagaFilter{Status: store.OpenSagaStatuses}, after, page)
		if err != nil {
			return err
		}
		for _, s := range found {
			after = s.Run
			if err := l.checkSaga(ctx, s); err != nil {
				return err
			}
		}
		if len(found) < page {
			return nil
		}
	}
}

func (l *Ledger) checkSaga(ctx context.Context, s store.SagaSummary) error {
	if !s.DeadlineAt.IsZero() && s.Kind == store.SagaOrchestrated && s.Status == store.SagaRunning && !s.PastPivot {
		l.late(s.StartedAt.Add(s.Age).Sub(s.DeadlineAt))
	}
	if s.Kind == store.SagaChoreographed { // it ends after its order
		return nil
	}
	status, err := l.statusOf(ctx, s.ID)
	if err != nil || !status.Final() {
		return err
	}
	now, err := l.Sagas.SagasByID(ctx, []string{s.ID}) // it may have ended meanwhile
	if err == nil && len(now) == 1 && !now[0].Status.Ended() {
		l.broken("saga %s is %s, but its order is %s", s.ID, now[0].Status, status)
	}
	return err
}

// checkStock checks the stock of every product, in one statement.
func (l *Ledger) checkStock(ctx context.Context) error {
	const query = `SELECT p.sku, p.bought, p.free, COALESCE(SUM(CASE r.state WHEN 'RESERVED' THEN r.quantity END), 0),
		COALESCE(SUM(CASE r.state WHEN 'SOLD' THEN r.quantity END), 0)
		FROM products p LEFT JOIN reservations r ON r.sku = p.sku GROUP BY p.sku, p.bought, p.free`
	type stock struct {
		sku                          string
		bought, free, reserved, sold int64
	}
	rows, err := l.Inventory.QueryContext(ctx, query)
	found, err := collect(rows, err, func(s *stock) []any { return []any{&s.sku, &s.bought, &s.free, &s.reserved, &s.sold} })
	t := &l.tally
	t.Bought, t.Free, t.Reserved, t.Sold = 0, 0, 0, 0
	for _, s := range found {
		if s.free+s.reserved+s.sold != s.bought {
			l.broken("of %s, %d are free, %d reserved and %d sold, but %d were bought", s.sku, s.free, s.reserved, s.sold, s.bought)
		}
		t.Bought, t.Free, t.Reserved, t.Sold = t.Bought+s.bought, t.Free+s.free, t.Reserved+s.reserved, t.Sold+s.sold
	}
	return err
}
