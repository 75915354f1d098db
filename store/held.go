package store

import (
	"fmt"
	"time"

	"github.com/postrider/postrider"
)

// HeldInfo describes a held key.
type HeldInfo struct {
	Relay     string `json:"relay"`
	Partition int    `json:"partition"`
	Key       string `json:"key"`
	// Sequence and MessageID are those of the blocking message; MessageID is "" if no message blocks the key any more.
	Sequence  int64      `json:"sequence"`
	MessageID string     `json:"message_id,omitempty"`
	Reason    ParkReason `json:"reason"`
	Cause     string     `json:"cause"`
	Attempts  int        `json:"attempts"`
	Since     time.Time  `json:"since"`
	// NextAttempt is zero when the key waits for an operator.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// Parked is the number of parked messages of the key, including the blocking message; counted up to 10,000.
	Parked int `json:"parked"`
}

// ParkedInfo describes a parked message.
type ParkedInfo struct {
	Relay     string             `json:"relay"`
	Partition int                `json:"partition"`
	Message   *postrider.Message `json:"message"`
	Reason    ParkReason         `json:"reason"`
	Attempts  int                `json:"attempts"`
	ParkedAt  time.Time          `json:"parked_at"`
	// DueAt is zero for a message that is queued in its key.
	DueAt   time.Time               `json:"due_at,omitzero"`
	History []postrider.AttemptInfo `json:"history"`
	// Unreadable says why Message has no headers and payload: the role of the database may not read them.
	Unreadable string `json:"unreadable,omitempty"`
}

// Cause returns the error of the last attempt, or what else the relay recorded last about the message; "" for nothing.
func (p *ParkedInfo) Cause() string {
	if len(p.History) == 0 {
		return ""
	}
	return p.History[len(p.History)-1].Cause
}

// ParkedCount counts a relay's parked messages that wait by themselves for one reason.
type ParkedCount struct {
	Relay  string     `json:"relay"`
	Reason ParkReason `json:"reason"`
	Count  int64      `json:"count"`
	// Oldest is when the first of them was parked.
	Oldest time.Time `json:"oldest"`
}

// Unblocked is the outcome of a decision that arrives too late.
const Unblocked = "no message blocks the key any more; it is about to be released"

// Decision is an operator's decision about a held key, or about a parked message that waits by itself.
type Decision struct {
	// ID is unique; the operator's program generates it.
	ID    string `json:"id"`
	Relay string `json:"relay"`
	// Key is the held key, or that of the parked message.
	Key string `json:"key"`
	// Partition is that of the key or message.
	Partition int `json:"partition"`
	// Sequence is that of the parked message; 0 for a decision about a held key.
	Sequence int64 `json:"sequence,string,omitzero"`
	Verb     Verb  `json:"verb"`
	// MessageID is the parked message or, for a held key, the blocking message that the operator saw: the decision is refused if
	// another message blocks the key when it is applied. "" applies it to whatever message blocks the key.
	MessageID string `json:"message_id,omitempty"`
	By        string `json:"by"`
	Reason    string `json:"reason,omitempty"`
	// State says whether it was applied, Outcome why it was refused, and Count how many messages became dead letters.
	State   DecisionState `json:"state"`
	Outcome string        `json:"outcome,omitempty"`
	Count   int           `json:"count"`
}

// AboutMessage reports whether the decision is about a parked message that waits by itself, rather than about a held key.
func (d *Decision) AboutMessage() bool { return d.Sequence != 0 || d.Key == "" }

// Refused says why a decision cannot be applied to a held key whose blocking message has the ID blocking ("" if there is
// none); it returns "" if it can. undecided says that the key waits for a decision about that message's dead letter.
func (d *Decision) Refused(blocking string, undecided bool) string {
	switch {
	case blocking == "" && (d.MessageID != "" || d.Verb != VerbRetry):
		return Unblocked
	case d.MessageID != "" && d.MessageID != blocking:
		return fmt.Sprintf("the key is blocked by message %s, not by %s; check again and decide again", blocking, d.MessageID)
	case undecided && (d.Verb == VerbRetry || d.Verb == VerbDead):
		return fmt.Sprintf("message %s is a dead letter, for which the key waits; redrive or discard the dead letter, or skip it", blocking)
	}
	return ""
}

// Verb is what a decision does with a held key, or with a parked message that waits by itself.
type Verb string

// The verbs:
//
//	verb        | held key                                       | parked message
//	VerbRetry   | is due at once (1)                             | is due at once
//	VerbSkip    | its blocking message becomes a discarded       | becomes a discarded dead letter
//	            | dead letter (if it is an open one, that is     |
//	            | discarded), and the queued messages follow     |
//	VerbDead    | its blocking message becomes an open           | becomes an open dead letter
//	            | dead letter, and the queued ones follow (1)    |
//	VerbDeadAll | all its parked messages become dead letters,   | refused
//	            | and the key is free, also if it waited for a   |
//	            | decision about a dead letter                   |
//
// (1) Refused while the key waits for a decision about a dead letter: the queued messages would be delivered past it.
const (
	VerbRetry   Verb = "retry"
	VerbSkip    Verb = "skip"
	VerbDead    Verb = "dead"
	VerbDeadAll Verb = "dead-all"
)

// DecisionState is the progress of a decision.
type DecisionState string

// The states of a decision.
const (
	DecisionOpen    DecisionState = "open"
	DecisionApplied DecisionState = "applied"
	DecisionRefused DecisionState = "refused"
)
