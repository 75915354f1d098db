package inbox_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
}

var placed = postrider.Define[orderPlaced]("order.placed").
	WithTopic("orders").
	WithKey(func(d orderPlaced) string { return "order/" + d.OrderID })

// Consume messages from a broker, each exactly once, and publish in the same transaction.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	broker, err := memorybroker.New(memorybroker.Config{})
	check(err)
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "shipping", Topics: []string{"orders"}, Partitions: 4})
	check(err)
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shipping"})
	check(err)
	in, err := inbox.New(store)
	check(err)

	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: "shipping", Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	handled := make(chan string)
	err = inbox.Handle(c, placed, func(ctx context.Context, tx *memory.Tx, m postrider.Typed[orderPlaced]) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.shipped", Key: m.Key})
		handled <- m.Data.OrderID
		return err
	})
	check(err)
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	m, err := placed.New(orderPlaced{OrderID: "42"})
	check(err)
	m.ID = "m-1"
	for range 2 { // the second time it is a duplicate
		broker.Publish(ctx, []*postrider.Message{m})
	}
	fmt.Println("handled order", <-handled)
	stop()
	check(<-ended)
	// Output: handled order 42
}

// Check in your own transaction whether a message is new.
func ExampleInbox_Process() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	in, err := inbox.New(store)
	check(err)
	m := &postrider.Message{ID: "m-1", Type: "order.placed"}
	for range 2 {
		tx, err := store.Begin(ctx)
		check(err)
		fresh, err := in.Process(ctx, tx, "order-view", m)
		check(err)
		fmt.Println("fresh:", fresh)
		check(store.Commit(ctx, tx)) // with the changes, if it is fresh; then acknowledge
	}
	// Output:
	// fresh: true
	// fresh: false
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
