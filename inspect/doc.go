// Package inspect explains where a message is, why, and what happens next.
//
//	e, err := inspect.Message(ctx, store, "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a")
//	for _, p := range e.Places {
//		fmt.Println(p.Kind, p.Name, p.State, p.Next.Text)
//	}
//
// [Message] explains a message, [Key] a key and [Relay] a relay or consumer. Each returns an [Explanation]: a value without
// commands or layout, so that a command line, an API and a page show the same. "postrider explain" prints it, with --json as
// it is.
//
// # States
//
// An Explanation has one [Place] for each relay and consumer, and the place has one [State]:
//
//	state                | the message                                             | next
//	waiting              | is in the log, after the cursor                         | delivery, process, answer
//	delivered_or_skipped | is at or before the cursor                              | nothing
//	not_taken            | has a topic that the relay does not take                | nothing
//	not_begun            | is in a partition where the relay has no cursor yet     | process
//	blocking             | failed and holds its key                                | attempt, process, answer
//	queued               | follows the blocking message of its held key            | turn, decision, process
//	parked               | waits for its own time                                  | attempt, process, answer
//	dead                 | is an open dead letter                                  | decision
//	discarded            | is a discarded dead letter                              | nothing
//	delivered            | was redriven, and has been delivered or processed since | nothing
//	unknown              | is not in the log, or the consumer reads a broker       | unknown
//
// A key is held, not_held or not_begun. A relay or consumer is idle, working, stopped, paused or down.
//
// # JSON
//
// Names are in snake_case, times in RFC 3339, durations are numbers of seconds in fields that end in _seconds. Sequences are
// texts, because they can exceed 2^53. Most empty fields are left out.
//
// # Accuracy
//
// The store is read in several steps while relays continue, so that the places can be of slightly different times. A message
// that moves meanwhile is found where it was or where it is. A message in the log whose transaction committed late, after the
// cursor passed its sequence, is delivered_or_skipped although a relay that is about to fetch it has not delivered it yet. When a cursor
// passed a message is known to about a minute; see [Passed].
package inspect
