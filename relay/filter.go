package relay

import (
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
