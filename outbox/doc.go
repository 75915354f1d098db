// Package outbox publishes messages inside the caller's database transaction: a message exists if and only if the
// transaction that published it committed.
//
//	box, err := outbox.New(store, outbox.Config{Source: "orders"})
//
// The store (packages store/postgres, store/sqlite, store/memory) decides the type of the transactions: with pgx.Tx the
// outbox is an Outbox[pgx.Tx], and Publish takes nothing else.
//
// # Let the outbox begin and commit
//
// [Outbox.InTx] begins a transaction, runs your function in it, commits, and tells relays in this process, so that
// delivery starts at once. It returns the IDs of what was published.
//
//	ids, err := box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "UPDATE orders SET …"); err != nil {
//			return err
//		}
//		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.paid", Key: "order/42", Payload: payload})
//		return err
//	})
//
// Use the context that the function is given: through it the outbox knows which messages belong to the transaction.
//
// # Use a transaction of your own
//
// [Outbox.Publish] takes any open transaction of the store's type. The outbox does not see its commit: call [Outbox.Wake]
// after it, or leave it to the relays, which look at the outbox by themselves.
//
//	_, err := box.Publish(ctx, tx, m)
//	...
//	err = tx.Commit(ctx)
//	box.Wake()
//
// # Keep order
//
// Messages with the same key are delivered in the order in which they were written to the outbox. Two transactions that
// write messages of the same key at the same time have no order until one of them waits for the other: take the lock of
// the row that the key stands for (or check its version) before publishing, as the business change does anyway.
//
// # Publish very many
//
// [Outbox.Publish] takes a batch in one round trip and all or nothing. [Outbox.PublishSeq] takes a stream of any length in
// bounded memory; in InTx, an ID and, with After hooks, the message without its payload are kept for each.
//
// # Take part in it
//
// [Hooks] change, complete or suppress messages before they are published, and hear what was committed or rolled back.
// They hear of transactions that InTx began; of your own, only BeforePublish is called.
//
// Inside a handler, Publish fills CorrelationID, CausationID and Tenant from the message being handled, and the
// Config's Propagator writes the trace into the headers.
package outbox
