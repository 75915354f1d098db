package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

// Order is what the saga knows. Its steps read it and write into it.
type Order struct {
	ID          string `json:"id"`
	SKU         string `json:"sku"`
	Quantity    int    `json:"quantity"`
	Total       int    `json:"total"`
	Reservation string `json:"reservation,omitzero"`
	Payment     string `json:"payment,omitzero"`
}

type StockOrder struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

type Reservation struct {
	ID string `json:"id"`
}

type Charge struct {
	Order string `json:"order"`
	Total int    `json:"total"`
}

type Receipt struct {
	Payment string `json:"payment"`
}

// Steps that participants offer.
var (
	ReserveStock = saga.DefineStep[StockOrder, Reservation]("stock.reserve").WithTopic("inventory")
	ChargeCard   = saga.DefineStep[Charge, Receipt]("card.charge").WithTopic("payments")
)

// Fulfilment reserves the stock of an order and charges the card.
var Fulfilment = saga.Definition[Order]{
	Name: "order-fulfilment", Version: 1,
	Key: func(o Order) string { return "order/" + o.ID }, // at most one running instance for an order
	Steps: []saga.Step[Order]{
		saga.Request[Order, StockOrder, Reservation]{
			Name: "reserve", Step: ReserveStock,
			Command: func(o Order) StockOrder { return StockOrder{o.SKU, o.Quantity} },
			Done:    func(o *Order, r Reservation) { o.Reservation = r.ID },
		},
		saga.Request[Order, Charge, Receipt]{
			Name: "charge", Step: ChargeCard,
			Command: func(o Order) Charge { return Charge{o.ID, o.Total} },
			Done:    func(o *Order, r Receipt) { o.Payment = r.Payment },
		},
	},
}

// A saga of two steps, and its participants, on one database.
//
// size: the whole program, since it is the tutorial's.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)

	// The participants.
	shop, err := saga.NewParticipant(store, box, saga.ParticipantConfig{Name: "shop"})
	check(err)
	check(saga.Handle(shop, ReserveStock,
		func(_ context.Context, _ *memory.Tx, m postrider.Typed[StockOrder]) (Reservation, error) {
			fmt.Println("reserve", m.Data.Quantity, m.Data.SKU)
			return Reservation{ID: "r-1"}, nil
		},
		func(_ context.Context, _ *memory.Tx, _ StockOrder, did Reservation) error {
			fmt.Println("release", did.ID)
			return nil
		}))
	check(saga.Handle(shop, ChargeCard,
		func(_ context.Context, _ *memory.Tx, m postrider.Typed[Charge]) (Receipt, error) {
			if m.Data.Total > 10_000 {
				return Receipt{}, saga.Refuse("limit", errors.New("the card's limit is 10,000"))
			}
			fmt.Println("charge", m.Data.Total)
			return Receipt{Payment: "p-1"}, nil
		},
		func(_ context.Context, _ *memory.Tx, _ Charge, did Receipt) error {
			fmt.Println("refund", did.Payment)
			return nil
		}))

	// The engine.
	engine, err := saga.New(store, box, saga.Config{Name: "shop"})
	check(err)
	orders, err := saga.Register(engine, Fulfilment)
	check(err)

	// One relay for both, since they share a database.
	r, err := relay.New(store, relay.Config{
		Name: "sagas", Topics: []string{engine.Topic(), ReserveStock.Topic(), ChargeCard.Topic()}, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	check(engine.Relay(r))
	check(shop.Relay(r))
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	for _, o := range []Order{
		{ID: "1", SKU: "chair", Quantity: 4, Total: 400},
		{ID: "2", SKU: "workstation", Quantity: 2, Total: 11_999},
	} {
		_, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error { // insert the order here too
			_, err := orders.Start(ctx, tx, o, saga.ID(o.ID))
			return err
		})
		check(err)
		result, err := orders.Wait(ctx, o.ID)
		check(err)
		fmt.Println("order", o.ID, "is", result.Status)
		if result.Cause != nil {
			fmt.Println("because", result.Cause.Step, "was", result.Cause.Kind, "with", result.Cause.Reason)
		}
	}
	stop()
	check(<-ended)
	// Output:
	// reserve 4 chair
	// charge 400
	// order 1 is completed
	// reserve 2 workstation
	// release r-1
	// order 2 is compensated
	// because charge was refused with limit
}

// The picture of a definition, for documentation.
func ExampleDefinition_Mermaid() {
	picture, err := Fulfilment.Mermaid()
	check(err)
	fmt.Print(picture)
	// Output:
	// flowchart TD
	//   start((start))
	//   s1["reserve"]
	//   start --> s1
	//   s2["charge"]
	//   s1 --> s2
	//   done((end))
	//   s2 --> done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
