package inspect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// A relay has registered, but no process of it works on the partition of the message.
func ExampleMessage() {
	ctx := context.Background()
	s := memory.New(memory.Config{Partitions: 1})
	owner := store.Owner{ID: "host-1", Topics: []string{"*"}}
	claim := store.LeaseClaim{Token: store.NewToken()}
	if _, err := s.Acquire(ctx, "to-nats", owner, store.AcquireRequest{Claims: []store.LeaseClaim{claim}, TTL: time.Minute}); err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Leave(ctx, "to-nats", owner); err != nil {
		fmt.Println(err)
		return
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Payload: []byte("{}")}
	m.FillDefaults("shop", time.Now())
	if err := s.Insert(ctx, tx, []*postrider.Message{m}); err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Commit(ctx, tx); err != nil {
		fmt.Println(err)
		return
	}

	e, err := inspect.Message(ctx, s, "m-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range e.Places {
		fmt.Println(p.Kind, p.Name, p.State)
		fmt.Println("next:", p.Next.Code, "-", p.Next.Text)
		for _, a := range p.Actions {
			fmt.Println("action:", a.Kind, a.Relay)
		}
	}
	// Output:
	// relay to-nats waiting
	// next: process - nobody works on this partition
	// action: start to-nats
}
