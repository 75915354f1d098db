package shopdemo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

func timeOut(ctx context.Context, s *stage, k kind) error {
	if err := s.service("payments").stop(); err != nil {
		return err
	}
	s.do("payments is stopped")
	id, _, err := s.placed(ctx, k, orderRequest{Customer: "customer-03", Lines: []shop.Line{{SKU: "P-03", Quantity: 1}}}, 0)
	if err != nil {
		return err
	}
	found, err := poll(ctx, patience, "a step times out", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, id)
		return found, found.Cause != "", err
	})
	if err != nil {
		return err
	}
	s.do("the saga is %s, because it %s: %s", found.Status, found.Cause, found.Detail)
	s.expect(found.Cause == "timed out", "the cause is that it timed out")
	if err := s.service("payments").start(ctx); err != nil {
		return err
	}
	s.do("payments is started")
	order, err := s.await(ctx, id, 0, shop.Cancelled, shop.Shipped)
	if err != nil {
		return err
	}
	if found, err = s.ended(ctx, id); err != nil {
		return err
	}
	var payments, kept int
	const query = `SELECT COUNT(*), COUNT(CASE state WHEN 'CAPTURED' THEN 1 END) FROM payments WHERE order_id = $1`
	if err := s.dbs["payments"].DB.QueryRowContext(ctx, query, id).Scan(&payments, &kept); err != nil {
		return err
	}
	switch {
	case order.Status == shop.Shipped && k == choreographed: // nobody is in charge, so the services went on
		s.expect(found.Status == store.SagaCompleted && kept == 1, "the parcel left before it could be stopped: the saga is %s, with %d charge", found.Status, kept)
	case payments == 0:
		s.expect(found.Status == store.SagaCompensated, "the saga is %s: the undo arrived first, and blocked the charge", found.Status)
	default:
		s.expect(found.Status == store.SagaCompensated && kept == 0, "the saga is %s: the charge arrived first, and was refunded", found.Status)
	}
	return nil
}

// dead lists the open dead letters of a service.
func (s *stage) dead(ctx context.Context, service string) (found []store.DeadLetter, err error) {
	for l, err := range deadletter.New(s.dbs[service]).ListDead(ctx, store.DeadFilter{Relay: service}, 0, 0) {
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return found, nil
}

// redriveDead redrives the dead letters of a service.
func (s *stage) redriveDead(ctx context.Context, service string) (int, error) {
	n, err := deadletter.New(s.dbs[service]).RedriveDead(ctx, store.DeadFilter{Relay: service}, "demo", 0)
	s.dbs[service].Wake()
	return n, err
}

func redrive(ctx context.Context, s *stage) error {
	first, err := s.deadLetter(ctx)
	if err != nil {
		return err
	}
	if err := s.fail(ctx, "inventory", shop.ReserveStock.Type(), false); err != nil {
		return err
	}
	s.by("POST /faults", "inventory is repaired")
	n, err := s.redriveDead(ctx, "inventory")
	if err != nil {
		return err
	}
	s.by("postrider dead redrive", "an operator redrives %d dead letter", n)
	order, err := s.await(ctx, first, 0, shop.Shipped, shop.Cancelled)
	if err != nil {
		return err
	}
	s.expect(order.Status == shop.Shipped, "the order is %s", order.Status)

	second, err := s.deadLetter(ctx)
	if err != nil {
		return err
	}
	r, err := s.cancel(ctx, second)
	if err != nil {
		return err
	}
	s.by("PATCH /orders/ID/cancel", "the customer cancels it: %d", r.status)
	if _, err = s.await(ctx, second, 0, shop.Cancelled); err != nil {
		return err
	}
	if err := s.fail(ctx, "inventory", shop.ReserveStock.Type(), false); err != nil {
		return err
	}
	if n, err = s.redriveDead(ctx, "inventory"); err != nil {
		return err
	}
	s.do("inventory is repaired, and an operator redrives %d dead letter", n)
	late, err := poll(ctx, patience, "the redriven command is answered", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, second)
		return found, found.has("late", ""), err
	})
	if err != nil {
		return err
	}
	s.expect(late.Status == store.SagaCompensated, "the saga stays %s: the redriven command was refused, since it was undone before", late.Status)
	open, err := s.dead(ctx, "inventory")
	s.expect(len(open) == 0, "no dead letter is left")
	return err
}

// deadLetter places an order whose reservation fails until it is a dead letter.
func (s *stage) deadLetter(ctx context.Context) (order string, err error) {
	open, err := s.dead(ctx, "inventory")
	if err != nil {
		return "", err
	}
	s.by("postrider dead list", "inventory has %d dead letters", len(open))
	if err := s.fail(ctx, "inventory", shop.ReserveStock.Type(), true); err != nil {
		return "", err
	}
	s.by("POST /faults", "inventory fails for every reservation")
	if order, _, err = s.placed(ctx, orchestrated, orderRequest{Customer: "customer-04", Lines: []shop.Line{{SKU: "P-04", Quantity: 1}}}, 0); err != nil {
		return "", err
	}
	open, err = poll(ctx, patience, "there is a dead letter", func() ([]store.DeadLetter, bool, error) {
		open, err := s.dead(ctx, "inventory")
		return open, len(open) == 1, err
	})
	if err != nil {
		return "", err
	}
	l := open[0]
	s.do("dead letter %d: %s of %s, after %d attempts: %s", l.Number, l.Message.Type, l.Message.Key, l.Attempts, l.Cause)
	return order, nil
}

func stickRefund(ctx context.Context, s *stage) error {
	order := orderRequest{Customer: "customer-05", Lines: []shop.Line{{SKU: "P-06", Quantity: 1}}, Hold: true}
	id, _, err := s.placed(ctx, orchestrated, order, 0)
	if err != nil {
		return err
	}
	if _, err := s.await(ctx, id, 0, shop.Confirmed); err != nil {
		return err
	}
	if err := s.fail(ctx, "payments", shop.ChargeCard.UndoType(), true); err != nil {
		return err
	}
	s.by("POST /faults", "payments fails for every refund")
	r, err := s.cancel(ctx, id)
	if err != nil {
		return err
	}
	s.by("PATCH /orders/ID/cancel", "the customer cancels the order: %d", r.status)
	stuck, err := poll(ctx, patience, "the saga is stuck", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, id)
		return found, found.Status == store.SagaStuck, err
	})
	if err != nil {
		return err
	}
	s.do("the refund was sent %d times: the saga is %s, and %d steps are still to be undone", stuck.count("undo.sent", "charge"), stuck.Status, stuck.Obligations)
	open, err := s.order(ctx, id)
	if err != nil {
		return err
	}
	s.expect(open.Status != shop.Cancelled, "the order is %s, not cancelled: its money is not back", open.Status)
	counts, err := s.dbs["orders"].CountSagas(ctx)
	if err != nil {
		return err
	}
	s.expect(len(counts) == 1 && counts[0].Status == store.SagaStuck && counts[0].Count == 1, "the count of stuck sagas, for the alert SagaStuck, is 1")
	if err := s.fail(ctx, "payments", shop.ChargeCard.UndoType(), false); err != nil {
		return err
	}
	s.by("POST /faults", "payments is repaired")
	if err := s.operate(ctx, id, saga.Operation{Verb: saga.Retry, Actor: "demo", Reason: "payments is repaired"}); err != nil {
		return err
	}
	s.by("postrider saga retry", "an operator tries again")
	if _, err := s.await(ctx, id, 0, shop.Cancelled); err != nil {
		return err
	}
	found, err := s.printHistory(ctx, id)
	if err != nil {
		return err
	}
	s.expect(found.Status == store.SagaCompensated, "the saga is %s", found.Status)
	s.expect(found.operatedBy("demo"), "the operator is in its history")
	return nil
}

func (s shownSaga) operatedBy(actor string) bool {
	for _, t := range s.History {
		if t.Actor == actor {
			return true
		}
	}
	return false
}

// operate asks for an operation on the saga of an order, as postrider saga does.
func (s *stage) operate(ctx context.Context, id string, o saga.Operation) error {
	db := s.dbs["orders"]
	operator := saga.NewOperator(db)
	plan, err := operator.Plan(ctx, id, o)
	if err != nil {
		return err
	}
	if plan.Refused != "" {
		return fmt.Errorf("%s is refused: %s", o.Verb, plan.Refused)
	}
	o.Rev = plan.Rev
	m, err := operator.Message(ctx, id, o)
	if err != nil {
		return err
	}
	box, err := outbox.New(db.Store, outbox.Config{Source: "demo", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := box.Publish(ctx, tx, m)
		return err
	}); err != nil {
		return err
	}
	outcome, err := poll(ctx, patience, "the operation is handled", func() (saga.Outcome, bool, error) {
		outcome, err := operator.Outcome(ctx, id, m.ID)
		return outcome, outcome.Handled, err
	})
	if err == nil && outcome.Refused != "" {
		err = errors.New(outcome.Refused)
	}
	return err
}
