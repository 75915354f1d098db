package store

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/postrider/postrider"
)

// HeldFinder is implemented by stores that can look up which of some keys are held. A relay on such a store keeps up to
// MaxHeldKeys held keys in memory, not counting those that it is working on, and looks up the others with each fetch. On any
// other store it stops reading fresh messages at that number.
type HeldFinder interface {
	// FindHeld returns those of keys that are held for a relay, in any order.
	FindHeld(ctx context.Context, relay string, keys []string) ([]string, error)
}

// HeldKeys shows held keys to operators and records their decisions. Package held makes decisions and waits until they are
// applied.
type HeldKeys interface {
	// ListHeld yields the held keys of a relay ("" for all relays), longest held first.
	ListHeld(ctx context.Context, relay string) iter.Seq2[HeldInfo, error]
	// ShowHeld returns a held key with its parked messages in order, at most limit of them. Errors: ErrNotHeld.
	ShowHeld(ctx context.Context, relay, key string, limit int) (HeldInfo, []ParkedInfo, error)
	// FindParked returns a relay's parked messages with this ID: at most one, unless IDs were reused.
	FindParked(ctx context.Context, relay, messageID string) ([]ParkedInfo, error)
	// RecordDecision records a decision durably, to be applied by the process that holds the lease of the key's partition (see
	// Log.Decide). The caller sets ID, Relay, Key, Verb, MessageID, By and Reason. A decision with a known ID is not
	// recorded again. Errors: ErrNotHeld.
	RecordDecision(ctx context.Context, d Decision) error
	// ShowDecision returns a decision. Decisions that were applied or refused are kept for a day. Errors: ErrNoDecision.
	ShowDecision(ctx context.Context, id string) (Decision, error)
}

// HeldInfo describes a held key.
type HeldInfo struct {
	Relay     string `json:"relay"`
	Partition int    `json:"partition"`
	Key       string `json:"key"`
	// Sequence is that of the blocking message.
	Sequence int64      `json:"sequence"`
	Reason   ParkReason `json:"reason"`
	Cause    string     `json:"cause"`
	Attempts int        `json:"attempts"`
	Since    time.Time  `json:"since"`
	// NextAttempt is zero when the key waits for an operator.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// Parked is the number of parked messages of the key, including the blocking message; counted up to 10,000.
	Parked int `json:"parked"`
}

// ParkedInfo describes a parked message.
type ParkedInfo struct {
	Message  *postrider.Message `json:"message"`
	Reason   ParkReason         `json:"reason"`
	Attempts int                `json:"attempts"`
	ParkedAt time.Time          `json:"parked_at"`
	// DueAt is zero for a message that is queued in its key.
	DueAt   time.Time               `json:"due_at,omitzero"`
	History []postrider.AttemptInfo `json:"history"`
}

// Decision is an operator's decision about a held key.
type Decision struct {
	// ID is unique; the operator's program generates it.
	ID    string `json:"id"`
	Relay string `json:"relay"`
	Key   string `json:"key"`
	// Partition is that of the key.
	Partition int  `json:"partition"`
	Verb      Verb `json:"verb"`
	// MessageID is the blocking message that the operator saw. The decision is refused if another message blocks the key when
	// it is applied. "" applies it to whatever message blocks the key.
	MessageID string `json:"message_id,omitempty"`
	By        string `json:"by"`
	Reason    string `json:"reason,omitempty"`
	// State says whether it was applied, Outcome why it was refused, and Count how many messages became dead letters.
	State   DecisionState `json:"state"`
	Outcome string        `json:"outcome,omitempty"`
	Count   int           `json:"count"`
}

// Refused says why a decision cannot be applied to a held key whose blocking message has the ID blocking ("" if unknown); it
// returns "" if it can. undecided says that the key waits for a decision about that message's dead letter.
func (d *Decision) Refused(blocking string, undecided bool) string {
	switch {
	case d.MessageID != "" && d.MessageID != blocking:
		return fmt.Sprintf("the key is blocked by message %s, not by %s; check again and decide again", blocking, d.MessageID)
	case d.Verb == VerbRetry && undecided:
		return fmt.Sprintf("message %s is a dead letter, for which the key waits; redrive or discard the dead letter, or skip it", blocking)
	}
	return ""
}

// Verb is what a decision does with a held key.
type Verb string

// The verbs.
const (
	// VerbRetry makes the key due at once. It is refused while the key waits for a decision about a dead letter.
	VerbRetry Verb = "retry"
	// VerbSkip records the blocking message as a discarded dead letter, or discards its dead letter if it has one. The queued
	// messages continue.
	VerbSkip Verb = "skip"
	// VerbDead moves the blocking message to the dead letters, and the queued messages continue; VerbDeadAll moves all parked
	// messages of the key there.
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
