package inspect

import "time"

// State says where a message or key is for a relay or consumer, or how the relay or consumer is doing. The package comment
// has them in a table.
type State string

// The states of a message.
const (
	Waiting            State = "waiting"              // in the log, for its first delivery
	DeliveredOrSkipped State = "delivered_or_skipped" // the cursor is past it: delivered, or skipped by the topics taken then
	NotTaken           State = "not_taken"            // the relay does not take its topic
	NotBegun           State = "not_begun"            // the relay has not begun with its partition
	Blocking           State = "blocking"             // it failed and holds its key
	Queued             State = "queued"               // it follows the blocking message of its held key
	Parked             State = "parked"               // it waits for its own time
	Dead               State = "dead"                 // it is an open dead letter
	Discarded          State = "discarded"            // it is a discarded dead letter
	Delivered          State = "delivered"            // it was redriven, and has been delivered or processed since
	Unknown            State = "unknown"              // nothing is recorded about it
)

// The states of a key. NotBegun and Unknown apply to keys too.
const (
	Held    State = "held"     // its blocking message failed
	NotHeld State = "not_held" // nothing blocks it
)

// The states of a relay or consumer.
const (
	Idle    State = "idle"    // it has nothing to do
	Working State = "working" // it has something to do and a process that does it
	Stopped State = "stopped" // it has something to do and no process
	Paused  State = "paused"  // an operator has paused it
	Down    State = "down"    // it has something to do, and its destination does not answer
)

// NextCode says what happens next without anybody's help.
type NextCode string

// The codes of Next.
const (
	NextNothing  NextCode = "nothing"  // it is done
	NextDelivery NextCode = "delivery" // it is delivered when its turn comes
	NextAttempt  NextCode = "attempt"  // it is tried at Next.At, or when its turn comes if that is past
	NextTurn     NextCode = "turn"     // it follows the messages ahead of it
	NextProcess  NextCode = "process"  // nothing until a process of the relay or consumer runs, and not before Next.At
	NextDecision NextCode = "decision" // nothing until somebody decides
	NextAnswer   NextCode = "answer"   // nothing until the destination answers, which the relay tries at Next.At
	NextDrop     NextCode = "drop"     // every relay skips it, and it is dropped with the log's retention
	NextUnknown  NextCode = "unknown"
)

// Next says what happens next without anybody's help.
type Next struct {
	Code NextCode `json:"code"`
	// At is when it happens at the earliest; zero if that is not a matter of time.
	At time.Time `json:"at,omitzero"`
	// Text says it in a few words, for people.
	Text string `json:"text"`
}

// ActionKind is something that an operator can do.
type ActionKind string

// The actions, and the fields of Action that each has besides Kind.
const (
	// ActionRetry and the next two decide about the blocking message of a held key, with Relay, Key and MessageID; or, without
	// Key, about a parked message that waits by itself.
	ActionRetry      ActionKind = "retry"       // try it now
	ActionSkip       ActionKind = "skip"        // discard it
	ActionDeadLetter ActionKind = "dead_letter" // move it to the dead letters
	ActionRedrive    ActionKind = "redrive"     // send a dead letter back: Relay and DeadLetter, or Key if the number is not known
	ActionDiscard    ActionKind = "discard"     // discard a dead letter: as for redrive
	ActionStart      ActionKind = "start"       // start a process of the relay or consumer; if Relay is empty, of any relay
	ActionResume     ActionKind = "resume"      // resume a paused relay or consumer
	ActionRoute      ActionKind = "route"       // make a relay take the topic: Topic
)

// Action is something that an operator can do.
type Action struct {
	Kind ActionKind `json:"action"`
	// Relay is the name of the relay or consumer.
	Relay string `json:"relay,omitempty"`
	Key   string `json:"key,omitempty"`
	// MessageID is the message that blocks the key; a decision that names it is refused if another message blocks the key
	// when it is applied.
	MessageID  string `json:"message_id,omitempty"`
	DeadLetter int64  `json:"dead_letter,omitzero"`
	Topic      string `json:"topic,omitempty"`
}
