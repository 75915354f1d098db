package status

import (
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/store"
)

// statusJSON is the JSON form of store.Status: durations in seconds, and empty lists instead of null.
type statusJSON struct {
	Now        time.Time             `json:"now"`
	Partitions int                   `json:"partitions"`
	Relays     []relayJSON           `json:"relays"`
	Unrouted   []store.UnroutedTopic `json:"unrouted,omitempty"`
	Notices    []string              `json:"notices,omitempty"`
}

// relayJSON is the JSON form of store.RelayStatus.
type relayJSON struct {
	Name         string          `json:"name"`
	Kind         store.Kind      `json:"kind"`
	Topics       []string        `json:"topics,omitempty"`
	Backlog      store.Count     `json:"backlog"`
	Age          output.Seconds  `json:"age_seconds"`
	Parked       store.Count     `json:"parked"`
	OldestParked output.Seconds  `json:"oldest_parked_seconds"`
	Held         store.Count     `json:"held"`
	Dead         store.Count     `json:"dead"`
	OldestDead   output.Seconds  `json:"oldest_dead_seconds"`
	Delivered    int64           `json:"delivered"`
	Failed       int64           `json:"failed"`
	Partitions   []partitionJSON `json:"partitions"`
	Owners       []Owner         `json:"owners"`
}

// partitionJSON is the JSON form of store.PartitionStatus.
type partitionJSON struct {
	Partition   int            `json:"partition"`
	Owner       string         `json:"owner"`
	Settlements int64          `json:"settlements"`
	LeaseLeft   output.Seconds `json:"lease_left_seconds"`
	Position    int64          `json:"position"`
	Backlog     store.Count    `json:"backlog"`
	Age         output.Seconds `json:"age_seconds"`
	SettledAgo  output.Seconds `json:"settled_ago_seconds"`
}

// Owner is the JSON form of store.OwnerStatus.
type Owner struct {
	ID      string         `json:"id"`
	Host    string         `json:"host"`
	Version string         `json:"version"`
	Alive   bool           `json:"alive"`
	SeenAgo output.Seconds `json:"seen_ago_seconds"`
	Started time.Time      `json:"started"`
}

func forJSON(s store.Status) statusJSON {
	out := statusJSON{s.Now, s.Partitions, make([]relayJSON, len(s.Relays)), s.Unrouted, s.Notices}
	for i, r := range s.Relays {
		out.Relays[i] = relayJSON{
			Name: r.Name, Kind: r.Kind, Topics: r.Topics, Backlog: r.Backlog, Age: output.Seconds(r.Age),
			Parked: r.Parked, OldestParked: output.Seconds(r.OldestParked), Held: r.Held,
			Dead: r.Dead, OldestDead: output.Seconds(r.OldestDead), Delivered: r.Delivered, Failed: r.Failed,
			Partitions: make([]partitionJSON, len(r.Partitions)), Owners: Owners(r.Owners),
		}
		for n, q := range r.Partitions {
			out.Relays[i].Partitions[n] = partitionJSON{
				q.Partition, q.Owner, q.Settlements, output.Seconds(q.LeaseLeft), q.Position, q.Backlog,
				output.Seconds(q.Age), output.Seconds(q.SettledAgo),
			}
		}
	}
	return out
}

// Owners returns the JSON form of processes.
func Owners(owners []store.OwnerStatus) []Owner {
	out := make([]Owner, len(owners))
	for i, o := range owners {
		out[i] = Owner{o.ID, o.Host, o.Version, o.Alive, output.Seconds(o.SeenAgo), o.Started}
	}
	return out
}
