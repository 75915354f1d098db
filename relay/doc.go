// Package relay moves messages from the outbox to where they go: to a broker, through a postrider.Publisher, or to
// handlers in this process.
//
//	r, err := relay.New(store, relay.Config{Name: "shop"})
//	...
//	err = relay.Handle(r, OrderPlaced, func(ctx context.Context, m postrider.Typed[OrderPlacedData]) error {
//		return ship(ctx, m.Data)
//	})
//	...
//	err = r.Run(ctx) // until ctx ends
//
// Handlers of [HandleTx] have their effects in the outbox's database, each exactly once, in the transaction that moves the
// relay's cursor.
//
// A handler's error is its outcome. Nil means delivered; postrider.Retry, postrider.Snooze, postrider.Dead and
// postrider.Unavailable say more; any other error is retried with backoff until the attempts are used up, and then the
// message is a dead letter.
//
// # How it works
//
// An outbox has a number of partitions; a key belongs to one of them. A relay of a given name has a cursor in each
// partition, which says what it has settled, and a lease, which says which process may work there. A process holds its
// fair share of the leases.
//
// The path of a message through a process:
//
//	Fetch → admit → queue of its key → a worker takes it → handler or publisher → outcome → Settle
//
// The messages of one key wait in a queue (a queue, in the code) and run one after another; queues run in parallel; messages
// without a key run freely. No message has a goroutine of its own: Config.Concurrency workers take what is ready, one message for a
// handler, a batch for a publisher. A batch may hold several messages of one key, in order, and the publisher answers for each
// (see postrider.Publisher); the key goes on when it has.
//
// Outcomes are recorded in batches. The tracker of a partition knows what was read and in which order; the cursor moves to
// the end of what is settled without a gap. Whatever would hold it back is parked.
//
// With HandleTx, fresh messages have one queue for each partition instead of one for each key. Its first messages run in a
// transaction: handlers, settlement and commit together. A message is parked only at the front of that queue, so that the cursor
// passes it in the same settlement: nothing that was recorded is ever read again.
//
// # The fence
//
// A relay remembers more than the database may have: settlements do not wait for the disk, and a crash or failover loses the
// last ones. The rule is that no process acts on memory that is newer than the database it writes to. Three values keep it:
//
//   - The token of the lease, made by the process for each acquisition. Another holder has another one, and so has a later
//     lease of the same process.
//   - The incarnation of the server. A lease holds only in the incarnation that granted it, so a crash, restart or failover ends
//     all leases.
//   - The number of the settlement, one more than that of the last one applied to the partition. It tells a settlement that was
//     lost, repeated or delayed. Once sent, a settlement keeps its number and its content, until its answer is known; the next one of
//     the partition waits for that.
//
// If one of them does not fit, the partition is lost: the process drops what it holds of it, leases it under a new token, and
// reads cursor, held keys and parked messages from the database. If the process still holds the lease by its own clock, it says so
// (Claim.Resume) and gets it at once; anybody else waits until no other process can be at work. Lost or not, a settlement that
// arrives late changes nothing.
//
// Calls that are out outlive their lease: they cannot be taken back. Their outcomes are not recorded, and their key starts again in
// this process only when they have returned.
//
// # Decisions of operators
//
// A decision about a held key is a row. Due reports it to the holder of the lease, which stops working on the key, waits for the
// call that is out and for its outcome to be recorded, and then has the store apply the decision, under the lease (see package
// held). So what is in memory cannot be delivered after an operator has dead-lettered it.
//
// # States of a message
//
//	waiting ──────────► running ──────────► delivered
//	   │                 │  │  ▲
//	   │ key held,       │  │  └──────────── due (its time has come, its key goes on, or an operator retries)
//	   │ or delayed      │  │                 ▲
//	   ▼                 │  ▼                 │
//	   └──────────────────► parked ───────────┘
//	                     │                    ▲
//	                     └───► dead ──────────┘ redrive
//
// A message with a key that fails holds its key: it is parked and blocks the key, the messages that follow are parked as they
// are read, and the cursor moves on. When the next attempt of the blocking message succeeds, the queued messages are delivered in
// order, in runs of a bounded length, and when none is left the store releases the key. The store decides this in the settlement
// itself, so that a message that was parked a moment before is not left behind.
//
// Up to Config.MaxHeldKeys held keys are kept in memory. When more are held, each fetch looks up the keys of its messages.
//
// # What fails, and what then
//
//   - The process dies: others go on from the cursors within LeaseTTL. What was delivered and not settled is
//     delivered again, in order, from the cursor on.
//   - The process is paused beyond its lease: it stops delivering a tenth of LeaseTTL before the end, on its own monotonic
//     clock counted from before it asked for the lease. When it wakes up it finds that the time has passed; calls under way
//     at that moment cannot be taken back.
//   - The database cannot be reached: nothing is fetched, settlements are tried again, deliveries end with the leases.
//   - The database server crashes, restarts or fails over: every partition is lost and leased again, at once by the process that
//     held it. What was delivered since the last settlement that survived is delivered again.
//   - The database is replaced by another one (a SQLite file that was moved): Run ends with ErrReplaced.
//   - A settlement's answer is lost: it is sent again with the same number, and changes nothing the second time.
//   - A settlement is refused, for a value that the database cannot hold: the settlements of other partitions are applied. After ten
//     refusals the partition is read from the database again.
//   - It is not known whether a commit of a relay with transactions took effect: the partition is leased under a new token, and
//     read from the cursor that the store then has. A commit that is refused again when a message has
//     a transaction of its own is that message's failed attempt.
//   - The broker cannot be reached, which its publisher reports (postrider.Unavailable) or the relay sees when a call gets
//     no answer in its time: the circuit opens, for the destination as a whole. An answer that refuses a message does not open
//     it. What was under way goes back to the front of its queue, uncounted; nothing is fetched, nothing is parked; one message at a
//     time probes, each time another one, which is read if need be: it may be the message that gets no answer.
//   - A handler takes longer than ParkAfter: its message is parked while it works on, so that the cursor can move, and its outcome
//     applies to the parked message. It gives its worker back: another one starts, up to MaxSlowCalls of them, so that handlers that hang, even if they
//     ignore the end of their context after AttemptTimeout, stop their own keys only. A handler of HandleTx that does so stops
//     its partition.
//   - A key is slow, and its waiting messages hold back the cursor or fill the memory: they are parked with it and
//     read again in runs.
//   - The process stops or hands a partition over: what waits in memory before messages that were delivered, or was
//     committed late together with them, is parked, so that the cursor passes over both and nothing is delivered twice. What
//     the last owner had parked beyond its cursor, because it died, is not delivered from the log again.
//   - A message is dead-lettered: the messages queued after it wait until the dead letter is recorded.
//   - A handler panics, or ends its goroutine: that is a failed attempt.
package relay
