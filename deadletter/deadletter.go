// Package deadletter is where messages stand that were given up, by a relay or by a consumer: with what they were, what
// was tried and what happened, until somebody sends them back (redrive) or discards them. One room serves both sides: a
// consumer's dead letters stand among those of the relays, under its name.
//
// # What can be done
//
//   - Look: [Store] lists, shows and counts letters by a [Filter]; [RepairStore] counts them by cause. Causes that differ
//     only in numbers and identifiers are one cause, see [Fingerprint].
//   - Send back: a [Redrive] is a durable object with a filter, a rate and a progress. Any process may drive it ([Drive],
//     [Run]), several at once too; what one leaves off another goes on with. A message that was sent back runs the relay or
//     consumer that gave it up, and no other, and whatever is remembered about it does not swallow it: a dead letter had no
//     effect.
//   - Discard, with a reason that stays on record.
//   - Edit payload or headers before sending a letter back; what it was before stays readable.
//   - Move letters to another outbox, or keep a copy: [Export] and [Import].
//
// # A letter's way
//
//	open ──redrive──► redriven      the message is parked, due at once; if it dies again, that is a new letter
//	  │                             that counts one redrive more
//	  └────discard──► discarded
//
// How often a message may be sent back is bounded ([DefaultMaxRedrives]): one that died again each time needs another
// remedy. An operator can override the bound with Filter.MaxRedrives.
package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// ErrRedrivenTooOften: the message was sent back as often as Filter.MaxRedrives allows.
	ErrRedrivenTooOften = errors.New("message was sent back too often")
)

// DefaultMaxRedrives is how often a message may be sent back from the dead letters, and Unbounded stands for no bound.
const (
	DefaultMaxRedrives = 3
	Unbounded          = -1
)

// State says what has been done about a dead letter.
type State string

// The states of a dead letter.
const (
	Open      State = "open"      // somebody has to decide
	Redriven  State = "redriven"  // sent back to its relay
	Discarded State = "discarded" // given up for good, with a reason
)

// Side says on which side of the broker a message was given up.
type Side string

// The sides.
const (
	RelaySide    Side = "relay"    // on its way out of an outbox
	ConsumerSide Side = "consumer" // on its way in, by the consumer of this name
)

// Letter is one dead letter.
type Letter struct {
	// Number identifies the dead letter; a message that dies again gets a new one.
	Number int64 `json:"number"`
	// Relay is the name of the relay or, on the ConsumerSide, of the consumer. A name that the outbox does not know, because
	// it was forgotten or the letter comes from another outbox, counts as that of a relay.
	Relay     string `json:"relay"`
	Side      Side   `json:"side"`
	Partition int    `json:"partition"`
	// Message has a negative Sequence if the letter was imported: it never stood in the log of this outbox.
	Message *postrider.Message `json:"message"`
	// Unreadable says why the stored row cannot be read as a message, in which case Message holds what could be read.
	Unreadable string `json:"unreadable,omitempty"`
	// Reason is short and alike for like cases; Cause is what happened last, with its chain of errors and, for a panic, its
	// stack.
	Reason   string                  `json:"reason"`
	Cause    string                  `json:"cause"`
	Attempts int                     `json:"attempts"`
	History  []postrider.AttemptInfo `json:"history"`
	DiedAt   time.Time               `json:"died_at"`
	// Redrives counts how often this message has been sent back from the dead letters before it came here.
	Redrives int   `json:"redrives"`
	State    State `json:"state"`
	// Edits counts how often payload or headers have been edited; RepairStore.ListEdits shows what they were before.
	Edits int `json:"edits,omitempty"`
	// Redrive is the ID of the redrive that sent it back, 0 if none did.
	Redrive int64 `json:"redrive,omitempty"`
	// ResolvedAt, ResolvedBy and Resolution say when, by whom and why it was redriven or discarded.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	Resolution string    `json:"resolution,omitempty"`
}

// Filter chooses dead letters; zero fields choose all.
type Filter struct {
	Numbers []int64 `json:"numbers,omitempty"`
	// Relay is the name of a relay or consumer; Side chooses those of one side.
	Relay  string `json:"relay,omitempty"`
	Side   Side   `json:"side,omitempty"`
	Topic  string `json:"topic,omitempty"`
	Type   string `json:"type,omitempty"`
	Key    string `json:"key,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Cause is part of the cause, upper and lower case told apart; Fingerprint that of the whole cause, see the function.
	Cause       string `json:"cause,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// MessageID is the ID of the message.
	MessageID string `json:"message_id,omitempty"`
	// Redrive is the ID of the redrive that sent the letter back; give a State as well, since such letters are not open.
	Redrive int64 `json:"redrive,omitempty"`
	// From (inclusive) and To (exclusive) bound DiedAt.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// State chooses letters of one state; "" means Open. Any state: AnyState.
	State State `json:"state,omitempty"`

	// MaxRedrives does not choose letters but bounds redrives: messages that were sent back this often already are refused.
	// 0 means DefaultMaxRedrives; for no bound: Unbounded.
	MaxRedrives int `json:"max_redrives,omitempty"`
}

// Allows says whether a message that was sent back this often may be sent back once more.
func (f Filter) Allows(redrives int) bool {
	return f.MaxRedrives == Unbounded || redrives < cmp.Or(f.MaxRedrives, DefaultMaxRedrives)
}

// RefuseTooOften is the error for a named letter that was sent back as often as Allows allows.
func RefuseTooOften(number int64, redrives int) error {
	return fmt.Errorf("%w: that of dead letter %d was sent back %d times and died again each time; find out why, or raise the "+
		"bound (postrider dead redrive --force)", ErrRedrivenTooOften, number, redrives)
}

// AnyState in Filter.State chooses letters of every state.
const AnyState State = "any"

// Store keeps dead letters. They never expire by themselves. The implementations are held to this contract by
// store/storetest.
type Store interface {
	RedriveStore
	RepairStore
	// ListDead yields dead letters, oldest first, in pages behind the scenes; after is the Number to go on behind (0 from
	// the start) and limit the largest number of letters (0 for all).
	ListDead(ctx context.Context, f Filter, after int64, limit int) iter.Seq2[Letter, error]
	// ShowDead returns one dead letter. Errors: ErrNotFound.
	ShowDead(ctx context.Context, number int64) (Letter, error)
	// CountDead counts the letters that the filter chooses.
	CountDead(ctx context.Context, f Filter) (int64, error)
	// RedriveDead sends up to limit open letters (0 means 1,000) that the filter chooses back to their relays or consumers,
	// oldest first, in one transaction: parked and due at once, attempts from 1 again. It returns how many it was; call it
	// again until that is 0. Two callers never redrive the same letter twice. A letter whose key is held takes its place among
	// those that wait behind the key, in order of sequence; one that the key waits for a decision about lets the key go on. A
	// letter that Filter.MaxRedrives refuses is left out. If the filter names Numbers and one of them is not open, or refused,
	// nothing is done. Errors: ErrNotFound, ErrResolved, ErrRedrivenTooOften.
	RedriveDead(ctx context.Context, f Filter, by string, limit int) (int, error)
	// DiscardDead marks up to limit open letters (0 means 1,000) as discarded, in one transaction, and lets keys go that
	// were held for them. Errors: ErrNotFound, ErrResolved as in RedriveDead.
	DiscardDead(ctx context.Context, f Filter, by, reason string, limit int) (int, error)
}
