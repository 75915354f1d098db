package postrider_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

type OrderPlacedData struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

var OrderPlaced = postrider.Define[OrderPlacedData]("order.placed").
	WithTopic("orders").
	WithKey(func(d OrderPlacedData) string { return "order/" + d.OrderID })

// A definition creates messages from data and reads them back.
func ExampleDefine() {
	m, err := OrderPlaced.New(OrderPlacedData{OrderID: "42", Total: 1999})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Type, m.SchemaVersion, m.Topic, m.Key, string(m.Payload))

	typed, err := OrderPlaced.Decode(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(typed.Data.Total)
	// Output:
	// order.placed 1 orders order/42 {"order_id":"42","total":1999}
	// 1999
}

// A newer schema of the same message is a separate definition with the next schema version.
func ExampleDefinition_WithSchemaVersion() {
	type orderPlacedV2 struct {
		OrderID  string `json:"order_id"`
		Total    int    `json:"total"`
		Currency string `json:"currency"`
	}
	v2 := postrider.Define[orderPlacedV2]("order.placed").WithSchemaVersion(2)

	var catalog postrider.Catalog
	fmt.Println(catalog.Add(OrderPlaced, v2))
	fmt.Println(catalog.Add(v2))
	// Output:
	// <nil>
	// define message "order.placed" version 2: message type and schema version are already defined
}

// All problems of a message are reported at once.
func ExampleMessage_Validate() {
	m := &postrider.Message{Type: "order.placed", Key: strings.Repeat("x", 300), DeliverAfter: -time.Second}
	m.FillDefaults("orders", time.Now())

	err := m.Validate(postrider.Limits{})
	fmt.Println(err)
	if invalid, ok := errors.AsType[*postrider.ValidationError](err); ok {
		fmt.Println(invalid.Faults[0].Field, invalid.Faults[0].Limit)
	}
	// Output:
	// message: key is 300 bytes long, the limit is 256
	// message: deliver_after is -1s, it must be positive
	// key 256
}

// A handler's error decides the outcome of the message.
func ExampleDead() {
	handler := func(_ context.Context, m *postrider.Message) error {
		switch m.Key {
		case "order/1":
			return nil
		case "order/2":
			return postrider.Retry(time.Minute, errors.New("the warehouse is closed"))
		case "order/3":
			return postrider.Snooze(time.Hour)
		default:
			return postrider.Dead("no such order", nil)
		}
	}
	for _, key := range []string{"order/1", "order/2", "order/3", "order/4"} {
		err := handler(context.Background(), &postrider.Message{Key: key})
		fmt.Println(postrider.OutcomeOf(err).Kind == postrider.Delivered, err)
	}
	// Output:
	// true <nil>
	// false the warehouse is closed
	// false snoozed for 1h0m0s
	// false dead: no such order
}

var placed = &postrider.Message{
	ID: "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a", Type: "order.placed", Source: "orders", Topic: "orders", Key: "order/42",
	Time: time.Date(2026, 11, 20, 16, 0, 0, 0, time.UTC), ContentType: "application/json",
	Headers: map[string]string{"region": "eu"}, Payload: []byte(`{"order_id":"42"}`),
}

// In binary mode the attributes are headers of the protocol and the payload is unchanged.
func ExampleCloudEventsBinary() {
	mode := postrider.CloudEventsBinary{} // for Kafka: {Prefix: "ce_", UTF8: true}
	headers := maps.Collect(mode.Headers(placed))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Printf("%s: %s\n", name, headers[name])
	}

	m, err := mode.Decode(maps.All(headers), placed.Payload)
	fmt.Println(m.Key, m.Headers["region"], err)
	// Output:
	// ce-id: 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
	// ce-partitionkey: order/42
	// ce-region: eu
	// ce-source: orders
	// ce-specversion: 1.0
	// ce-time: 2026-11-20T16:00:00Z
	// ce-topic: orders
	// ce-type: order.placed
	// content-type: application/json
	// order/42 eu <nil>
}

// In structured mode the whole event is one JSON object, of content type application/cloudevents+json.
func ExampleEncodeCloudEvent() {
	event := postrider.EncodeCloudEvent(&postrider.Message{ID: "1", Type: "order.placed", Source: "orders", Topic: "orders",
		ContentType: "application/json", Payload: []byte(`{"order_id":"42"}`)})
	fmt.Println(string(event))

	m, err := postrider.DecodeCloudEvent(event)
	fmt.Println(m.Topic, string(m.Payload), err)
	// Output:
	// {"specversion":"1.0","id":"1","source":"orders","type":"order.placed","topic":"orders","datacontenttype":"application/json","data":{"order_id":"42"}}
	// orders {"order_id":"42"} <nil>
}
