package relay_test

import (
	"context"
	"fmt"
	"log"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// A relay passes the messages of an outbox to handlers in this process.
func ExampleHandle() {
	type placed struct{ OrderID string }
	orderPlaced := postrider.Define[placed]("order.placed").WithKey(func(d placed) string { return "order/" + d.OrderID })
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	r, err := relay.New(store, relay.Config{Name: "shipping"})
	check(err)
	err = relay.Handle(r, orderPlaced, func(_ context.Context, m postrider.Typed[placed]) error {
		fmt.Println("ship order", m.Data.OrderID)
		stop() // a program stops when it is told to, not after the first message
		return nil
	})
	check(err)

	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		m, err := orderPlaced.New(placed{OrderID: "42"})
		if err != nil {
			return err
		}
		_, err = box.Publish(ctx, tx, m)
		return err
	})
	check(err)
	check(r.Run(ctx))
	// Output: ship order 42
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
