package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// A relay publishes the messages of an outbox to a broker.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	broker, err := memorybroker.New(memorybroker.Config{}) // a program opens broker/nats, broker/kafka, broker/rabbitmq or broker/redis
	check(err)
	r, err := relay.New(store, relay.Config{Name: "to-broker", Publisher: broker, Topics: []string{"order.*"}})
	check(err)
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "order/42"})
		return err
	})
	check(err)
	check(r.Drain(ctx)) // a program rather runs until it is told to stop
	for _, m := range broker.Messages("order.placed") {
		fmt.Println(m.Type, m.Key)
	}
	stop()
	check(<-ended)
	// Output: order.placed order/42
}

// Messages of an older schema version are handled as those of the present one.
func ExampleUpcast() {
	type placedV1 struct{ Order string }
	type placed struct{ OrderID, Channel string }
	v1 := postrider.Define[placedV1]("order.placed")
	v2 := postrider.Define[placed]("order.placed").WithSchemaVersion(2)
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	r, err := relay.New(store, relay.Config{Name: "shipping"})
	check(err)
	err = relay.Handle(r, v2, func(_ context.Context, m postrider.Typed[placed]) error {
		fmt.Println("ship order", m.Data.OrderID, "from", m.Data.Channel)
		stop()
		return nil
	})
	check(err)
	check(relay.Upcast(r, v1, v2, func(old placedV1) (placed, error) {
		return placed{OrderID: old.Order, Channel: "web"}, nil
	}))

	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		m, err := v1.New(placedV1{Order: "42"})
		if err != nil {
			return err
		}
		_, err = box.Publish(ctx, tx, m)
		return err
	})
	check(err)
	check(r.Run(ctx))
	// Output: ship order 42 from web
}

// Some message types are retried differently, and some errors are of no interest.
func ExamplePolicy() {
	errGone := errors.New("the customer is gone")
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	r, err := relay.New(store, relay.Config{
		Name: "mails", Logger: slog.New(slog.DiscardHandler), Policies: []relay.Policy{{
			Types:       []string{"mail.*"},
			MaxAttempts: 3,
			Wait:        relay.Exponential(time.Millisecond, 10*time.Millisecond),
			Discard:     func(err error) bool { return errors.Is(err, errGone) },
		}},
	})
	check(err)
	var calls atomic.Int32
	err = r.HandleFunc("mail.requested", func(_ context.Context, m *postrider.Message) error {
		fmt.Println(m.Key, "attempt", m.Attempt)
		if calls.Add(1) == 3 {
			stop()
		}
		switch {
		case m.Key == "customer/1":
			return errGone // no second attempt
		case m.Attempt < 2:
			return errors.New("the mail server is slow")
		}
		return nil
	})
	check(err)
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	for _, key := range []string{"customer/1", "customer/2"} {
		_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: "mail.requested", Key: key})
			return err
		})
		check(err)
	}
	check(r.Run(ctx))
	// Unordered output:
	// customer/1 attempt 1
	// customer/2 attempt 1
	// customer/2 attempt 2
}
