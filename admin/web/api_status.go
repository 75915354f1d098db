package web

import (
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
)

// statusAnswer is an overview with durations in seconds.
type statusAnswer struct {
	Reading    int64                 `json:"reading"`
	At         time.Time             `json:"at"`
	Title      string                `json:"title"`
	Text       string                `json:"text"`
	Problems   []admin.Problem       `json:"problems"`
	Relays     []relayAnswer         `json:"relays"`
	Running    []store.Redrive       `json:"running_redrives"`
	Dead       store.Count           `json:"open_dead_letters"`
	Held       store.Count           `json:"held_keys"`
	OpenSagas  int64                 `json:"open_sagas"`
	StuckSagas int64                 `json:"stuck_sagas"`
	Unrouted   []store.UnroutedTopic `json:"unrouted"`
	Notices    []string              `json:"notices"`
}

// relayAnswer is a relay or consumer.
type relayAnswer struct {
	Name        string       `json:"name"`
	Kind        store.Kind   `json:"kind"`
	Status      admin.Word   `json:"status"`
	Topics      []string     `json:"topics"`
	Paused      *store.Pause `json:"paused,omitempty"`
	Oldest      float64      `json:"oldest_undelivered_seconds"`
	Waiting     store.Count  `json:"waiting"`
	Parked      store.Count  `json:"parked"`
	Held        store.Count  `json:"held_keys"`
	Dead        store.Count  `json:"open_dead_letters"`
	Delivered   int64        `json:"delivered"`
	Failed      int64        `json:"failed"`
	PerSecond   float64      `json:"delivered_per_second"`
	FailedShare float64      `json:"failed_share"`
	Attempts    int64        `json:"attempts"`
	Processes   int          `json:"processes"`
}

func newRelayAnswer(r admin.RelayInfo) relayAnswer {
	return relayAnswer{
		r.Name, r.Kind, r.Status, r.Topics, r.RelayStatus.Paused, r.Oldest.Seconds(), r.Waiting, r.Parked, r.Held, r.Dead, r.Delivered, r.Failed, r.PerSecond,
		r.FailedShare, r.Attempts, r.Processes,
	}
}

func newStatusAnswer(o admin.Overview) statusAnswer {
	out := statusAnswer{
		o.Reading, o.At, o.Title, o.Text, o.Problems, []relayAnswer{}, o.Running, o.Dead, o.Held, o.OpenSagas, o.StuckSagas, o.Unrouted, o.Notices,
	}
	for _, r := range o.Relays {
		out.Relays = append(out.Relays, newRelayAnswer(r))
	}
	return out
}

// relayPageAnswer is a relay or consumer with its processes and partitions.
type relayPageAnswer struct {
	relayAnswer
	Problem        *admin.Problem      `json:"problem,omitempty"`
	HeldKeys       []store.HeldInfo    `json:"held"`
	ParkedByReason []store.ParkedCount `json:"parked_by_reason"`
	Owners         []processAnswer     `json:"owners"`
	Partitions     []partitionAnswer   `json:"partitions"`
}

type processAnswer struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	Version string    `json:"version"`
	Alive   bool      `json:"alive"`
	SeenAgo float64   `json:"seen_ago_seconds"`
	Started time.Time `json:"started"`
}

type partitionAnswer struct {
	Partition  int         `json:"partition"`
	Owner      string      `json:"owner"`
	Backlog    store.Count `json:"backlog"`
	Age        float64     `json:"age_seconds"`
	SettledAgo float64     `json:"settled_ago_seconds"`
}

func newRelayPageAnswer(r admin.RelayPage) relayPageAnswer {
	out := relayPageAnswer{relayAnswer: newRelayAnswer(r.RelayInfo), Problem: r.Problem, HeldKeys: r.Held, ParkedByReason: r.Parked}
	out.Held, out.Parked = r.RelayStatus.Held, r.RelayStatus.Parked
	for _, o := range r.Owners {
		out.Owners = append(out.Owners, processAnswer{o.ID, o.Host, o.Version, o.Alive, o.SeenAgo.Seconds(), o.Started})
	}
	for _, p := range r.Partitions {
		out.Partitions = append(out.Partitions, partitionAnswer{p.Partition, p.Owner, p.Backlog, p.Age.Seconds(), p.SettledAgo.Seconds()})
	}
	return out
}
