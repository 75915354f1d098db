package relay

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/postrider/postrider"
)

// ErrNotHeld is returned by operations on a key that is not held.
var ErrNotHeld = errors.New("key is not held")

// HeldStore shows held keys to operators and takes their decisions. Decisions take effect through whichever process
// holds the key's partition, also when none is running yet.
type HeldStore interface {
	// ListHeld yields the held keys of a relay ("" for all relays), longest held first.
	ListHeld(ctx context.Context, relay string) iter.Seq2[HeldInfo, error]
	// ShowHeld returns a held key with its parked messages in order, at most limit of them. Errors: ErrNotHeld.
	ShowHeld(ctx context.Context, relay, key string, limit int) (HeldInfo, []ParkedInfo, error)
	// RetryHeld makes the key due at once. Errors: ErrNotHeld.
	RetryHeld(ctx context.Context, relay, key string) error
	// SkipHeld gives up the head and lets the followers go: the head is recorded in the dead letters as discarded by the
	// operator, with the reason. Errors: ErrNotHeld.
	SkipHeld(ctx context.Context, relay, key, by, reason string) error
	// DeadHeld sends the head, or with all every parked message of the key, to the dead letters and lets the rest go. It
	// returns how many went there. Errors: ErrNotHeld.
	DeadHeld(ctx context.Context, relay, key, by, reason string, all bool) (int, error)
}

// HeldInfo describes a held key.
type HeldInfo struct {
	Relay     string `json:"relay"`
	Partition int    `json:"partition"`
	Key       string `json:"key"`
	// Sequence is that of the head.
	Sequence int64      `json:"sequence"`
	Reason   ParkReason `json:"reason"`
	Cause    string     `json:"cause"`
	Attempts int        `json:"attempts"`
	Since    time.Time  `json:"since"`
	// NextAttempt is zero when the key waits for an operator.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// Parked is the number of parked messages of the key, head included; counted up to 10,000.
	Parked int `json:"parked"`
}

// ParkedInfo describes a parked message.
type ParkedInfo struct {
	Message  *postrider.Message `json:"message"`
	Reason   ParkReason         `json:"reason"`
	Attempts int                `json:"attempts"`
	ParkedAt time.Time          `json:"parked_at"`
	// DueAt is zero for a message that waits behind its key.
	DueAt   time.Time               `json:"due_at,omitzero"`
	History []postrider.AttemptInfo `json:"history"`
}

// StatusStore tells how a relay is doing.
type StatusStore interface {
	// Status describes every relay that the store knows. Its cost does not grow with the backlog: counts are exact up to
	// CountLimit and say so beyond.
	Status(ctx context.Context) (Status, error)
}

// CountLimit is up to where Status counts exactly.
const CountLimit = 10_000

// Status is the state of an outbox and its relays, as of Now on the database's clock.
type Status struct {
	Now        time.Time     `json:"now"`
	Partitions int           `json:"partitions"`
	Relays     []RelayStatus `json:"relays"`
	// Notices are what an operator should know beyond the numbers, in words, e.g. that the database was restored.
	Notices []string `json:"notices,omitempty"`
}

// RelayStatus is the state of one relay.
type RelayStatus struct {
	Name string `json:"name"`
	// Backlog counts the committed messages that are not settled yet, parked ones aside. Age is how long the oldest of
	// them has waited, 0 without backlog.
	Backlog Count         `json:"backlog"`
	Age     time.Duration `json:"age"`
	// Parked, Held and Dead count parked messages, held keys and open dead letters. OldestParked and OldestDead are ages.
	Parked       Count             `json:"parked"`
	OldestParked time.Duration     `json:"oldest_parked"`
	Held         Count             `json:"held"`
	Dead         Count             `json:"dead"`
	OldestDead   time.Duration     `json:"oldest_dead"`
	Delivered    int64             `json:"delivered"`
	Failed       int64             `json:"failed"`
	Partitions   []PartitionStatus `json:"partitions"`
	Owners       []OwnerStatus     `json:"owners"`
}

// Count is a number that is exact up to CountLimit; AtLeast says that there are more.
type Count struct {
	N       int64 `json:"n"`
	AtLeast bool  `json:"at_least,omitempty"`
}

// PartitionStatus is the state of one partition of a relay.
type PartitionStatus struct {
	Partition int `json:"partition"`
	// Owner is the holder's Owner.ID, "" when nobody holds it.
	Owner      string        `json:"owner"`
	Epoch      int64         `json:"epoch"`
	LeaseLeft  time.Duration `json:"lease_left"`
	Position   int64         `json:"position"`
	Backlog    Count         `json:"backlog"`
	Age        time.Duration `json:"age"`
	SettledAgo time.Duration `json:"settled_ago"`
}

// OwnerStatus is one process of a relay.
type OwnerStatus struct {
	Owner
	Alive bool `json:"alive"`
	// SeenAgo is the time since its last heartbeat, Started when it began.
	SeenAgo time.Duration `json:"seen_ago"`
	Started time.Time     `json:"started"`
}
