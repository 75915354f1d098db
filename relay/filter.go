package relay

import (
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/store"
)

// canonicalTopics returns Config.Topics as it is registered: sorted, each pattern once, "*" alone for all topics.
func canonicalTopics(topics []string) []string {
	if len(topics) == 0 || slices.ContainsFunc(topics, takesAll) {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(topics)))
}

// takesAll reports whether every topic matches a pattern.
func takesAll(pattern string) bool { return strings.Trim(pattern, "*") == "" }

// unrouted is a message that no relay takes, or several of one topic.
type unrouted struct {
	ticket uint64
	store.UnroutedCount
}

// setFilter sets which topics are taken; own is Config.Topics, which counts if the store knows of no filter.
func (p *partition) setFilter(f store.TopicFilter, own []string) {
	if len(f.Topics) == 0 {
		f = store.TopicFilter{Topics: own, Elsewhere: []string{"*"}}
	}
	if slices.ContainsFunc(f.Topics, takesAll) {
		f.Topics = nil
	}
	p.topics, p.elsewhere = f.Topics, f.Elsewhere
}

// takes reports whether the relay takes messages of a topic, by the filter in effect.
func (p *partition) takes(topic string) bool {
	return len(p.topics) == 0 || store.MatchTopics(p.topics, topic)
}

// skip settles a message that the relay does not take. If no other relay takes it either, it is counted as unrouted when the
// cursor passes it.
func (p *partition) skip(it *item) {
	p.tracker.settle(it.ticket)
	if topic := it.msg.Topic; !store.MatchTopics(p.elsewhere, topic) {
		p.unrouted = append(p.unrouted, unrouted{it.ticket, store.UnroutedCount{Topic: topic, Count: 1}})
	}
}

// countUnrouted removes and counts, by topic, the unrouted messages before a ticket, which a settlement's cursor passes.
func (p *partition) countUnrouted(before uint64) []store.UnroutedCount {
	if len(p.unrouted) == 0 {
		return nil
	}
	n := 0
	counts := make(map[string]int64)
	for ; n < len(p.unrouted) && p.unrouted[n].ticket < before; n++ {
		u := &p.unrouted[n]
		if _, known := counts[u.Topic]; !known && len(counts) >= store.MaxUnroutedTopics {
			u.Topic = ""
		}
		counts[u.Topic] += u.Count
	}
	p.unrouted = p.unrouted[n:]
	var out []store.UnroutedCount
	for _, topic := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, store.UnroutedCount{Topic: topic, Count: counts[topic]})
	}
	return out
}

// uncountUnrouted restores the counts of a settlement that was not applied.
func (p *partition) uncountUnrouted(counts []store.UnroutedCount) {
	back := make([]unrouted, len(counts), len(counts)+len(p.unrouted))
	for i, c := range counts {
		back[i].UnroutedCount = c
	}
	p.unrouted = append(back, p.unrouted...)
}
