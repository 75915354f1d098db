package memory_test

import (
	"context"
	"fmt"
	"log"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

// An outbox without a database, for tests.
func ExampleNew() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	tx, err := store.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "order/42"}); err != nil {
		log.Fatal(err)
	}
	published, err := box.Published(ctx, tx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range published {
		fmt.Println(m.Type, m.Key)
	}
	if err := store.Commit(ctx, tx); err != nil {
		log.Fatal(err)
	}
	// Output: order.placed order/42
}
