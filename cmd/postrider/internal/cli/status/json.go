package status

import (
	"time"

	"github.com/postrider/postrider/admin"
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
	Tables     []store.TableSize     `json:"tables,omitempty"`
}

// relayJSON is the JSON form of store.RelayStatus.
type relayJSON struct {
	Name         string          `json:"name"`
	Kind         store.Kind      `json:"kind"`
	Status       admin.Word      `json:"status"`
	Paused       *store.Pause    `json:"paused,omitempty"`
	Topics       []string        `json:"topics,omitempty"`
	Backlog      store.Count     `json:"backlog"`
	Age          output.Seconds  `json:"age_seconds"`
	Parked       store.Count     `json:"parked"`
	OldestParked output.Seconds  `json:"oldest_parked_seconds"`
	Held         store.Count     `json:"held"`
	OldestHeld   output.Seconds  `json:"oldest_held_seconds"`
	Dead         store.Count     `json:"dead"`
	OldestDead   output.Seconds  `json:"oldest_dead_seconds"`
	Undelivered  output.Seconds  `json:"oldest_undelivered_seconds"`
	Delivered    int64           `json:"delivered"`
	Failed       int64           `json:"failed"`
	Destination  *destination    `json:"destination,omitempty"`
	Gate         *gate           `json:"closed_gate,omitempty"`
	Partitions   []partitionJSON `json:"partitions"`
	Owners       []Owner         `json:"owners"`
}

// destination is the JSON form of store.Destination.
type destination struct {
	State   store.DestinationState `json:"state"`
	For     output.Seconds         `json:"for_seconds"`
	Error   string                 `json:"error,omitempty"`
	NextTry output.Seconds         `json:"next_try_seconds,omitempty"`
}

// gate is the JSON form of a store.Gate that is closed.
type gate struct {
	On      string         `json:"on,omitempty"`
	For     output.Seconds `json:"for_seconds"`
	NextTry output.Seconds `json:"next_try_seconds,omitempty"`
}

func gateJSON(g store.Gate) *gate {
	if !g.Closed {
		return nil
	}
	return &gate{g.On, output.Seconds(g.For), output.Seconds(g.NextTry)}
}

func destinationJSON(d store.Destination) *destination {
	if d.State == store.DestinationUnknown {
		return nil
	}
	return &destination{d.State, output.Seconds(d.For), d.Error, output.Seconds(d.NextTry)}
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
	ID          string         `json:"id"`
	Host        string         `json:"host"`
	Version     string         `json:"version"`
	Alive       bool           `json:"alive"`
	SeenAgo     output.Seconds `json:"seen_ago_seconds"`
	Started     time.Time      `json:"started"`
	Destination *destination   `json:"destination,omitempty"`
}

func forJSON(s store.Status) statusJSON {
	out := statusJSON{s.Now, s.Partitions, make([]relayJSON, len(s.Relays)), s.Unrouted, s.Notices, s.Tables}
	for i, r := range s.Relays {
		out.Relays[i] = relayJSON{
			Name: r.Name, Kind: r.Kind, Status: admin.StatusOf(r, admin.DefaultTarget), Paused: r.Paused, Topics: r.Topics, Backlog: r.Backlog, Age: output.Seconds(r.Age),
			Parked: r.Parked, OldestParked: output.Seconds(r.OldestParked), Held: r.Held, OldestHeld: output.Seconds(r.OldestHeld),
			Undelivered: output.Seconds(r.OldestUndelivered), Destination: destinationJSON(r.DestinationOf()), Gate: gateJSON(r.GateOf()),
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
		out[i] = Owner{o.ID, o.Host, o.Version, o.Alive, output.Seconds(o.SeenAgo), o.Started, destinationJSON(o.Destination)}
	}
	return out
}
