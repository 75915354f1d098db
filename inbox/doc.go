// Package inbox consumes messages so that the effect of each happens exactly once, whatever the broker, the database or a
// crash does.
//
//	in, err := inbox.New(store, inbox.Config{})
//	...
//	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "order-view"})
//	...
//	err = inbox.Handle(c, OrderPlaced, func(ctx context.Context, tx pgx.Tx, m postrider.Typed[OrderPlacedData]) error {
//		_, err := tx.Exec(ctx, "INSERT INTO order_view …", m.Data.OrderID)
//		return err
//	})
//	...
//	err = c.Run(ctx) // until ctx ends
//
// A handler works in a transaction. That it took the message, and what it did, commit together or not at all; then the
// broker is told. What the handler publishes through an outbox in the same transaction is part of it, and names the
// message as its cause. Its error is its verdict, as in a relay.
//
// In a transaction of your own, [Inbox.Process] says whether a message is new. For effects outside the database there is
// [Guard].
//
// # A message's way
//
//	Receive → lane of its key → transaction { claim it; effect } → Ack
//	                                │ failed, or its key is held
//	                                ▼
//	                transaction { claim it; put it aside } → Ack
//	                                │
//	                                ▼
//	          parked ──(its time has come)──► transaction { take it; effect }
//	            │  ▲
//	            ▼  │ redrive
//	           dead
//
// The messages of a key run one after another, keys in parallel. A message that fails is tried again here, for a short
// while; then it is put aside: parked, with its key held and its followers behind it, or dead. To note that a message was
// taken and to put it aside is one transaction, so that a claim never stands for work that was not done, and the broker's
// further deliveries of a message that is aside are duplicates. If that transaction fails, nothing is acknowledged.
//
// What is aside stands in the tables of the relays, under the consumer's name. A relay inside the consumer, which reads no
// log, brings it back: leases, backoff, held keys, followers in order, dead letters and operators' commands are the
// relay's. A message that comes back is not looked up among the claims; taking it out is part of the transaction of its
// effect. So a redrive is never swallowed, and runs this consumer only.
//
// # What is remembered
//
// By ID, a row per message and consumer, for as long as the source can bring it again. By watermark, one row per partition
// of an ordered source: everything up to here is done. docs/inbox.md says which one when.
//
// # What fails, and what then
//
//   - The process dies before the commit: nothing has happened, the broker delivers again. After the commit and before the
//     acknowledgement: the broker delivers again, and finds a duplicate.
//   - The answer to a commit is lost: the next attempt finds the message claimed if it took effect, and free if not.
//   - The database is away: nothing is acknowledged, the broker is asked for more time, no attempt is counted.
//   - The broker is away: what was received is finished; what it did not hear of comes again and is a duplicate.
//   - The right to a message is lost, since its partition went to another process or the connection broke: its handler's
//     context ends, and nothing of it is committed or settled.
//   - Two processes have the same message: one waits for the other's transaction, and finds a duplicate or a free message.
//   - A handler panics, or ends its goroutine: that is a failed attempt.
//   - One message of a batch fails: the transaction is undone and run again, now with a savepoint for each message, so that
//     the one that fails is undone alone, and put aside. Only this second failure counts as an attempt. The batches that
//     follow have savepoints from the beginning, for a while.
package inbox
