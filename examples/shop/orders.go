package shop

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

const orderTable = `CREATE TABLE IF NOT EXISTS orders (
	id TEXT PRIMARY KEY, kind TEXT NOT NULL, customer TEXT NOT NULL, lines TEXT NOT NULL, total BIGINT NOT NULL, status TEXT NOT NULL,
	created BIGINT NOT NULL)`

// orderIndex is for Ledger, which follows the orders in the order of their creation.
const orderIndex = `CREATE INDEX IF NOT EXISTS orders_by_creation ON orders (created)`

// The kinds of an order: by who leads its fulfilment.
const (
	orchestrated  = "orchestrated"
	choreographed = "choreographed"
)

// EngineName is the name of the engine that runs the sagas of orders.
const EngineName = "shop"

// orders owns the orders and their sagas.
type orders struct {
	*Service
	engine     *saga.Engine[*sql.Tx]
	fulfilment *saga.Saga[*sql.Tx, Order]
}

func openOrders(ctx context.Context, s *Service) (err error) {
	o := &orders{Service: s}
	if err := o.createTables(ctx, orderTable, orderIndex); err != nil {
		return err
	}
	o.engine, err = saga.New(s.db.Store, s.outbox, saga.Config{
		Name: EngineName, UndoTimeout: s.cfg.UndoTimeout, UndoAttempts: s.cfg.UndoAttempts, KeepEnded: s.cfg.Keep, Logger: s.cfg.Logger,
	})
	if err != nil {
		return err
	}
	for version := 1; version <= s.cfg.Version; version++ { // new orders get the last one, others continue with theirs
		if o.fulfilment, err = saga.Register(o.engine, Fulfilment(version, s.cfg.Terms, o.become)); err != nil {
			return err
		}
		byEvents := FulfilmentByEvents(version, s.cfg.Terms)
		if s.cfg.Keep > 0 { // what is removed cannot be cancelled
			byEvents.CancelWithin = min(byEvents.CancelWithin, s.cfg.Keep)
		}
		if err := saga.Track(o.engine, byEvents); err != nil {
			return err
		}
	}
	if err := o.runEngine(ctx); err != nil {
		return err
	}
	commands, events, err := s.participate(ctx, OrderCommands, s.hears([]string{PaymentEvents, ParcelEvents}, StockEvents)...)
	if err != nil {
		return err
	}
	o.routes()
	return o.choreograph(commands, events)
}

// runEngine adds the relay that runs the engine's timers and local steps, and the consumer of replies and of the contract's events.
func (o *orders) runEngine(ctx context.Context) error {
	sagas, err := o.relay("sagas", relay.Config{Topics: []string{o.engine.Topic()}})
	if err != nil {
		return err
	}
	replies, err := o.consume(ctx, "saga-replies", inbox.SkipUnhandled, append(o.engine.Topics(), o.engine.Topic())...)
	if err != nil {
		return err
	}
	return errors.Join(o.engine.Relay(sagas), o.engine.Consume(replies))
}

// place inserts an order and starts its saga, in one transaction. An order with an ID that exists is the same order.
func (o *orders) place(ctx context.Context, order Order) error {
	_, err := o.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := o.insert(ctx, tx, order, orchestrated); err != nil {
			return err
		}
		_, err := o.fulfilment.Start(ctx, tx, order, saga.ID(order.ID))
		return err
	})
	return err
}

// insert inserts an order that does not exist, and publishes its state.
func (o *orders) insert(ctx context.Context, tx *sql.Tx, order Order, kind string) (inserted bool, err error) {
	const insert = `INSERT INTO orders (id, kind, customer, lines, total, status, created) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT DO NOTHING`
	lines, err := json.Marshal(order.Lines)
	if err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, insert, order.ID, kind, order.Customer, string(lines), order.Total, Pending, time.Now().UnixNano())
	if err != nil {
		return false, fmt.Errorf("insert order %s: %w", order.ID, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	return true, o.announce(ctx, tx, order, kind, Pending)
}

// become returns the change of an order to a status.
func (o *orders) become(status Status) change {
	return func(ctx context.Context, tx *sql.Tx, order *Order) error {
		const update = `UPDATE orders SET status = $1, total = CASE CAST($2 AS BIGINT) WHEN 0 THEN total ELSE $2 END WHERE id = $3 RETURNING customer, total, kind`
		var kind string
		if err := tx.QueryRowContext(ctx, update, status, order.Total, order.ID).Scan(&order.Customer, &order.Total, &kind); err != nil {
			return fmt.Errorf("order %s becomes %s: %w", order.ID, status, err)
		}
		return o.announce(ctx, tx, *order, kind, status)
	}
}

// announce publishes the state of an order, in the transaction that changes it.
func (o *orders) announce(ctx context.Context, tx *sql.Tx, order Order, kind string, status Status) error {
	m, err := OrderChanged.New(OrderState{ID: order.ID, Kind: kind, Customer: order.Customer, Status: status, Total: order.Total})
	if err != nil {
		return err
	}
	_, err = o.outbox.Publish(ctx, tx, m)
	return err
}

// cancel asks the saga of an order to turn back, and waits for its end, or for its answer why it refuses. Errors: saga.ErrNotFound;
// saga.ErrPending if it takes longer than callers wait.
func (o *orders) cancel(ctx context.Context, order OrderView, reason string) (refused string, err error) {
	if order.Kind == choreographed && o.cfg.Terms.Compensate == saga.Observe {
		return o.stop(ctx, order)
	}
	id := order.ID
	if _, err := o.engine.Get(ctx, id); err != nil {
		return "", err
	}
	var operation string
	_, err = o.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		operation, err = o.engine.Operate(ctx, tx, id, saga.Operation{Verb: saga.Cancel, Actor: "customer", Reason: reason})
		return err
	})
	if err != nil {
		return "", err
	}
	waiting, end := context.WithTimeout(ctx, maxWait)
	defer end()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		outcome, err := o.engine.Outcome(ctx, id, operation)
		if err != nil || outcome.Refused != "" {
			return outcome.Refused, err
		}
		if outcome.Handled {
			_, err := o.engine.Wait(waiting, id)
			return "", err
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return "", saga.ErrPending
		}
	}
}

// release ends the hold of an order.
func (o *orders) release(ctx context.Context, order OrderView) error {
	_, err := o.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if order.Kind == choreographed {
			return o.tell(ctx, tx, OrderReleased, Order{ID: order.ID, Customer: order.Customer, Lines: order.Lines, Total: order.Total})
		}
		return saga.Signal(ctx, tx, o.outbox, EngineName, order.ID, ReleaseOrder, struct{}{})
	})
	return err
}
