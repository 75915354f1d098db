package store

import (
	"context"
)

// HeldQuery selects held keys of a relay, in the order of since when they are held, and key.
type HeldQuery struct {
	Relay string
	// After is the last held key of the page before; nil for the first page.
	After *HeldInfo
	Limit int
}

// ParkedQuery selects parked messages of a relay that wait by themselves, in the order of due time, partition and sequence.
type ParkedQuery struct {
	Relay string
	// After is the last message of the page before; nil for the first page.
	After *ParkedInfo
	Limit int
}

// HeldReader reads held keys, parked messages and decisions.
type HeldReader interface { //nolint:interfacebloat // one transaction of a store: a method for each of its statements
	// NextRelay returns the name, after a given one in the order of names, of the first relay or consumer that has held keys or
	// parked messages; "" if there is none.
	NextRelay(ctx context.Context, after string) (string, error)
	// HeldKeys returns a page of held keys.
	HeldKeys(ctx context.Context, q HeldQuery) ([]HeldInfo, error)
	// HeldKey returns one held key. Errors: ErrNotHeld.
	HeldKey(ctx context.Context, relay, key string) (HeldInfo, error)
	// Queued returns the parked messages of a held key in order of sequence, at most limit of them.
	Queued(ctx context.Context, relay, key string, limit int) ([]ParkedInfo, error)
	// Parked returns a page of the parked messages that wait by themselves.
	Parked(ctx context.Context, q ParkedQuery) ([]ParkedInfo, error)
	// ParkedByID returns a relay's parked messages with an ID, queued or not, in order of sequence. In a
	// transaction they may come without headers and payload.
	ParkedByID(ctx context.Context, relay, messageID string) ([]ParkedInfo, error)
	// CountParked counts the parked messages that wait by themselves, by relay and reason; "" counts those of all relays.
	CountParked(ctx context.Context, relay string) ([]ParkedCount, error)
	// Decision returns a decision. Errors: ErrNoDecision.
	Decision(ctx context.Context, id string) (Decision, error)
	// CountKept counts what RemoveRelay leaves of a relay or consumer.
	CountKept(ctx context.Context, relay string) (KeptRecords, error)
}

// HeldWriter changes held keys, parked messages and decisions in one transaction.
type HeldWriter interface { //nolint:interfacebloat // one transaction of a store: a method for each of its statements
	HeldReader
	// CheckLease checks a lease, and makes sure that nobody else acquires it until the transaction ends. Errors:
	// ErrLeaseLost.
	CheckLease(ctx context.Context, relay string, lease LeaseRef) error

	// AddDecision stores an open decision, unless one with its ID exists.
	AddDecision(ctx context.Context, d Decision) error
	// LockDecision is Decision, and makes further calls for the same decision wait until the transaction ends.
	LockDecision(ctx context.Context, id string) (Decision, error)
	// EndDecision stores State, Outcome and Count of a decision, and that it is done.
	EndDecision(ctx context.Context, d Decision) error

	// LockHeld returns a held key. Until the transaction ends, nobody parks a message of the key, or releases it. Unless the key
	// waits for a decision about a dead letter, its first queued message becomes the blocking message. Errors: ErrNotHeld.
	LockHeld(ctx context.Context, relay, key string) (HeldInfo, error)
	// ResumeHeld makes a locked held key due at once, with its first queued message, if there is one, as the blocking message. It
	// does not release the key: only the process that holds the partition knows which messages it has in memory.
	ResumeHeld(ctx context.Context, h HeldInfo) error

	// RetryParked makes parked messages due at once, and returns how many.
	RetryParked(ctx context.Context, c ParkedChoice) (int, error)
	// DeadLetterParked moves parked messages to the dead letters, in order of sequence, and returns how many.
	DeadLetterParked(ctx context.Context, c ParkedChoice, d MovedToDead) (int, error)
	// DiscardOpen discards the open dead letters, and returns how many.
	DiscardOpen(ctx context.Context, c ParkedChoice, by, resolution string) (int, error)

	// LockRelay keeps processes of a relay, and decisions about it, out until the transaction ends. known says whether the
	// relay has ever registered; left whether it has parked messages, held keys or open dead letters. Errors: ErrAlive, with the
	// name of the process, if a process of the relay is alive.
	LockRelay(ctx context.Context, relay string) (known, left bool, err error)
	// RemoveRelay removes everything about a locked relay except its dead letters. It has no parked messages.
	RemoveRelay(ctx context.Context, relay string) error
	// RemoveKept removes what RemoveRelay leaves, up to limit rows of each table, and returns how many rows; 0 if none are left. No
	// relay or consumer can register under this name meanwhile. Errors: ErrRegistered.
	RemoveKept(ctx context.Context, relay string, limit int) (int, error)
}

// KeptRecords counts what is kept about a relay or consumer when it is removed: it tells a successor of the same name what was processed.
type KeptRecords struct {
	// DeadLetters are those in any state.
	DeadLetters int64 `json:"dead_letters"`
	// Attempts are those on record (postrider.AttemptLog).
	Attempts int64 `json:"attempts"`
	// Processed are the IDs of messages that a consumer has processed, and the versions of its keys. Positions are those in the logs and
	// partitions of brokers.
	Processed int64 `json:"processed"`
	Positions int64 `json:"positions"`
}

// Total is the sum.
func (k KeptRecords) Total() int64 { return k.DeadLetters + k.Attempts + k.Processed + k.Positions }

// ParkedChoice selects parked messages or dead letters of a relay. The first rule that fits applies:
//
//	All      | everything of the relay
//	Key      | the messages that are queued for this held key in Partition; with Sequence, only that one
//	Sequence | the message with this sequence in Partition; a parked one only if it waits by itself
type ParkedChoice struct {
	Relay     string
	Partition int
	Key       string
	Sequence  int64
	All       bool
}

// MovedToDead says what becomes of parked messages that are moved to the dead letters.
type MovedToDead struct {
	Reason, Cause string
	// Entry is added to the history of each message; "" adds nothing.
	Entry string
	// State is DeadOpen, or DeadDiscarded with who discarded them and why.
	State          DeadState
	By, Resolution string
}
