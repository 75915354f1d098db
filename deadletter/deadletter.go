// Package deadletter manages dead letters: messages that a relay or consumer could not process. A dead letter keeps the
// message, its attempts and their causes until someone redrives or discards it. Relays and consumers share one set of
// dead letters, each under its own name.
//
// # Operations
//
//   - List: [Store] lists, shows and counts dead letters by a [Filter]; [RepairStore] counts them by cause. Causes that
//     differ only in numbers and identifiers count as one, see [Fingerprint].
//   - Redrive: a [Redrive] is a durable job with a filter, a rate and its progress. Any process may drive it ([Drive],
//     [Run]), several at once too; when one stops, another continues. A redriven message goes back only to the relay or
//     consumer that dead-lettered it. Deduplication does not drop it, since it was never processed.
//   - Discard, with a reason that stays on record.
//   - Edit payload or headers before a redrive; the previous content stays readable.
//   - Move dead letters to another outbox, or keep a copy: [Export] and [Import].
//
// # States
//
//	open ──redrive──► redriven      the message is parked, due at once; if it is dead-lettered again,
//	  │                             that is a new dead letter with one more redrive
//	  └────discard──► discarded
//
// The number of redrives per message is limited ([DefaultMaxRedrives]): a message that is dead-lettered again each time
// needs another fix. An operator can override the limit with Filter.MaxRedrives.
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
	// ErrNotFound: no dead letter has this number.
	ErrNotFound = errors.New("no such dead letter")
	// ErrResolved: the dead letter was already redriven or discarded.
	ErrResolved = errors.New("dead letter is already resolved")
	// ErrRedrivenTooOften: the message has been redriven as often as Filter.MaxRedrives allows.
	ErrRedrivenTooOften = errors.New("message was sent back too often")
)

// DefaultMaxRedrives is how often a message may be redriven; Unbounded removes the limit.
const (
	DefaultMaxRedrives = 3
	Unbounded          = -1
)

// State is the state of a dead letter.
type State string

// The states of a dead letter.
const (
	Open      State = "open"      // someone has to decide
	Redriven  State = "redriven"  // sent back to its relay or consumer
	Discarded State = "discarded" // dropped for good, with a reason
)

// Side says on which side of the broker a message was dead-lettered.
type Side string

// The sides.
const (
	RelaySide    Side = "relay"    // outgoing, by a relay
	ConsumerSide Side = "consumer" // incoming, by the consumer of this name
)

// Record is one dead letter.
type Record struct {
	// Number identifies the dead letter; a message that is dead-lettered again gets a new one.
	Number int64 `json:"number"`
	// Relay is the name of the relay or, on the ConsumerSide, of the consumer. A name unknown to the outbox, because it
	// was removed or the dead letter comes from another outbox, counts as a relay's.
	Relay     string `json:"relay"`
	Side      Side   `json:"side"`
	Partition int    `json:"partition"`
	// Message has a negative Sequence if the dead letter was imported: it was never in the log of this outbox.
	Message *postrider.Message `json:"message"`
	// Unreadable says why the stored row cannot be read as a message; Message then holds the parts that could be read.
	Unreadable string `json:"unreadable,omitempty"`
	// Reason is short and the same for similar failures; Cause is the last failure, with its chain of errors and, for a
	// panic, its stack.
	Reason   string                  `json:"reason"`
	Cause    string                  `json:"cause"`
	Attempts int                     `json:"attempts"`
	History  []postrider.AttemptInfo `json:"history"`
	DiedAt   time.Time               `json:"died_at"`
	// Redrives counts how often this message had been redriven before this dead letter.
	Redrives int   `json:"redrives"`
	State    State `json:"state"`
	// Edits counts edits of payload or headers; RepairStore.ListEdits shows the content before each.
	Edits int `json:"edits,omitempty"`
	// Redrive is the ID of the redrive that sent it back; 0 for none.
	Redrive int64 `json:"redrive,omitempty"`
	// ResolvedAt, ResolvedBy and Resolution say when, by whom and why it was redriven or discarded.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	Resolution string    `json:"resolution,omitempty"`
}

// Filter selects dead letters; zero fields match all.
type Filter struct {
	Numbers []int64 `json:"numbers,omitempty"`
	// Relay is the name of a relay or consumer; Side selects one side.
	Relay  string `json:"relay,omitempty"`
	Side   Side   `json:"side,omitempty"`
	Topic  string `json:"topic,omitempty"`
	Type   string `json:"type,omitempty"`
	Key    string `json:"key,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Cause is a case-sensitive substring of the cause; Fingerprint is the Fingerprint of the whole cause.
	Cause       string `json:"cause,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// MessageID is the ID of the message.
	MessageID string `json:"message_id,omitempty"`
	// Redrive is the ID of the redrive that sent the dead letter back; set State as well, since such dead letters are not
	// open.
	Redrive int64 `json:"redrive,omitempty"`
	// From (inclusive) and To (exclusive) bound DiedAt.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// State selects one state; "" means Open. For any state: AnyState.
	State State `json:"state,omitempty"`

	// MaxRedrives does not select dead letters but limits redrives: messages that have been redriven this often are
	// refused. 0 means DefaultMaxRedrives; for no limit: Unbounded.
	MaxRedrives int `json:"max_redrives,omitempty"`
}

// allows says whether a message that has been redriven this often may be redriven again.
func allows(f Filter, redrives int) bool {
	return f.MaxRedrives == Unbounded || redrives < cmp.Or(f.MaxRedrives, DefaultMaxRedrives)
}

func checkMaxRedrives(f Filter) error {
	if f.MaxRedrives < Unbounded {
		return fmt.Errorf("a message cannot have been sent back %d times", f.MaxRedrives)
	}
	return nil
}

// refuseTooOften is the error for a dead letter, selected by number, that allows refuses.
func refuseTooOften(number int64, redrives int) error {
	return fmt.Errorf("%w: that of dead letter %d was sent back %d times and died again each time; find out why, or raise the "+
		"bound (postrider dead redrive --force)", ErrRedrivenTooOften, number, redrives)
}

// AnyState in Filter.State selects dead letters of every state.
const AnyState State = "any"

// Store keeps dead letters. They never expire on their own. store/storetest tests the implementations against this
// contract.
type Store interface {
	RedriveStore
	RepairStore
	// ListDead yields dead letters, oldest first, fetched in pages. It starts after the Number after (0 for the start)
	// and yields at most limit dead letters (0 for all).
	ListDead(ctx context.Context, f Filter, after int64, limit int) iter.Seq2[Record, error]
	// ShowDead returns one dead letter. Errors: ErrNotFound.
	ShowDead(ctx context.Context, number int64) (Record, error)
	// CountDead counts the dead letters that match the filter.
	CountDead(ctx context.Context, f Filter) (int64, error)
	// RedriveDead sends up to limit open dead letters (0 means 1,000) that match the filter back to their relays or
	// consumers, oldest first, in one transaction: parked and due at once, attempts from 1 again. It returns how many it
	// sent; call it again until that is 0. Concurrent callers never redrive the same dead letter twice.
	//
	//   - A dead letter whose key is held is queued with the key's waiting messages, by sequence.
	//   - If a held key waits for a decision about the dead letter, the key continues.
	//   - A dead letter that Filter.MaxRedrives refuses is skipped.
	//   - If the filter names Numbers and one of them is not open, or is refused, nothing is done.
	//
	// Errors: ErrNotFound, ErrResolved, ErrRedrivenTooOften.
	RedriveDead(ctx context.Context, f Filter, by string, limit int) (int, error)
	// DiscardDead marks up to limit open dead letters (0 means 1,000) as discarded, in one transaction, and releases keys
	// that were held for them. Errors: ErrNotFound, ErrResolved as in RedriveDead.
	DiscardDead(ctx context.Context, f Filter, by, reason string, limit int) (int, error)
}
