// Package saga runs business operations that span services: each step is one local transaction, and what cannot go on is undone.
//
//	var ReserveStock = saga.DefineStep[StockOrder, Reservation]("stock.reserve").WithTopic("inventory")
//	...
//	orders, err := saga.Register(engine, saga.Definition[Order]{
//		Name: "order-fulfilment", Version: 1,
//		Steps: []saga.Step[Order]{
//			saga.Request[Order, StockOrder, Reservation]{Name: "reserve", Step: ReserveStock, Command: …, Done: …},
//			saga.Request[Order, Charge, Receipt]{Name: "charge", Step: ChargeCard, Command: …, Done: …},
//			saga.Request[Order, Parcel, Parcel]{Name: "ship", Step: ShipOrder, Command: …, Pivot: true},
//		},
//	})
//	...
//	started, err := orders.Start(ctx, tx, order) // in the transaction of the order
//	...
//	result, err := orders.Wait(ctx, started.ID)
//
// An instance ends completed, with every step done, skipped, or refused where that is allowed; or compensated, with every step
// that was started proved not to have happened, or undone. It ends otherwise only by a named operator's decision.
//
// docs/sagas.md explains the concepts and has a tutorial. Package [github.com/postrider/postrider/saga/sagatest] runs a
// definition with scripted participants, and explores every order of messages, duplicates and timeouts that it can meet.
//
// # How it works
//
// An instance is a row. A transition handles one input (a reply, a timer, a signal, an operator's verb): it locks the row,
// computes the next state with a pure function, saves it with an entry of the history, and publishes commands and the timer.
// All of that is one transaction, that of the relay or consumer that delivers the input; so no input is lost, and none has its
// effect twice. The engine has no goroutines and scans nothing: an instance that waits costs a row.
//
// The transition that sends a command opens an obligation, which closes when the participant says that it refused or undid the
// step, or when an operator releases it. A participant records what it did in the transaction of its effect:
//
//	record     | command arrives               | undo arrives
//	none       | the handler runs              | blocked; answer: undone
//	done       | the reply is repeated         | the undo handler runs, with the command and the reply
//	refused    | the refusal is repeated       | answer: undone
//	undone     | answer: refused               | answer: undone
//	blocked    | answer: refused               | answer: undone
//
// So a step that did not answer in time is not a failure: it is unknown, and undone like one that is done.
//
// # Failures
//
//   - A process dies: the transaction of its transition or effect is rolled back, and its message is delivered again.
//   - A participant is down: its step times out, and the saga turns back. The undo waits in the log until the participant is
//     back, and is sent again if there is no answer.
//   - A reply is late: if its step is being undone or is undone, the reply is recorded and changes nothing else.
//   - The pivot times out: its undo is sent. The participant either blocks it, and all is undone, or says that it is done and
//     cannot be undone, and the saga continues forward.
//   - An undo fails for good, a step after the pivot is refused, or a function of a step panics: the instance is stuck, and an
//     operator decides (Engine.Operate).
//   - The database loses commits (an asynchronous failover, a restored backup): no promise holds for what was lost.
package saga
