package relay

import (
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider"
)

// Filter is the topics that the relays of an outbox take, as patterns of Config.Topics.
type Filter struct {
	// Topics are those that the relay takes, by the filter in effect; none if no process has registered a filter.
	Topics []string
	// Elsewhere are those that the other relays of the outbox take.
	Elsewhere []string
}

// FilterOf returns the filter of a relay, given the filters in effect of all relays of the outbox. It is for stores.
func FilterOf(relay string, inEffect map[string][]string) Filter {
	f := Filter{Topics: inEffect[relay]}
	for name, topics := range inEffect {
		if name != relay {
			f.Elsewhere = append(f.Elsewhere, topics...)
		}
	}
	slices.Sort(f.Elsewhere)
	f.Elsewhere = slices.Compact(f.Elsewhere)
	return f
}

// canonicalTopics returns Config.Topics as it is registered: sorted, each pattern once, "*" alone for all topics.
func canonicalTopics(topics []string) []string {
	if len(topics) == 0 || slices.ContainsFunc(topics, takesAll) {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(topics)))
}

// takesAll reports whether every topic matches a pattern.
func takesAll(pattern string) bool { return strings.Trim(pattern, "*") == "" }

// MatchTopics reports whether topic matches one of the patterns.
func MatchTopics(patterns []string, topic string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return MatchTopic(p, topic) })
}

// MaxUnroutedTopics is the maximum number of topics in Settlement.Unrouted. Further ones are counted under the topic "".
const MaxUnroutedTopics = 100

// UnroutedCount is the number of unrouted messages of a topic.
type UnroutedCount struct {
	Topic string
	Count int64
}

// unrouted is a message that no relay takes, or several of one topic.
type unrouted struct {
	ticket uint64
	UnroutedCount
}

// setFilter sets which topics are taken; own is Config.Topics, which counts if the store knows of no filter.
func (p *partition) setFilter(f Filter, own []string) {
	if len(f.Topics) == 0 {
		f = Filter{Topics: own, Elsewhere: []string{"*"}}
	}
	if slices.ContainsFunc(f.Topics, takesAll) {
		f.Topics = nil
	}
	p.topics, p.elsewhere = f.Topics, f.Elsewhere
}

// takes reports whether the relay takes messages of a topic, by the filter in effect.
func (p *partition) takes(topic string) bool {
	return len(p.topics) == 0 || MatchTopics(p.topics, topic)
}

// skip settles a message that the relay does not take. If no other relay takes it either, it is counted as unrouted when the
// cursor passes it.
func (p *partition) skip(it *item) {
	p.tracker.settle(it.ticket)
	if topic := it.msg.Topic; !MatchTopics(p.elsewhere, topic) {
		if len(topic) > postrider.MaxTopicBytes { // no index takes it
			topic = strings.ToValidUTF8(topic[:postrider.MaxTopicBytes], "")
		}
		p.unrouted = append(p.unrouted, unrouted{it.ticket, UnroutedCount{topic, 1}})
	}
}

// countUnrouted removes and counts, by topic, the unrouted messages before a ticket, which a settlement's cursor passes.
func (p *partition) countUnrouted(before uint64) []UnroutedCount {
	if len(p.unrouted) == 0 {
		return nil
	}
	n := 0
	counts := make(map[string]int64)
	for ; n < len(p.unrouted) && p.unrouted[n].ticket < before; n++ {
		u := &p.unrouted[n]
		if _, known := counts[u.Topic]; !known && len(counts) >= MaxUnroutedTopics {
			u.Topic = ""
		}
		counts[u.Topic] += u.Count
	}
	p.unrouted = p.unrouted[n:]
	var out []UnroutedCount
	for _, topic := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, UnroutedCount{topic, counts[topic]})
	}
	return out
}

// uncountUnrouted restores the counts of a settlement that was not applied.
func (p *partition) uncountUnrouted(counts []UnroutedCount) {
	back := make([]unrouted, len(counts), len(counts)+len(p.unrouted))
	for i, c := range counts {
		back[i].UnroutedCount = c
	}
	p.unrouted = append(back, p.unrouted...)
}
