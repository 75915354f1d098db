package inspect

import (
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Explanation says where a message, a key or a relay is. Exactly one of Message, Key and Relay is set: what was asked for.
type Explanation struct {
	// Now is the time of the explanation on the database's clock, as are all other times unless they say otherwise.
	Now     time.Time    `json:"now"`
	Message *MessageInfo `json:"message,omitempty"`
	Key     *KeyInfo     `json:"key,omitempty"`
	// Relay is the name of a relay or consumer.
	Relay string `json:"relay,omitempty"`
	// Unrouted says that the message is in the log and that no relay of the outbox takes its topic.
	Unrouted bool `json:"unrouted,omitzero"`
	// Next and Actions concern the message as a whole: it is unrouted, or no relay has run yet. Next is nil otherwise.
	Next    *Next    `json:"next,omitempty"`
	Actions []Action `json:"actions,omitempty"`
	// Places has one entry for each relay and consumer, by name; those that are known only from dead letters come last.
	Places []Place `json:"places"`
}

// Origin says how a message came into the database.
type Origin string

// The origins of a message.
const (
	OriginPublished Origin = "published" // published to the outbox
	OriginReceived  Origin = "received"  // received from a broker and parked or dead-lettered by a consumer
	OriginImported  Origin = "imported"  // imported as a dead letter of another outbox
)

// MessageInfo describes the message that is explained.
type MessageInfo struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Topic string `json:"topic"`
	Key   string `json:"key,omitempty"`
	// Partition is that of the key, or of the ID if there is no key.
	Partition int `json:"partition"`
	// Sequence is the message's place in the log; 0 if it was never in the log.
	Sequence int64  `json:"sequence,string,omitzero"`
	Origin   Origin `json:"origin"`
	// InLog says whether the message is still in the log.
	InLog bool `json:"in_log"`
	// StoredAt is when the message was published, or first parked or dead-lettered by the consumer. AgeSeconds is the time
	// since then.
	StoredAt   time.Time `json:"stored_at,omitzero"`
	AgeSeconds float64   `json:"age_seconds,omitzero"`
	// Consumer is the one that received the message; ImportedAs is the number of the dead letter that was imported.
	Consumer   string `json:"consumer,omitempty"`
	ImportedAs int64  `json:"imported_as,omitzero"`
}

// KeyInfo describes the key that is explained.
type KeyInfo struct {
	Key       string `json:"key"`
	Partition int    `json:"partition"`
}

// Place says where a message or key is for one relay or consumer, or how that relay or consumer is doing.
type Place struct {
	Name  string     `json:"name"`
	Kind  store.Kind `json:"kind"`
	State State      `json:"state"`
	// Since is when the state began, where the store records it: when the message was published, parked, dead-lettered or
	// discarded, or when the key was held.
	Since time.Time `json:"since,omitzero"`
	// Reason and Cause say why the message is parked, or was dead-lettered. Attempts counts the attempts so far.
	Reason   string `json:"reason,omitempty"`
	Cause    string `json:"cause,omitempty"`
	Attempts int    `json:"attempts,omitzero"`
	// Passed says when the relay's cursor passed a message that is delivered or skipped.
	Passed *Passed `json:"passed,omitempty"`
	// Ahead counts the messages that precede a waiting or queued message.
	Ahead *Ahead `json:"messages_ahead,omitempty"`
	// Owner is the process that holds the lease of the partition (store.Owner.ID); empty if none does.
	Owner string `json:"owner,omitempty"`
	// Topics are the patterns of the topics that the relay takes. Message sets them if the message's topic is not among them.
	Topics []string `json:"topics,omitempty"`
	// Paused is the pause of the relay or consumer in effect, nil if there is none.
	Paused *store.Pause `json:"paused,omitempty"`
	// Down says since when the relay's destination does not answer, and why; nil if it answers, or if that is not known.
	Down *Outage `json:"down,omitempty"`
	// Next says what happens next without anybody's help, Actions what an operator can do.
	Next    Next     `json:"next"`
	Actions []Action `json:"actions,omitempty"`

	// HeldKey is set if the message, or the key, belongs to a held key.
	HeldKey *HeldKey `json:"held_key,omitempty"`
	// DeadLetter is the dead letter of a message that is dead or discarded.
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
	// Redrives says how the message was dead-lettered, edited and redriven before, oldest first.
	Redrives []Event `json:"redrives,omitempty"`
	// History has the last attempts that failed, oldest first; at most 20.
	History []postrider.AttemptInfo `json:"history,omitempty"`
	// Recorded has the attempts that were recorded with their answers, oldest first: those of webhooks, the successful ones
	// too. At most 50.
	Recorded []Attempt `json:"recorded_attempts,omitempty"`
	// Load counts what there is to do. Key and Relay set it.
	Load *Load `json:"load,omitempty"`
}

// Outage is a destination that does not answer, as the relay's processes last reported it.
type Outage struct {
	Since time.Time `json:"since"`
	// Cause is the error of the last call; NextTry is when the relay tries the destination again.
	Cause   string    `json:"cause"`
	NextTry time.Time `json:"next_try"`
}

// Ahead is a number of messages. It is exact unless AtLeast or AtMost is set.
type Ahead struct {
	N int64 `json:"n"`
	// AtLeast: there are more than were counted. AtMost: some of them may have been delivered already.
	AtLeast bool `json:"at_least,omitzero"`
	AtMost  bool `json:"at_most,omitzero"`
}

// Passed says when a cursor passed a message. A relay keeps no row for a delivered message: each of its processes notes once a
// minute how far it came, less often if the log keeps messages for longer than a day. The message was delivered in this time,
// unless it was skipped. If it was parked at first, or its transaction was committed later, it was delivered after this time.
type Passed struct {
	// After and Before bound the time.
	After  time.Time `json:"after"`
	Before time.Time `json:"before"`
	// By is the process (store.Owner.ID), empty if it has not noted it yet, or ended before it could.
	By string `json:"by,omitempty"`
}

// HeldKey describes a held key.
type HeldKey struct {
	Key string `json:"key"`
	// Since is when the key was held.
	Since time.Time `json:"since"`
	// Reason, Cause and Attempts are those of the blocking message.
	Reason   string `json:"reason"`
	Cause    string `json:"cause,omitempty"`
	Attempts int    `json:"attempts"`
	// NextAttempt is when the blocking message is tried again. If it is missing, the blocking message is a dead letter and
	// the key waits until somebody decides about it.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// Parked counts the parked messages of the key, with the blocking message; up to 10,000.
	Parked int `json:"parked_messages"`
}

// DeadLetter describes a dead letter.
type DeadLetter struct {
	Number int64     `json:"number"`
	DiedAt time.Time `json:"died_at"`
	// Edits counts the edits of payload or headers.
	Edits int `json:"edits,omitzero"`
	// HoldsKey says that the key of the message is held until somebody decides about the dead letter.
	HoldsKey bool `json:"holds_key,omitzero"`
	// ResolvedAt, ResolvedBy and Resolution say when, by whom and why it was discarded.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	Resolution string    `json:"resolution,omitempty"`
}

// EventKind says what happened to a message that was redriven.
type EventKind string

// The kinds of events.
const (
	EventDied     EventKind = "died"     // it was dead-lettered: with Reason, Cause and Attempts
	EventEdited   EventKind = "edited"   // payload or headers were edited: with By and Why
	EventRedriven EventKind = "redriven" // it was sent back: with By and, if a redrive did it, its ID in Redrive
)

// Event is something that happened to a message before it was redriven.
type Event struct {
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// DeadLetter is the number of the dead letter.
	DeadLetter int64  `json:"dead_letter"`
	Reason     string `json:"reason,omitempty"`
	Cause      string `json:"cause,omitempty"`
	Attempts   int    `json:"attempts,omitzero"`
	By         string `json:"by,omitempty"`
	Why        string `json:"why,omitempty"`
	Redrive    int64  `json:"redrive,omitzero"`
}

// Attempt is a recorded attempt; see postrider.DeliveryAttempt.
type Attempt struct {
	// Attempt counts from 1, and from 1 again after a redrive.
	Attempt int `json:"attempt"`
	// At is when the attempt began, on the sender's clock.
	At          time.Time `json:"at"`
	TookSeconds float64   `json:"took_seconds"`
	Outcome     string    `json:"outcome"`
	// Status is the status code of the answer, e.g. 503; 0 if there was none.
	Status int `json:"status,omitzero"`
	// Answer is the beginning of the answer, up to 512 bytes, if it is UTF-8; AnswerBytes is it otherwise, in base64.
	Answer      string `json:"answer,omitempty"`
	AnswerBytes []byte `json:"answer_base64,omitempty"`
	Error       string `json:"error,omitempty"`
	// RequestSHA256 is the SHA-256 sum of the request, in hexadecimal digits.
	RequestSHA256 string `json:"request_sha256,omitempty"`
}

// Load counts what a relay or consumer has to do; with Key, in the partition of the key.
type Load struct {
	// Backlog counts the undelivered messages that are not parked; BacklogAgeSeconds is how long the oldest of them has
	// waited. A consumer has none: it reads a broker.
	Backlog           store.Count `json:"backlog"`
	BacklogAgeSeconds float64     `json:"backlog_age_seconds"`
	// Dead counts the open dead letters, for Key those of the key.
	Dead store.Count `json:"open_dead_letters"`
	// Parked and Held count parked messages and held keys, and Processes the processes that are alive. Only Relay sets them.
	Parked              store.Count `json:"parked_messages,omitzero"`
	OldestParkedSeconds float64     `json:"oldest_parked_seconds,omitzero"`
	Held                store.Count `json:"held_keys,omitzero"`
	Processes           int         `json:"processes,omitzero"`
}
