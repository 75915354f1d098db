package held_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// A message of a key fails, and holds it; an operator skips the message.
func ExampleDecide() {
	ctx, stop := context.WithCancel(context.Background())
	s := memory.New(memory.Config{})
	r, err := relay.New(s, relay.Config{Name: "billing", BackoffBase: time.Hour, BackoffMax: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(r.HandleFunc("order.placed", func(context.Context, *postrider.Message) error { return errors.New("no such customer") }))
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{ID: "m-1", Type: "order.placed", Key: "order/42"})
		return err
	})
	check(err)
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	check(r.Drain(ctx))

	var blocked []store.HeldInfo
	for h, err := range held.New(s).ListHeld(ctx, "billing") {
		check(err)
		fmt.Println(h.Key, "is held:", h.Cause)
		blocked = append(blocked, h)
	}
	for _, h := range blocked {
		d, err := held.Decide(ctx, s, store.Decision{
			Relay: h.Relay, Key: h.Key, MessageID: h.MessageID, Verb: store.VerbSkip, By: "ann", Reason: "test order",
		})
		check(err)
		fmt.Println(d.Verb, d.MessageID, d.State)
	}
	stop()
	check(<-ended)
	// Output:
	// order/42 is held: no such customer
	// skip m-1 applied
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
