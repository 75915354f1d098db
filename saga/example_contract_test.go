package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

// Events that the services publish, and requests to undo them. The topic of each is its type.
var (
	OrderCreated   = postrider.Define[Order]("order.created")
	OrderConfirmed = postrider.Define[Order]("order.confirmed")
	OrderCancelled = postrider.Define[Order]("order.cancelled")
	StockReserved  = postrider.Define[Order]("stock.reserved")
	OutOfStock     = postrider.Define[Order]("stock.unavailable")
	StockReleased  = postrider.Define[Order]("stock.released")
	CardCharged    = postrider.Define[Order]("card.charged")
	CardDeclined   = postrider.Define[Order]("card.declined")
	CardRefunded   = postrider.Define[Order]("card.refunded")

	CancelOrder  = postrider.Define[Order]("order.cancel")
	ReleaseStock = postrider.Define[Order]("stock.release")
	RefundCard   = postrider.Define[Order]("card.refund")
)

// FulfilmentByEvents is the one place that has the whole.
var FulfilmentByEvents = saga.Contract{
	Name: "order-fulfilment-by-events", Version: 1,
	Events: []saga.Event{
		{On: OrderCreated, Service: "orders", Start: true, Undo: CancelOrder, Undone: OrderCancelled},
		{
			On: StockReserved, Service: "inventory", After: saga.Defs{OrderCreated}, Fails: saga.Defs{OutOfStock},
			Undo: ReleaseStock, Undone: StockReleased,
		},
		{
			On: CardCharged, Service: "payments", After: saga.Defs{StockReserved}, Fails: saga.Defs{CardDeclined},
			Undo: RefundCard, Undone: CardRefunded,
		},
		{On: OrderConfirmed, Service: "orders", After: saga.Defs{CardCharged}, End: true},
	},
}

// Services that react to each other's events, and a tracker that watches them. Here all share a database; each has a relay of its own.
//
// size: the whole program, since it is the tutorial's.
func ExampleTrack() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	p, err := saga.NewParticipant(store, box, saga.ParticipantConfig{Name: "shop"})
	check(err)
	engine, err := saga.New(store, box, saga.Config{Name: "shop"})
	check(err)
	check(saga.Track(engine, FulfilmentByEvents))

	ended := make(chan error)
	run := func(name string, register func(r *relay.Relay) error, topics ...string) {
		r, err := relay.New(store, relay.Config{Name: name, Topics: topics, Logger: slog.New(slog.DiscardHandler)})
		check(err)
		check(register(r))
		go func() { ended <- r.Run(ctx) }()
	}
	run("tracker", engine.Relay, append(engine.Topics(), engine.Topic())...)

	// The services.
	type event = postrider.Typed[Order]
	run("orders", func(r *relay.Relay) error {
		return errors.Join(
			relay.HandleTx(r, CardCharged, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Do(ctx, tx, "confirm", func(context.Context) (*postrider.Message, error) { return OrderConfirmed.New(m.Data) })
			}),
			relay.HandleTx(r, CancelOrder, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Undo(ctx, tx, "confirm", func(context.Context, *postrider.Message) (*postrider.Message, error) {
					fmt.Println("orders: cancel")
					return OrderCancelled.New(m.Data)
				})
			}))
	}, CardCharged.Topic(), CancelOrder.Topic())
	run("inventory", func(r *relay.Relay) error {
		return errors.Join(
			relay.HandleTx(r, OrderCreated, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Do(ctx, tx, "reserve", func(context.Context) (*postrider.Message, error) {
					fmt.Println("inventory: reserve", m.Data.Quantity, m.Data.SKU)
					return StockReserved.New(m.Data)
				})
			}),
			relay.HandleTx(r, ReleaseStock, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Undo(ctx, tx, "reserve", func(_ context.Context, did *postrider.Message) (*postrider.Message, error) {
					if did == nil { // nothing was reserved, and now nothing will be
						return StockReleased.New(m.Data)
					}
					reserved, err := StockReserved.Decode(did)
					if err == nil {
						fmt.Println("inventory: release", reserved.Data.Quantity, reserved.Data.SKU)
					}
					return StockReleased.New(reserved.Data)
				})
			}))
	}, OrderCreated.Topic(), ReleaseStock.Topic())
	run("payments", func(r *relay.Relay) error {
		return errors.Join(
			relay.HandleTx(r, StockReserved, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Do(ctx, tx, "charge", func(context.Context) (*postrider.Message, error) {
					if m.Data.Total > 10_000 {
						return saga.RefuseWith(CardDeclined.New(m.Data))
					}
					fmt.Println("payments: charge", m.Data.Total)
					return CardCharged.New(m.Data)
				})
			}),
			relay.HandleTx(r, RefundCard, func(ctx context.Context, tx *memory.Tx, m event) error {
				return p.Undo(ctx, tx, "charge", func(_ context.Context, did *postrider.Message) (*postrider.Message, error) {
					if did == nil {
						return CardRefunded.New(m.Data)
					}
					charged, err := CardCharged.Decode(did)
					if err == nil {
						fmt.Println("payments: refund", charged.Data.Total)
					}
					return CardRefunded.New(charged.Data)
				})
			}))
	}, StockReserved.Topic(), RefundCard.Topic())

	for _, o := range []Order{
		{ID: "1", SKU: "chair", Quantity: 4, Total: 400},
		{ID: "2", SKU: "workstation", Quantity: 2, Total: 11_999},
	} {
		created, err := OrderCreated.New(o)
		check(err)
		created.ID = "order-" + o.ID                                            // also the ID of the instance, since the event has no correlation ID
		_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error { // insert the order here too
			_, err := box.Publish(ctx, tx, created)
			return err
		})
		check(err)
		for {
			result, err := engine.Wait(ctx, created.ID)
			if errors.Is(err, saga.ErrNotFound) { // the tracker has not seen it yet
				continue
			}
			check(err)
			fmt.Println("order", o.ID, "is", result.Status)
			break
		}
	}
	stop()
	for range 4 {
		check(<-ended)
	}
	// Output:
	// inventory: reserve 4 chair
	// payments: charge 400
	// order 1 is completed
	// inventory: reserve 2 workstation
	// inventory: release 2 workstation
	// orders: cancel
	// order 2 is compensated
}
