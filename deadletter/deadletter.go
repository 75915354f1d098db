// Package deadletter is where messages stand that a relay has given up: with what they were, what was tried and what
// happened, until somebody sends them back (redrive) or discards them.
package deadletter

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/postrider/postrider"
)

// Errors of operations on single dead letters.
var (
	// ErrNotFound: there is no dead letter of this number.
	ErrNotFound = errors.New("no such dead letter")
	// ErrResolved: the dead letter was already redriven or discarded.
	ErrResolved = errors.New("dead letter is already resolved")
)

// State says what has been done about a dead letter.
type State string

// The states of a dead letter.
const (
	Open      State = "open"      // somebody has to decide
	Redriven  State = "redriven"  // sent back to its relay
	Discarded State = "discarded" // given up for good, with a reason
)

// Letter is one dead letter.
type Letter struct {
	// Number identifies the dead letter; a message that dies again gets a new one.
	Number    int64              `json:"number"`
	Relay     string             `json:"relay"`
	Partition int                `json:"partition"`
	Message   *postrider.Message `json:"message"`
	// Reason is short and alike for like cases; Cause is what happened last.
	Reason   string                  `json:"reason"`
	Cause    string                  `json:"cause"`
	Attempts int                     `json:"attempts"`
	History  []postrider.AttemptInfo `json:"history"`
	DiedAt   time.Time               `json:"died_at"`
	// Redrives counts how often this message has been sent back from the dead letters before it came here.
	Redrives int   `json:"redrives"`
	State    State `json:"state"`
	// ResolvedAt, ResolvedBy and Resolution say when, by whom and why it was redriven or discarded.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	Resolution string    `json:"resolution,omitempty"`
}

// Filter chooses dead letters; zero fields choose all.
type Filter struct {
	Numbers []int64
	Relay   string
	Topic   string
	Type    string
	Key     string
	Tenant  string
	Reason  string
	// MessageID is the ID of the message.
	MessageID string
	// From (inclusive) and To (exclusive) bound DiedAt.
	From, To time.Time
	// State chooses letters of one state; "" means Open. Any state: AnyState.
	State State
}

// AnyState in Filter.State chooses letters of every state.
const AnyState State = "any"

// Store keeps dead letters. They never expire by themselves.
type Store interface {
	// ListDead yields dead letters, oldest first, in pages behind the scenes; after is the Number to go on behind (0 from
	// the start) and limit the largest number of letters (0 for all).
	ListDead(ctx context.Context, f Filter, after int64, limit int) iter.Seq2[Letter, error]
	// ShowDead returns one dead letter. Errors: ErrNotFound.
	ShowDead(ctx context.Context, number int64) (Letter, error)
	// CountDead counts the letters that the filter chooses.
	CountDead(ctx context.Context, f Filter) (int64, error)
	// RedriveDead sends up to limit open letters (0 means 1,000) that the filter chooses back to their relays, oldest first,
	// in one transaction: parked and due at once, attempts from 1 again. It returns how many it was; call it again until
	// that is 0. Two callers never redrive the same letter twice. A letter of a held key that waits for a decision lets the
	// key go on. If the filter names Numbers and one of them is not open, nothing is done. Errors: ErrNotFound, ErrResolved.
	RedriveDead(ctx context.Context, f Filter, by string, limit int) (int, error)
	// DiscardDead marks up to limit open letters (0 means 1,000) as discarded, in one transaction, and lets keys go that
	// were held for them. Errors: ErrNotFound, ErrResolved as in RedriveDead.
	DiscardDead(ctx context.Context, f Filter, by, reason string, limit int) (int, error)
}
