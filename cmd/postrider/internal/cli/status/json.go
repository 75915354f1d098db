package status

import (
	"time"

	"github.com/postrider/postrider/relay"
)

// statusJSON is relay.Status with lower-case field names for owners, and empty lists instead of null.
type statusJSON struct {
	relay.Status
	Relays []relayJSON `json:"relays"`
}

type relayJSON struct {
	relay.RelayStatus
	Owners []Owner `json:"owners"`
}

// Owner is relay.OwnerStatus.
type Owner struct {
	ID      string        `json:"id"`
	Host    string        `json:"host"`
	Version string        `json:"version"`
	Alive   bool          `json:"alive"`
	SeenAgo time.Duration `json:"seen_ago"`
	Started time.Time     `json:"started"`
}

func forJSON(s relay.Status) statusJSON {
	out := statusJSON{s, make([]relayJSON, len(s.Relays))}
	for i, r := range s.Relays {
		out.Relays[i] = relayJSON{r, Owners(r.Owners)}
	}
	return out
}

// Owners returns the JSON form of processes.
func Owners(owners []relay.OwnerStatus) []Owner {
	out := make([]Owner, len(owners))
	for i, o := range owners {
		out[i] = Owner{o.ID, o.Host, o.Version, o.Alive, o.SeenAgo, o.Started}
	}
	return out
}
