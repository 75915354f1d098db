// Package outbox publishes messages inside the caller's database transaction: a message exists if and only if the
// transaction that published it committed.
//
//	box, err := outbox.New(store, outbox.Config{Source: "orders"})
//
// The store (packages store/postgres, store/mysql, store/sqlite, store/memory) determines the transaction type: with
// pgx.Tx the outbox is an Outbox[pgx.Tx], and Publish takes nothing else.
//
// # Transactions managed by the outbox
//
// [Outbox.InTx] begins a transaction, runs your function in it, commits, and wakes relays in this process, so that
// delivery starts at once. It returns the IDs of the published messages.
//
//	ids, err := box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "UPDATE orders SET …"); err != nil {
//			return err
//		}
//		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.paid", Key: "order/42", Payload: payload})
//		return err
//	})
//
// Use the context that the function is given: it tells the outbox which messages belong to the transaction.
//
// # Your own transactions
//
// [Outbox.Publish] takes any open transaction of the store's type. The outbox does not see its commit: call [Outbox.Wake]
// after it, or leave it to the relays, which poll the outbox.
//
//	_, err := box.Publish(ctx, tx, m)
//	...
//	err = tx.Commit(ctx)
//	box.Wake()
//
// # Order
//
// Messages with the same key are delivered in the order in which they were written to the outbox. Two concurrent
// transactions that write messages with the same key have no order unless one waits for the other: before publishing,
// lock the row that the key refers to (or check its version), as the business change does anyway.
//
// # Large batches
//
// [Outbox.Publish] writes a batch in one round trip, all or nothing. [Outbox.PublishSeq] takes a stream of any length. In
// a transaction of your own it needs bounded memory; in InTx and with Track it keeps an ID per message and, with After hooks, the
// message without its payload.
//
// # Hooks
//
// [Hooks] change, complete or suppress messages before they are published, and are notified of commits and rollbacks of
// transactions that InTx began. For a transaction of your own, [Outbox.Track] returns a function to call after its end;
// without it, only BeforePublish is called.
//
// Inside a handler, Publish fills CorrelationID, CausationID, Tenant and the property [postrider.Actor] from the message being
// handled, and the Config's Propagator writes the trace into the headers.
package outbox
