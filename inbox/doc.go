// Package inbox consumes messages so that each is processed exactly once, whatever fails: broker, database or process.
//
//	in, err := inbox.New(store)
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
// A handler runs in a transaction. The claim of the message and the handler's changes commit together or not at all; then
// the message is acknowledged. Messages that the handler publishes through an outbox in the same transaction are part of
// it, and record the handled message as their cause. Their commit wakes the relays of this process; messages that the handler
// writes with SQL are found by the next poll, as those of other processes. The error that a handler returns decides the outcome,
// as in a relay.
//
// In your own transaction, [Inbox.Process] says whether a message is new. For side effects outside the database, use
// package guard.
//
// # Processing
//
//	Receive → queue of its key → transaction { claim; handler } → Ack
//	                                │ failed, or its key is held
//	                                ▼
//	                transaction { claim; park } → Ack
//	                                │
//	                                ▼
//	          parked ──(due)──► transaction { take; handler }
//	            │  ▲
//	            ▼  │ redrive
//	           dead letter
//
// The messages of a key run one after another, different keys in parallel. A message that fails is retried locally for a
// short while. Then it is parked, with its key held and later messages queued after it, or dead-lettered. One transaction
// both claims and parks the message, so that a claim never exists for work that was not done, and redeliveries of a
// parked message are duplicates. If that transaction fails, nothing is acknowledged.
//
// Parked messages are stored in the tables of the relays, under the consumer's name. A relay inside the consumer, which
// reads no log, retries them: leases, backoff, held keys, ordering, dead letters and operators' commands are the relay's.
// A retried message is not checked against the claims; the transaction that processes it also removes it from the parked
// messages. So a redrive is never dropped as a duplicate, and runs only this consumer.
//
// # Logs
//
// A subscriber without a group reads a broker's log (postrider.Log). Then the position is in the consumer's database, and the
// leases of the relay inside the consumer distribute the partitions of the log among its processes. Every transaction commits
// only under the lease. The position, which moves on its own a few times a second, is where reading resumes after a crash; the
// claims recognize what was processed beyond it. log_anchors.go explains how a log that has lost its tail is recognized.
//
// # Deduplication
//
// The store keeps the ID of each message and consumer, for as long as the source can redeliver the message, or its publisher
// may send it again.
//
// # Failures
//
//   - The process crashes before the commit: nothing has happened, the broker redelivers. After the commit and before the
//     acknowledgement: the broker redelivers a duplicate.
//   - The response to a commit is lost: the next attempt finds the message claimed if the commit took effect, and free if
//     not.
//   - The database is unavailable: nothing is acknowledged, the consumer extends the broker's wait, and no attempt is
//     counted. Nor is one that ends with a lost connection, a conflict with other transactions, or a commit that fails, unless
//     that happens to the message again and again: spare.go.
//   - The broker is unavailable: received messages are finished; unacknowledged ones are redelivered as duplicates.
//   - The right to a message is lost, since its partition went to another process or the connection broke: its handler's
//     context ends, and none of it is committed or settled.
//   - Two processes have the same message: one waits for the other's transaction, and then finds a duplicate or a free
//     message.
//   - A handler panics, or ends its goroutine: this is a failed attempt.
//   - The messages of a slow key fill the memory: they are parked, and a handler of the key that has run for ParkAfter is interrupted:
//     slow.go.
//   - One message of a batch fails: the transaction is rolled back and run again with a savepoint for each message, so
//     that only the failing one is undone, and parked. Only this second failure counts as an attempt. The following
//     batches use savepoints from the beginning, for a while.
package inbox

// Where things are; TestMapOfFiles compares this list with the folder.
//
//	configuration               config errors
//	in a caller's transaction   inbox remove
//	handlers                    handle handle_batch replays
//	beginning and ending        consumer background catchup
//	receiving                   receive queue slow gate source source_handed
//	processing                  process transact open store_timer spare deliver effect size
//	parked and dead letters     failed storable
//	a log without a group       log_source log_leases log_open log_load log_run log_session log_anchors log_silent
//	expired IDs                 expire
//	logs and observers          logging observer
