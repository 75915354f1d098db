package relay_test

import (
	"context"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// A read model in the outbox's own database: the handler's changes in tx and the relay's progress commit together.
func ExampleHandleTx() {
	type placed struct{ OrderID string }
	orderPlaced := postrider.Define[placed]("order.placed").WithKey(func(d placed) string { return "order/" + d.OrderID })
	ctx := context.Background()
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		panic(err)
	}
	r, err := relay.New(store, relay.Config{Name: "order-view", Topics: []string{"order.*"}})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	err = relay.HandleTx(r, orderPlaced, func(ctx context.Context, tx *memory.Tx, m postrider.Typed[placed]) error {
		fmt.Println("order", m.Data.OrderID)
		defer close(done)
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "view.updated", Key: m.Key}) // commits with the progress
		return err
	})
	if err != nil {
		panic(err)
	}
	if _, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		m, err := orderPlaced.New(placed{OrderID: "42"})
		if err != nil {
			return err
		}
		_, err = box.Publish(ctx, tx, m)
		return err
	}); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(ctx)
	go func() { <-done; stop() }()
	if err := r.Run(ctx); err != nil {
		panic(err)
	}
	// Output: order 42
}
