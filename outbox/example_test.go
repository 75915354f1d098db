package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// InTx commits the business change and the message together.
func ExampleOutbox_InTx() {
	ctx := context.Background()
	box, err := outbox.New(memory.New(memory.Config{}), outbox.Config{Source: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	placeOrder := func(id string, total int) ([]string, error) {
		return box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{ID: "placed-" + id, Type: "order.placed", Key: "order/" + id})
			if err != nil {
				return err
			}
			if total <= 0 { // the business change failed: nothing is published
				return errors.New("total must be positive")
			}
			return nil
		})
	}
	fmt.Println(placeOrder("41", 0))
	fmt.Println(placeOrder("42", 1999))
	// Output:
	// [] total must be positive
	// [placed-42] <nil>
}

// In your own transaction, wake the relay after the commit.
func ExampleOutbox_Publish() {
	ctx := context.Background()
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := box.Publish(ctx, tx,
		&postrider.Message{ID: "1", Type: "order.placed", Key: "order/42", Payload: []byte(`{"total":1999}`)},
		&postrider.Message{ID: "2", Type: "stock.reserved", Key: "stock/7"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Commit(ctx, tx); err != nil {
		fmt.Println(err)
		return
	}
	box.Wake()
	fmt.Println(ids)

	_, err = box.Publish(ctx, tx, &postrider.Message{Type: "order.placed"})
	fmt.Println(errors.Is(err, store.ErrNoTransaction))
	// Output:
	// [1 2]
	// true
}

// PublishSeq takes any number of messages in little memory.
func ExampleOutbox_PublishSeq() {
	ctx := context.Background()
	box, err := outbox.New(memory.New(memory.Config{}), outbox.Config{Source: "prices"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		n, err := box.PublishSeq(ctx, tx, func(yield func(*postrider.Message, error) bool) {
			for i := range 10_000 {
				m := &postrider.Message{Type: "price.changed", Key: fmt.Sprintf("article/%d", i)}
				if !yield(m, nil) {
					return
				}
			}
		})
		fmt.Println(n, "published")
		return err
	})
	fmt.Println(len(ids), "committed", err)
	// Output:
	// 10000 published
	// 10000 committed <nil>
}

// Hooks complete and suppress messages, and are notified of commits.
func ExampleHooks() {
	ctx := context.Background()
	hooks := outbox.Hooks{
		BeforePublish: func(_ context.Context, m *postrider.Message) error {
			if m.Tenant == "test" {
				return outbox.ErrSuppress
			}
			m.Headers["region"] = "eu"
			return nil
		},
		AfterCommit: func(_ context.Context, msgs []*postrider.Message) error {
			for _, m := range msgs {
				fmt.Println("committed:", m.ID, m.Headers["region"])
			}
			return nil
		},
	}
	box, err := outbox.New(memory.New(memory.Config{}), outbox.Config{Source: "orders", Hooks: []outbox.Hooks{hooks}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		ids, err := box.Publish(ctx, tx,
			&postrider.Message{ID: "1", Type: "order.placed"},
			&postrider.Message{ID: "2", Type: "order.placed", Tenant: "test"})
		fmt.Printf("%q\n", ids)
		return err
	})
	fmt.Println(err)
	// Output:
	// ["1" ""]
	// committed: 1 eu
	// <nil>
}
