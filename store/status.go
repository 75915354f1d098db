package store

import (
	"context"
	"slices"
	"time"
)

// StatusReader reports the status of relays and consumers.
type StatusReader interface {
	// Status describes every relay that the store knows. Its cost does not grow with the backlog: counts are exact up to
	// CountLimit and marked beyond it.
	Status(ctx context.Context) (Status, error)
	// Consumers describes what every consumer that the store knows has consumed, by name; the rest of their status is in Status.
	// Its cost does not grow with the number of kept IDs.
	Consumers(ctx context.Context) ([]ConsumerStatus, error)
}

// Status is the state of an outbox and its relays, as of Now on the database's clock.
type Status struct {
	Now        time.Time     `json:"now"`
	Partitions int           `json:"partitions"`
	Relays     []RelayStatus `json:"relays"`
	// Unrouted are the topics of messages that every relay skipped, most messages first, up to MaxUnroutedTopics topics. A
	// count is removed a week after the last message of its topic.
	Unrouted []UnroutedTopic `json:"unrouted,omitempty"`
	// Notices are, in words, what an operator should know beyond the numbers, e.g. that the database was restored.
	Notices []string `json:"notices,omitempty"`
	// Tables are the sizes of the outbox's tables, largest first, as the database reports them without reading the tables. The
	// memory store reports none.
	Tables []TableSize `json:"tables,omitempty"`
}

// TableSize is the space that a table and its indexes take in the database. MySQL may report that of up to a day ago.
type TableSize struct {
	// Table is the name without prefix; "log" includes all segments. SQLite has one entry: TableFile.
	Table string `json:"table"`
	Bytes int64  `json:"bytes"`
}

// TableFile stands for the whole file of a database that does not know the sizes of its tables.
const TableFile = "file"

// Unmatched reports whether a relay has passed messages of the log and none had a topic that it takes, as far as is known.
func (r *RelayStatus) Unmatched() bool {
	if r.Kind != KindRelay || slices.Contains(r.Topics, "*") || r.Delivered+r.Failed+r.Backlog.N+r.Parked.N+r.Held.N+r.Dead.N > 0 {
		return false
	}
	return slices.ContainsFunc(r.Partitions, func(p PartitionStatus) bool { return p.Settlements > 0 })
}

// HasRelay reports whether a relay, other than a consumer's, is known.
func (s *Status) HasRelay() bool {
	return slices.ContainsFunc(s.Relays, func(r RelayStatus) bool { return r.Kind == KindRelay })
}

// NobodyTakes reports whether no relay takes messages of a topic, by the filters in effect.
func (s *Status) NobodyTakes(topic string) bool {
	for i := range s.Relays {
		if MatchTopics(s.Relays[i].Topics, topic) {
			return false
		}
	}
	return true
}

// RelayStatus is the state of one relay.
type RelayStatus struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Topics are the patterns of the filter in effect, "*" for all topics; none for a consumer.
	Topics []string `json:"topics,omitempty"`
	// Backlog counts the committed messages that are not settled yet, without parked ones. Age is how long the oldest of them
	// has waited, 0 without a backlog.
	Backlog Count         `json:"backlog"`
	Age     time.Duration `json:"age"`
	// Parked, Held and Dead count parked messages, held keys and open dead letters. OldestParked, OldestHeld and OldestDead are
	// ages.
	Parked       Count         `json:"parked"`
	OldestParked time.Duration `json:"oldest_parked"`
	Held         Count         `json:"held"`
	OldestHeld   time.Duration `json:"oldest_held"`
	Dead         Count         `json:"dead"`
	OldestDead   time.Duration `json:"oldest_dead"`
	// OldestUndelivered is how long the oldest message has waited that should have been delivered: of the backlog since it was
	// written, of the parked messages since they were parked, without those whose delivery time has not come. If more than
	// CountLimit messages are parked, PostgreSQL looks at as many of them, and at all held keys.
	OldestUndelivered time.Duration `json:"oldest_undelivered"`
	Delivered         int64         `json:"delivered"`
	Failed            int64         `json:"failed"`
	// Paused is the pause in effect, nil if there is none.
	Paused     *Pause            `json:"paused,omitempty"`
	Partitions []PartitionStatus `json:"partitions"`
	Owners     []OwnerStatus     `json:"owners"`
}

// Pause is an operator's decision that a relay or consumer starts nothing for a while; see package pause.
type Pause struct {
	Relay string `json:"relay"`
	// By is who paused it, and Reason why. At is when, on the database's clock.
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"`
	// Until is when it ends by itself, zero for never.
	Until time.Time `json:"until,omitzero"`
}

// PartitionStatus is the state of one partition of a relay.
type PartitionStatus struct {
	Partition int `json:"partition"`
	// Owner is the holder's Owner.ID, "" when nobody holds it.
	Owner string `json:"owner"`
	// Settlements is the number of the last settlement that was applied.
	Settlements int64         `json:"settlements"`
	LeaseLeft   time.Duration `json:"lease_left"`
	// Position is that of the cursor, 0 for a consumer.
	Position int64 `json:"position"`
	// Backlog is exact if that of the relay is. Otherwise the partitions share the limit up to which the messages of the relay are counted.
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

// DestinationOf returns the state of a relay's destination: it is down if every process that is alive and knows says so. Error
// and NextTry are those of the process whose next probe is first.
func (r *RelayStatus) DestinationOf() (out Destination) {
	for i := range r.Owners {
		o := &r.Owners[i]
		d := o.Destination
		switch {
		case !o.Alive || d.State == DestinationUnknown:
		case out.State == DestinationUnknown, out.State == DestinationDown && d.State == DestinationUp:
			out = d
		case out.State != d.State:
		case d.State == DestinationUp:
			out.For = max(out.For, d.For)
		default: // it is down for as long as the one that found it last
			out.For = min(out.For, d.For)
			if d.NextTry < out.NextTry {
				out.NextTry, out.Error = d.NextTry, d.Error
			}
		}
	}
	return out
}

// GateOf returns the state of a relay's gate: it is closed if it is closed in every process that is alive, since it closed in
// the last of them.
func (r *RelayStatus) GateOf() (out Gate) {
	for i := range r.Owners {
		o := &r.Owners[i]
		switch {
		case !o.Alive:
		case !o.Gate.Closed:
			return Gate{}
		case !out.Closed || o.Gate.For < out.For:
			out = o.Gate
		}
	}
	return out
}

// Count is a number that is exact up to CountLimit; AtLeast says that there are more.
type Count struct {
	N       int64 `json:"n"`
	AtLeast bool  `json:"at_least,omitempty"`
}

// CountLimit is the limit up to which Status counts exactly.
const CountLimit = 10_000

// UnroutedTopic counts the messages of a topic that no relay took. Topic "" collects those of topics beyond the limit.
type UnroutedTopic struct {
	Topic   string    `json:"topic"`
	Count   int64     `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// UnroutedKept is how long an UnroutedTopic is kept after its last message.
const UnroutedKept = 7 * 24 * time.Hour

// ConsumerStatus describes what a consumer has consumed.
type ConsumerStatus struct {
	Name string `json:"name"`
	// Remembered counts the kept IDs of consumed messages; Oldest is the age of the oldest. Messages that the source can
	// redeliver for longer than IDs are kept may be processed twice.
	Remembered Count         `json:"remembered"`
	Oldest     time.Duration `json:"oldest"`
	// Watermarks lists the progress in the partitions of ordered sources, by partition and log incarnation.
	Watermarks []WatermarkStatus `json:"watermarks,omitempty"`
	// Positions lists the positions in the logs that the consumer reads without a group, by partition.
	Positions []LogPosition `json:"positions,omitempty"`
}

// WatermarkStatus is the progress in the log of a source's partition.
type WatermarkStatus struct {
	Partition   string `json:"partition"`
	Incarnation string `json:"incarnation"`
	Offset      int64  `json:"offset"`
	// Moved is how long ago the watermark last moved. If the source has more messages and the watermark does not move,
	// the consumer is stopped or stuck.
	Moved time.Duration `json:"moved"`
}
