package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/saga"
)

// The same order without anyone in charge: each service reacts to an event and publishes the next. The correlation ID of all
// messages about an order is the order's ID.
var (
	OrderCreated     = orderEvent("order.created", OrderEvents)
	StockReserved    = orderEvent("stock.reserved", StockEvents)
	StockUnavailable = orderEvent("stock.unavailable", StockEvents)
	CardCharged      = orderEvent("card.charged", PaymentEvents)
	CardDeclined     = orderEvent("card.declined", PaymentEvents)
	OrderConfirmed   = orderEvent("order.confirmed", OrderEvents)
	OrderReleased    = orderEvent("order.released", OrderEvents)
	OrderShipped     = orderEvent("order.shipped", ParcelEvents)
	PointsGiven      = orderEvent("points.given", PointEvents)
)

// The requests to undo them, and the events that confirm that they are undone.
var (
	CancelOrder    = orderEvent("order.cancel", OrderCommands)
	OrderCancelled = orderEvent("order.cancelled", OrderEvents)
	ReleaseStock   = orderEvent("stock.release", StockCommands)
	StockReleased  = orderEvent("stock.released", StockEvents)
	RefundCard     = orderEvent("card.refund", PaymentCommands)
	CardRefunded   = orderEvent("card.refunded", PaymentEvents)
	StopParcel     = orderEvent("parcel.stop", ParcelCommands)
	ParcelStopped  = orderEvent("parcel.stopped", ParcelEvents)
	// OrderTimedOut tells the services that an order takes too long, if nobody asks them to undo it.
	OrderTimedOut = postrider.Define[saga.Report]("order.timed-out").WithTopic(OrderEvents).WithKey(func(r saga.Report) string { return KeyOf(r.ID) })
)

func orderEvent(messageType, topic string) postrider.Definition[Order] {
	return postrider.Define[Order](messageType).WithTopic(topic).WithKey(func(o Order) string { return KeyOf(o.ID) })
}

// cancelWithin is how long an order can be cancelled after it was confirmed, if its parcel has not left.
const cancelWithin = 72 * time.Hour

// FulfilmentByEvents is the one place that has the whole. The services do not know it; the engine of orders tracks it. Version 2 has the
// points of loyalty, which came later; instances of version 1 continue without them.
//
// When an order turns back, the tracker asks for the undos, unless Terms.Compensate is saga.Observe. Then it publishes nothing but
// OrderTimedOut, and the services undo in a chain, each when it hears that the one after it did: see undoes.
func FulfilmentByEvents(version int, terms Terms) saga.Contract {
	within := cmp.Or(terms.StepTimeout, 15*time.Second)
	c := saga.Contract{
		Name: FulfilmentName + "-by-events", Version: version, Deadline: cmp.Or(terms.Deadline, 60*time.Second), CancelWithin: cancelWithin,
		Compensate: terms.Compensate,
		Events: []saga.Event{
			{On: OrderCreated, Service: "orders", Start: true, Undo: CancelOrder, Undone: OrderCancelled},
			{
				On: StockReserved, Service: "inventory", After: saga.Defs{OrderCreated}, Fails: saga.Defs{StockUnavailable}, Within: within,
				Undo: ReleaseStock, Undone: StockReleased,
			},
			{
				On: CardCharged, Service: "payments", After: saga.Defs{StockReserved}, Fails: saga.Defs{CardDeclined}, Within: within,
				Undo: RefundCard, Undone: CardRefunded,
			},
			{On: OrderConfirmed, Service: "orders", After: saga.Defs{CardCharged}, Within: within, End: true, NoUndo: true}, // see cancelCreated
			{
				On: OrderShipped, Service: "shipping", After: saga.Defs{OrderConfirmed}, Optional: true, Pivot: true,
				Undo: StopParcel, Undone: ParcelStopped,
			},
		},
	}
	if terms.Compensate == saga.Observe {
		c.OnTimedOut = OrderTimedOut
	}
	if version > 1 {
		c.Events = append(c.Events, saga.Event{On: PointsGiven, Service: "loyalty", After: saga.Defs{OrderShipped}, Optional: true, NoUndo: true})
	}
	return c
}

// idOf is the order that a message is about: an undo of something that the tracker has not seen has no data.
func idOf(m postrider.Typed[Order]) Order { return Order{ID: m.CorrelationID} }

// undoes lets a service undo its part of an order: when the tracker asks for it, and, if that only observes, when the service hears of
// one of these events. The last service begins: it knows whether there is a way back.
//
//	shipping   hears order.timed-out, or is asked to stop the parcel of a cancelled order
//	payments   hears parcel.stopped
//	inventory  hears card.refunded or card.declined
//	orders     hears stock.released or stock.unavailable
func (s *Service) undoes(
	undo func(context.Context, *sql.Tx, postrider.Typed[Order]) error,
	commands *inbox.Consumer[*sql.Tx], request postrider.Definition[Order], events *inbox.Consumer[*sql.Tx], heard ...postrider.Definition[Order],
) error {
	err := inbox.Handle(commands, request, undo)
	if s.cfg.Terms.Compensate == saga.Observe {
		for _, event := range heard {
			err = errors.Join(err, inbox.Handle(events, event, undo))
		}
	}
	return err
}

// In orders.

// create inserts an order and publishes that it was created.
func (o *orders) create(ctx context.Context, order Order) error {
	_, err := o.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		inserted, err := o.insert(ctx, tx, order, choreographed)
		if err != nil || !inserted {
			return err
		}
		return o.tell(ctx, tx, OrderCreated, order)
	})
	return err
}

// tell publishes an event about an order.
func (o *orders) tell(ctx context.Context, tx *sql.Tx, event postrider.Definition[Order], order Order) error {
	m, err := event.New(order)
	if err != nil {
		return err
	}
	m.CorrelationID = order.ID
	_, err = o.outbox.Publish(ctx, tx, m)
	return err
}

// confirm confirms an order whose card was charged.
func (o *orders) confirm(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
	return o.participant.Do(ctx, tx, "confirm", func(ctx context.Context) (*postrider.Message, error) {
		if err := o.become(Confirmed)(ctx, tx, &m.Data); err != nil {
			return nil, err
		}
		return OrderConfirmed.New(m.Data)
	})
}

// cancelCreated undoes an order, confirmed or not. It will not be confirmed any more.
func (o *orders) cancelCreated(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
	return o.participant.Undo(ctx, tx, "confirm", func(ctx context.Context, _ *postrider.Message) (*postrider.Message, error) {
		order := idOf(m)
		if err := o.become(Cancelled)(ctx, tx, &order); err != nil {
			return nil, err
		}
		return OrderCancelled.New(order)
	})
}

// shipped handles the event that the parcel of an order has left.
func (o *orders) shipped(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
	return o.become(Shipped)(ctx, tx, &m.Data)
}

// stop asks shipping to stop the parcel of an order, after which the services undo the rest, and waits for the end of that.
// Errors: saga.ErrPending if it takes longer than callers wait.
func (o *orders) stop(ctx context.Context, order OrderView) (refused string, err error) {
	if !order.Status.Final() {
		_, err = o.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.tell(ctx, tx, StopParcel, Order{ID: order.ID, Customer: order.Customer})
		})
	}
	waiting, end := context.WithTimeout(ctx, maxWait)
	defer end()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for now := order; err == nil; now, err = o.view(ctx, order.ID) {
		switch {
		case now.Status.Final() && (order.Status.Final() || now.Status == Shipped):
			return "it is " + string(now.Status), nil
		case now.Status.Final():
			return "", nil
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return "", saga.ErrPending
		}
	}
	return "", err
}

func (o *orders) choreograph(commands, events *inbox.Consumer[*sql.Tx]) error {
	return errors.Join(
		inbox.Handle(events, CardCharged, o.confirm),
		inbox.Handle(events, OrderShipped, o.shipped),
		o.undoes(o.cancelCreated, commands, CancelOrder, events, StockReleased, StockUnavailable),
	)
}

// In inventory.

func (v inventory) choreograph(commands, events *inbox.Consumer[*sql.Tx]) error {
	return errors.Join(
		inbox.Handle(events, OrderCreated, func(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
			return v.participant.Do(ctx, tx, "reserve", func(ctx context.Context) (*postrider.Message, error) {
				r, err := v.take(ctx, tx, m.Data.ID, m.Data.Lines)
				if errors.Is(err, errOutOfStock) {
					return saga.RefuseWith(StockUnavailable.New(m.Data))
				}
				if err != nil {
					return nil, err
				}
				m.Data.Reservation, m.Data.Total = r.ID, r.Total
				return StockReserved.New(m.Data)
			})
		}),
		v.undoes(func(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
			return v.participant.Undo(ctx, tx, "reserve", func(ctx context.Context, did *postrider.Message) (*postrider.Message, error) {
				if did == nil { // nothing was reserved, and now nothing will be
					return StockReleased.New(idOf(m))
				}
				reserved, err := StockReserved.Decode(did)
				if err == nil {
					err = v.put(ctx, tx, reserved.Data.Lines, reserved.Data.Reservation)
				}
				if err != nil {
					return nil, err
				}
				return StockReleased.New(reserved.Data)
			})
		}, commands, ReleaseStock, events, CardRefunded, CardDeclined),
	)
}

// In payments.

func (p payments) choreograph(commands, events *inbox.Consumer[*sql.Tx]) error {
	return errors.Join(
		inbox.Handle(events, StockReserved, func(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
			return p.participant.Do(ctx, tx, "charge", func(ctx context.Context) (*postrider.Message, error) {
				payment, err := p.capture(ctx, tx, Charge{m.Data.ID, m.Data.Customer, m.Data.Total})
				if errors.Is(err, errDeclined) {
					return saga.RefuseWith(CardDeclined.New(m.Data))
				}
				if err != nil {
					return nil, err
				}
				m.Data.Payment = payment
				return CardCharged.New(m.Data)
			})
		}),
		p.undoes(func(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
			return p.participant.Undo(ctx, tx, "charge", func(ctx context.Context, did *postrider.Message) (*postrider.Message, error) {
				if did == nil {
					return CardRefunded.New(idOf(m))
				}
				charged, err := CardCharged.Decode(did)
				if err == nil {
					err = p.giveBack(ctx, tx, charged.Data.Payment)
				}
				if err != nil {
					return nil, err
				}
				return CardRefunded.New(charged.Data)
			})
		}, commands, RefundCard, events, ParcelStopped),
	)
}

// In shipping.

// shipConfirmed ships an order that is confirmed, unless it is held, or released.
func (h shipping) shipConfirmed(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
	if m.Data.Hold {
		return nil
	}
	return h.participant.Do(ctx, tx, "ship", func(ctx context.Context) (*postrider.Message, error) {
		parcel, err := h.send(ctx, tx, m.Data.ID)
		if err != nil {
			return nil, err
		}
		m.Data.Parcel = parcel.Number
		return OrderShipped.New(m.Data)
	})
}

// stop makes sure that the parcel of an order does not leave, unless it has.
func (h shipping) stop(ctx context.Context, tx *sql.Tx, m postrider.Typed[Order]) error {
	return h.participant.Undo(ctx, tx, "ship", func(_ context.Context, did *postrider.Message) (*postrider.Message, error) {
		if did != nil {
			return nil, saga.ErrCannotUndo // the parcel has left
		}
		return ParcelStopped.New(idOf(m))
	})
}

func (h shipping) choreograph(commands, events *inbox.Consumer[*sql.Tx]) error {
	return errors.Join(
		inbox.Handle(events, OrderConfirmed, h.shipConfirmed),
		inbox.Handle(events, OrderReleased, h.shipConfirmed),
		inbox.Handle(commands, StopParcel, h.stop),
		inbox.Handle(events, OrderTimedOut, func(ctx context.Context, tx *sql.Tx, m postrider.Typed[saga.Report]) error {
			return h.stop(ctx, tx, postrider.Typed[Order]{Message: m.Message})
		}),
	)
}
