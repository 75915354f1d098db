package store

import (
	"slices"
	"strings"
	"time"
)

// TopicFilter is the topics that the relays of an outbox take, as patterns of relay.Config.Topics.
type TopicFilter struct {
	// Topics are those that the relay takes, by the filter in effect; none if no process has registered a filter.
	Topics []string
	// Elsewhere are those that the other relays of the outbox take.
	Elsewhere []string
}

// FilterKept is how long the filter of a process that ended without Leave still counts.
const FilterKept = time.Hour

// TopicFilterOf returns the filter of a relay, given the filters in effect of all relays of the outbox. It is for stores.
func TopicFilterOf(relay string, inEffect map[string][]string) TopicFilter {
	f := TopicFilter{Topics: inEffect[relay]}
	for name, topics := range inEffect {
		if name != relay {
			f.Elsewhere = append(f.Elsewhere, topics...)
		}
	}
	slices.Sort(f.Elsewhere)
	f.Elsewhere = slices.Compact(f.Elsewhere)
	return f
}

// MatchTopics reports whether topic matches one of the patterns.
func MatchTopics(patterns []string, topic string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return MatchTopic(p, topic) })
}

// MatchTopic reports whether topic matches a pattern of relay.Config.Topics, in which "*" matches any run of characters.
func MatchTopic(pattern, topic string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == topic
	}
	if !strings.HasPrefix(topic, head) {
		return false
	}
	topic = topic[len(head):]
	for {
		piece, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(topic, piece)
		}
		i := strings.Index(topic, piece)
		if i < 0 {
			return false
		}
		topic, rest = topic[i+len(piece):], next
	}
}

// UnroutedCount is the number of unrouted messages of a topic.
type UnroutedCount struct {
	Topic string
	Count int64
}

// MaxUnroutedTopics is the maximum number of topics in Settlement.Unrouted. Further ones are counted under the topic "".
const MaxUnroutedTopics = 100
