package postrider_test

import (
	"fmt"

	"github.com/postrider/postrider"
)

type orderCancelled struct {
	OrderID string `json:"order_id"`
}

var cancelled = postrider.Define[orderCancelled]("order.cancelled").
	WithKey(func(d orderCancelled) string { return "order/" + d.OrderID })

// order is an entity that records what happens to it.
type order struct {
	id     string
	status string
	events postrider.Recorder
}

func (o *order) cancel() {
	o.status = "cancelled"
	postrider.Record(&o.events, cancelled, orderCancelled{OrderID: o.id})
}

// An entity records messages while it changes; what saves it takes and publishes them in the same transaction.
func ExampleRecorder() {
	o := &order{id: "42"}
	o.cancel()

	msgs, err := o.events.Take()
	for _, m := range msgs {
		fmt.Println(m.Type, m.Key, string(m.Payload)) // box.Publish(ctx, tx, msgs...)
	}
	again, _ := o.events.Take()
	fmt.Println(len(again), err)
	// Output:
	// order.cancelled order/42 {"order_id":"42"}
	// 0 <nil>
}

// A property is a header with a type.
func ExampleProperty() {
	region := postrider.DefineProperty[string]("region")
	priority := postrider.DefineProperty[int]("priority")

	m := &postrider.Message{Type: "order.placed"}
	fmt.Println(region.Set(m, "eu"), priority.Set(m, 3), postrider.Actor.Set(m, "user/7"))

	n, found, err := priority.Get(m)
	fmt.Println(n, found, err)
	fmt.Println(m.Headers["actor"])
	// Output:
	// <nil> <nil> <nil>
	// 3 true <nil>
	// user/7
}
