package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// filterRow is a filter that processes of a relay have registered. Its generation is its 1-based index among the relay's filters.
type filterRow struct {
	topics     []string
	registered time.Time // most recently
}

// generation returns the highest generation among the processes whose filters count, 0 if there is none.
func (r *relayState) generation(at time.Time) int {
	highest := 0
	for _, o := range r.owners {
		if at.Sub(o.aliveUntil) < store.FilterKept {
			highest = max(highest, o.generation)
		}
	}
	return highest
}

// topics returns the topics of the filter in effect, nil if none was ever registered.
func (r *relayState) topics(at time.Time) []string {
	if g := r.generation(at); g > 0 {
		return r.filters[g-1].topics
	}
	var last filterRow
	for _, f := range r.filters {
		if !f.registered.Before(last.registered) {
			last = f
		}
	}
	return last.topics
}

// register records that a process is alive, with its filter. If the filter takes effect, the leases of all other processes end.
func (r *relayState) register(owner store.Owner, at time.Time, ttl time.Duration) *ownerState {
	before := r.generation(at)
	o := r.owner(owner, at, ttl)
	g := 0
	if len(owner.Topics) > 0 {
		g = 1 + slices.IndexFunc(r.filters, func(f filterRow) bool { return slices.Equal(f.topics, owner.Topics) })
		if g == 0 {
			r.filters = append(r.filters, filterRow{topics: slices.Clone(owner.Topics)})
			g = len(r.filters)
		}
	}
	if g != o.generation && g > 0 {
		r.filters[g-1].registered = at
	}
	if o.generation = g; r.generation(at) > before {
		for _, c := range r.cursors {
			if c != nil && c.owner != owner.ID {
				c.token = ""
			}
		}
	}
	return o
}

// filter returns the filter of a relay.
func (db *database) filter(name string, at time.Time) store.TopicFilter {
	return store.TopicFilterOf(name, db.filters(at))
}

// filters returns the topics of the filters in effect, by relay.
func (db *database) filters(at time.Time) map[string][]string {
	inEffect := make(map[string][]string)
	for other, r := range db.relays {
		if r.kind == store.KindConsumer {
			continue
		}
		topics := r.topics(at)
		if topics == nil && r.kind == store.KindRelay {
			topics = []string{"*"}
		}
		if topics != nil {
			inEffect[other] = topics
		}
	}
	return inEffect
}

// countUnrouted adds a settlement's counts of messages that no relay takes.
func (r *relayState) countUnrouted(counts []store.UnroutedCount, at time.Time) {
	for _, c := range counts {
		u := r.unrouted[c.Topic]
		if u == nil {
			u = &store.UnroutedTopic{Topic: c.Topic, FirstAt: at}
			r.unrouted[c.Topic] = u
		}
		u.Count += c.Count
		u.LastAt = at
	}
}

// unrouted lists the topics that no relay took, each with the largest count of a relay, since each relay sees every message.
func (db *database) unrouted() []store.UnroutedTopic {
	all := make(map[string]store.UnroutedTopic)
	for _, r := range db.relays {
		for topic, u := range r.unrouted {
			sum, known := all[topic]
			if !known {
				sum = *u
			}
			sum.Count = max(sum.Count, u.Count)
			if u.FirstAt.Before(sum.FirstAt) {
				sum.FirstAt = u.FirstAt
			}
			if u.LastAt.After(sum.LastAt) {
				sum.LastAt = u.LastAt
			}
			all[topic] = sum
		}
	}
	var out []store.UnroutedTopic
	for _, u := range all {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b store.UnroutedTopic) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Topic, b.Topic))
	})
	return out[:min(len(out), store.MaxUnroutedTopics)]
}

// removeUnrouted removes the counts of topics whose last message is older than store.UnroutedKept.
func (db *database) removeUnrouted(at time.Time) {
	for _, r := range db.relays {
		for topic, u := range r.unrouted {
			if at.Sub(u.LastAt) >= store.UnroutedKept {
				delete(r.unrouted, topic)
			}
		}
	}
}
