package store

import (
	"errors"
	"time"

	"github.com/postrider/postrider"
)

// DeadLetter is one dead letter.
type DeadLetter struct {
	// Number identifies the dead letter; a message that is dead-lettered again gets a new one.
	Number int64 `json:"number"`
	// Relay is the name of the relay or consumer, Side which of them it is. A name unknown to the outbox, because it
	// was removed or the dead letter comes from another outbox, counts as a relay's.
	Relay     string `json:"relay"`
	Side      Kind   `json:"side"`
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
	Redrives int       `json:"redrives"`
	State    DeadState `json:"state"`
	// Edits counts edits of payload or headers; deadletter.Store.ListEdits shows the content before each.
	Edits int `json:"edits,omitempty"`
	// Redrive is the ID of the redrive that sent it back; 0 for none.
	Redrive int64 `json:"redrive,omitempty"`
	// ResolvedAt, ResolvedBy and Resolution say when, by whom and why it was redriven or discarded.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	Resolution string    `json:"resolution,omitempty"`
}

// DeadState is the state of a dead letter.
type DeadState string

// The states of a dead letter.
const (
	DeadOpen      DeadState = "open"      // someone has to decide
	DeadRedriven  DeadState = "redriven"  // sent back to its relay or consumer
	DeadDiscarded DeadState = "discarded" // dropped, with a reason
)

// DeadFilter selects dead letters; zero fields match all.
type DeadFilter struct {
	Numbers []int64 `json:"numbers,omitempty"`
	// Relay is the name of a relay or consumer; Side selects one side.
	Relay  string `json:"relay,omitempty"`
	Side   Kind   `json:"side,omitempty"`
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
	// State selects one state; "" means DeadOpen. For any state: DeadAny.
	State DeadState `json:"state,omitempty"`

	// MaxRedrives does not select dead letters but limits redrives: messages that have been redriven this often are
	// refused. 0 means deadletter.DefaultMaxRedrives; for no limit: deadletter.Unbounded.
	MaxRedrives int `json:"max_redrives,omitempty"`
}

// DeadAny in DeadFilter.State selects dead letters of every state.
const DeadAny DeadState = "any"

// Edit changes the message of an open dead letter before it is redriven.
type Edit struct {
	// Payload is the new payload, unless nil.
	Payload []byte
	// Headers replaces all headers, unless nil.
	Headers map[string]string
	// Seen is DeadLetter.Edits as the editor read it, so that concurrent edits do not overwrite each other.
	Seen int
	// By and Why stay on record.
	By, Why string
}

// Apply returns the edited message. Errors: *postrider.ValidationError.
func (e Edit) Apply(m *postrider.Message) (*postrider.Message, error) {
	if e.Payload == nil && e.Headers == nil {
		return nil, errors.New("the edit changes neither payload nor headers")
	}
	// Only the edited fields must follow the rules: a message that could not be read may lack other attributes.
	check := &postrider.Message{Type: "edited", Headers: e.Headers, Payload: e.Payload}
	check.FillDefaults("edited", time.Unix(0, 0))
	limits := postrider.Limits{MaxPayload: max(postrider.DefaultMaxPayload, len(m.Payload))}
	if err := check.Validate(limits); err != nil {
		return nil, err
	}
	edited := *m
	if e.Payload != nil {
		edited.Payload = e.Payload
	}
	if e.Headers != nil {
		edited.Headers = e.Headers
	}
	return &edited, nil
}

// Edited is an edit on record, with payload and headers as they were before it: those of the first edit are the original.
type Edited struct {
	At      time.Time         `json:"at"`
	By      string            `json:"by"`
	Why     string            `json:"why"`
	Payload []byte            `json:"payload_before"`
	Headers map[string]string `json:"headers_before,omitempty"`
}

// CauseCount counts dead letters of one relay or consumer, type and cause.
type CauseCount struct {
	Relay       string `json:"relay"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`
	DeadLetters int64  `json:"dead_letters"`
	// AtLeast: not all dead letters were counted, see FoundCauses. Older ones may be of this cause too.
	AtLeast bool `json:"at_least,omitempty"`
	// Oldest and Newest are when the first and the last of them were dead-lettered; Reason and Cause are those of the one
	// with the highest number, Number.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
	Number int64     `json:"number"`
	Reason string    `json:"reason"`
	Cause  string    `json:"cause"`
}

// Count is the number of dead letters.
func (c CauseCount) Count() Count { return Count{c.DeadLetters, c.AtLeast} }

// ArchivedDead is a dead letter with all its data, for export and import.
type ArchivedDead struct {
	DeadLetter
	Before []Edited `json:"edited,omitempty"`
}

// ImportedSequence is the sequence of an imported dead letter's message: lower than those of any log, and rising with
// number.
func ImportedSequence(number int64) int64 { return number - 1<<62 }
