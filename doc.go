// Package postrider defines the types shared by all of Postrider: the message, its definition, the outcome of handling
// it, and the publisher that sends it to a broker.
//
// Postrider carries messages from one service to others, reliably. A service publishes a message in the same database
// transaction as its business change (package outbox). A relay (package relay) delivers it to a broker or to handlers, in
// order per key, at least once. Messages that cannot be delivered become dead letters, stored with their cause (package
// deadletter). This package needs only the standard library.
//
// # Defining messages
//
// A [Definition] binds a Go type to a message type and a schema version, in one place for publishers and handlers:
//
//	type OrderPlacedData struct {
//		OrderID string `json:"order_id"`
//		Total   int    `json:"total"`
//	}
//
//	var OrderPlaced = postrider.Define[OrderPlacedData]("order.placed").
//		WithTopic("orders").
//		WithKey(func(d OrderPlacedData) string { return "order/" + d.OrderID })
//
// The key is the unit of order: messages with the same key are delivered in the order in which they were published;
// messages with different keys never wait for each other.
//
// # Publishing
//
//	ids, err := box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		m, err := OrderPlaced.New(OrderPlacedData{OrderID: "42", Total: 1999})
//		if err != nil {
//			return err
//		}
//		_, err = box.Publish(ctx, tx, m)
//		return err
//	})
//
// See package outbox for managing transactions yourself. A message without a definition is a [Message] with at least a
// Type. The fields of Message document their rules; an invalid message is refused with a [ValidationError] that lists
// every problem.
//
// # Handling
//
//	err := relay.Handle(r, OrderPlaced, func(ctx context.Context, m postrider.Typed[OrderPlacedData]) error {
//		return ship(ctx, m.Data.OrderID)
//	})
//
// The error that a handler returns decides the outcome. Nil means delivered. [Retry], [Snooze], [Dead], [Discard] and [Unavailable]
// select another outcome, also when wrapped. Any other error is retried with backoff until the attempts are used up.
// Messages that a handler publishes record what caused them (see [ContextWithMessage]).
//
// # Wire format
//
// Messages travel as CloudEvents 1.0: [CloudEventsBinary] lists the attributes and maps them to the headers of a
// protocol; [EncodeCloudEvent] encodes a message as one JSON object. [Message.MarshalJSON] is a separate JSON form for
// people.
package postrider
