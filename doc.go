// Package postrider holds the words that all of Postrider shares: the message, its definition, the outcome of handling
// it, and the publisher that hands it to a broker.
//
// Postrider carries messages from one service to others, reliably. A service publishes a message in the same database
// transaction as its business change (package outbox); a relay (package relay) delivers it to a broker or to handlers, in
// order per key, at least once; what cannot be delivered stands in the dead letters (package deadletter) with its cause.
// This package needs only the standard library.
//
// # Say what a message is
//
// A [Definition] binds a Go type to a message type and a schema version, in one place for those who publish and those who
// handle:
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
// The key is the unit of order: messages with the same key are delivered in the order in which they were published,
// messages with different keys never wait for each other.
//
// # Publish it
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
// See package outbox for transactions of your own. A message without a definition is a [Message] with at least a Type.
// The rules for its fields stand at the fields; a message that breaks some of them is refused with a [ValidationError]
// that names them all.
//
// # Handle it
//
//	err := relay.Handle(r, OrderPlaced, func(ctx context.Context, m postrider.Typed[OrderPlacedData]) error {
//		return ship(ctx, m.Data.OrderID)
//	})
//
// The error that a handler returns is its verdict. Nil: delivered. [Retry], [Snooze], [Dead] and [Unavailable] say what
// they mean, also when they are wrapped; any other error is retried with backoff until the attempts are used up. What a
// handler publishes names by itself what caused it (see [ContextWithMessage]).
//
// # Read it elsewhere
//
// Messages travel as CloudEvents 1.0: [CloudEventsBinary] lists the attributes and maps them to the headers of a protocol, [EncodeCloudEvent] to
// one JSON object. For people, a message has a JSON form of its own ([Message.MarshalJSON]).
package postrider
