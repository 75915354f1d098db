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
// relay on.
//
// A handler's error is its verdict. Nil means delivered; postrider.Retry, postrider.Snooze, postrider.Dead and
// postrider.Unavailable say more; any other error is retried with backoff until the attempts are used up, and then the
// message is a dead letter.
//
// # How it works
//
// An outbox has a number of partitions; a key belongs to one of them. A relay of a given name has a cursor in each
// partition, which says what it has settled, and a lease, which says which process may work there. A process holds its
// fair share of the leases. Every lease has an epoch, and the store takes a settlement only with the epoch of the lease
// as it stands: a process that was paused, cut off or slow can deliver what it had under way, but it changes nothing.
//
// A message's way through a process:
//
//	Fetch → admit → lane of its key → a worker takes it → handler or publisher → outcome → Settle
//
// The messages of one key wait in a lane and run one after another; lanes run in parallel; messages without a key run
// free. Nothing has a goroutine of its own: Config.Concurrency workers take what is ready, one message for a handler, a
// batch for a publisher. A batch may hold several messages of one lane, in order, and the publisher answers for each
// (see postrider.Publisher); the lane goes on when it has.
//
// Outcomes are recorded in batches. The tracker of a partition knows what was read and in which order; the cursor moves to
// the end of what is settled without a gap. Whatever would hold it back is taken off the main line instead: parked.
//
// With HandleTx there are no lanes of keys for fresh messages but one line for each partition, whose front runs in a
// transaction: handlers, settlement and commit together. What is to be put aside goes aside at the front of the line, so
// that the cursor passes it in the same settlement: nothing that was recorded is ever read again.
//
// # States of a message
//
//	waiting ──────────► running ──────────► delivered
//	   │                 │  │  ▲
//	   │ key held,       │  │  └──────────── due (its time has come, its key goes on, an operator says so)
//	   │ or delayed      │  │                 ▲
//	   ▼                 │  ▼                 │
//	   └──────────────────► parked ───────────┘
//	                     │                    ▲
//	                     └───► dead ──────────┘ redrive
//
// A message with a key that fails holds its key: it is parked as the head, its followers are parked behind it as they
// come, and the cursor moves on. When the head's next attempt succeeds, the followers are delivered in order, in runs of
// a bounded length, and when none is left the store lets the key go. This last step is the store's decision, in the
// settlement itself, so that a follower that was parked a moment before cannot be forgotten.
//
// # What fails, and what then
//
//   - The process dies: others go on from the cursors within LeaseTTL. What was delivered and not settled is
//     delivered again, in order, from the cursor on.
//   - The process is paused beyond its lease: it stops delivering a tenth of LeaseTTL before the end, on its own monotonic
//     clock counted from before it asked for the lease. When it wakes up it finds that the time has passed; calls under way
//     at that moment cannot be taken back.
//   - The database cannot be reached: nothing is fetched, settlements are tried again, deliveries end with the leases.
//   - A settlement's answer is lost: it is sent again, and changes nothing the second time.
//   - It is not known whether a settlement or commit of a relay with transactions took effect: the partition is leased anew,
//     with a new epoch, and read from the cursor that the store then has. A commit that is refused again when a message has
//     a transaction of its own is that message's failed attempt.
//   - The broker cannot be reached, which its publisher reports (postrider.Unavailable) or the relay sees when a call gets
//     no answer in its time: the circuit opens. An answer that refuses a message does not open it. What was under way goes back to the front of its lane, uncounted;
//     nothing is fetched, nothing is parked; one message at a time probes, each time another one, which is read if need
//     be: it may be the message that gets no answer.
//   - A handler takes longer than ParkAfter: its message is parked while it works on, so that the cursor can move. Its
//     outcome finds it there. Another worker starts, up to MaxSlowCalls of them, so that handlers that hang, even if they
//     ignore the end of their context after AttemptTimeout, stop their own keys only. A handler of HandleTx that does so stops
//     its partition.
//   - A key is slow, and its waiting messages hold back the cursor or fill the memory: they are parked behind it and come
//     back in runs.
//   - The process stops or hands a partition over: what waits in memory before messages that were delivered, or was
//     committed late together with them, is parked, so that the cursor passes over both and nothing is delivered twice. What
//     the last owner had parked beyond its cursor, because it died, is not delivered from the log again.
//   - A message dies: its followers wait until the dead letter is recorded.
//   - A handler panics, or ends its goroutine: that is a failed attempt.
package relay
