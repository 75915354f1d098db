package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// The bank answers later, with a call. Until then, the message is parked, and the messages after it in its key wait. Everything that
// must survive a crash is in the database: the parked message, and the answer in a table of the service.
func Example_outcomeLater() {
	ctx := context.Background()
	running, stop := context.WithCancel(ctx)
	db := memory.New(memory.Config{})
	r, err := relay.New(db, relay.Config{Name: "payments", Logger: slog.New(slog.DiscardHandler)})
	check(err)
	var answers sync.Map // a table of the service: the answers by message ID
	check(r.HandleFunc("payment.ordered", func(_ context.Context, m *postrider.Message) error {
		switch answer, answered := answers.Load(m.ID); {
		case !answered:
			fmt.Println("ask the bank about", m.ID) // the ID is the idempotency key: the handler asks again after a minute
			return postrider.Snooze(time.Minute)
		case answer == "refused":
			return postrider.Dead("refused by the bank", nil)
		default:
			fmt.Println(m.ID, "is", answer)
			return nil
		}
	}))
	check(r.HandleFunc("statement.requested", func(_ context.Context, m *postrider.Message) error {
		fmt.Println("print", m.ID)
		stop()
		return nil
	}))
	// callback is called by the bank. The answer counts once it is stored. The decision only saves the rest of the minute, so an error
	// that says that the message is not parked, e.g. because the bank was faster, does not matter.
	callback := func(id, key, answer string) error {
		answers.Store(id, answer)
		_, err := held.Decide(ctx, db, store.Decision{Relay: "payments", Key: key, MessageID: id, Verb: store.VerbRetry, By: "bank"})
		if errors.Is(err, store.ErrNotHeld) || errors.Is(err, held.ErrRefused) {
			return nil
		}
		return err
	}

	box, err := outbox.New(db, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		_, err := box.Publish(ctx, tx,
			&postrider.Message{ID: "payment-1", Type: "payment.ordered", Key: "account/7"},
			&postrider.Message{ID: "statement-1", Type: "statement.requested", Key: "account/7"})
		return err
	})
	check(err)
	ended := make(chan error)
	go func() { ended <- r.Run(running) }()
	check(r.Drain(ctx)) // both are parked now
	check(callback("payment-1", "account/7", "booked"))
	check(<-ended)
	// Output:
	// ask the bank about payment-1
	// payment-1 is booked
	// print statement-1
}
