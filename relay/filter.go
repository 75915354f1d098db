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

// wakesFor reports whether the relay is to read the log for a message of a topic. It is called by whoever publishes.
func (r *Relay) wakesFor(topic string) bool {
	patterns := r.awaited.Load()
	return patterns == nil || store.MatchTopics(*patterns, topic)
}

// await sets what wakesFor answers: the topics of all partitions, whose filters differ for a moment when another one comes into effect.
func (r *Relay) await() {
	var patterns []string
	for _, p := range r.partitions {
		if len(p.topics) == 0 {
			r.awaited.Store(nil)
			return
		}
		patterns = append(patterns, p.topics...)
	}
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	r.awaited.Store(&patterns)
}

// takes reports whether the relay takes messages of a topic, by the filter in effect.
func (p *partition) takes(topic string) bool {
	return len(p.topics) == 0 || store.MatchTopics(p.topics, topic)
}
