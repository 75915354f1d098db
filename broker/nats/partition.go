package natsbroker

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// In a partitioned stream, subjects have the partition of the message's key as two hexadecimal digits: ORDERS-p.a.3.order.placed for the
// topic order.placed and partition a3. The number of partitions never changes, because a key whose partition changes could overtake
// itself. Consumers read sets of partitions: all whose first digit is the same, so that one filter covers a set.
const (
	keyPartitions = 256
	readSets      = 16
	digits        = "0123456789abcdef"
)

// wholeStream is in place of the number of a set where a stream is read as a whole.
const wholeStream = -1

// partitionPrefix is what subjects with a partition begin with. It is outside of Prefix, since the filters of a consumer must not
// overlap. Without Prefix, there is none.
func (c Config) partitionPrefix() string {
	if c.Prefix == "" {
		return ""
	}
	return strings.TrimSuffix(c.Prefix, ".") + "-p."
}

// takesPartitions reports whether there are subjects with a partition among those of a stream. A wildcard that covers both kinds does not
// say it.
func (c Config) takesPartitions(subjects []string) bool {
	prefix := c.partitionPrefix()
	return prefix != "" && slices.ContainsFunc(subjects, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

// termOfBoth ends the Term of the sets of a stream that also takes subjects without a partition. So what was read is compared again when
// that changes, and its readers are opened with other filters.
const termOfBoth = " (with and without partitions)"

// takesPlain reports whether a stream takes subjects without a partition, which are under Prefix.
func (c Config) takesPlain(stream jetstream.StreamConfig) bool {
	return slices.ContainsFunc(stream.Subjects, func(s string) bool { _, ok := c.afterPrefix(s); return ok }) ||
		len(stream.Subjects) == 0 || len(stream.Sources) > 0
}

// afterPrefix returns what a filter has after Prefix, in place of whose tokens it may have wildcards. If ok is false, the filter matches
// nothing under Prefix.
func (c Config) afterPrefix(filter string) (rest string, ok bool) {
	for prefix := c.Prefix; prefix != ""; {
		var want, token string
		want, prefix, _ = strings.Cut(prefix, ".")
		token, rest, ok = strings.Cut(filter, ".")
		switch {
		case token == ">":
			return ">", true
		case !ok || token != want && token != "*":
			return "", false
		}
		filter = rest
	}
	return filter, true
}

// saysSets reports whether a stream is to be read in sets by what configurations say. Otherwise it is while it has messages with a
// partition in their subjects: the subjects of a mirror, of sources and of wildcards do not say it, nor those that were removed.
func (c Config) saysSets(stream jetstream.StreamConfig) bool {
	return c.Partitioned || c.takesPartitions(stream.Subjects)
}

// allPartitioned is the subject of all messages with a partition. Without Prefix, there is none.
func (c Config) allPartitioned() string { return c.partitionPrefix() + "*.*.>" }

// inSets reports whether a stream is read in sets as a log.
func (s *Subscriber) inSets(ctx context.Context, stream jetstream.StreamConfig) (bool, error) {
	if s.cfg.Prefix == "" || s.cfg.saysSets(stream) {
		return s.cfg.saysSets(stream), nil
	}
	last, err := s.lastOf(ctx, s.cfg.allPartitioned())
	return last > 0, err
}

// hint says which setting fits a stream whose subjects have partitions.
func (c Config) hint(stream jetstream.StreamConfig) string {
	if !c.Partitioned && c.takesPartitions(stream.Subjects) {
		return " (Partitioned is not set)"
	}
	return ""
}

// subject returns the subject of m.
func (c Config) subject(m *postrider.Message) string {
	if !c.Partitioned {
		return Subject(c.Prefix, m.Topic)
	}
	return partitionedSubject(c.partitionPrefix(), Subject("", m.Topic), m)
}

// partitionedSubject adds the partition of m to the subject that a topic has without a prefix.
func partitionedSubject(prefix, topic string, m *postrider.Message) string {
	n := postrider.PartitionOf(m.Key, m.ID, keyPartitions)
	b := make([]byte, 0, len(prefix)+4+len(topic))
	b = append(b, prefix...)
	b = append(b, digits[n>>4], '.', digits[n&15], '.')
	return string(append(b, topic...))
}

// setOf returns the set that the partition of a message belongs to.
func setOf(m *postrider.Message) int {
	return postrider.PartitionOf(m.Key, m.ID, keyPartitions) / readSets
}

// topic returns the topic of a subject, and whether the subject has a partition.
func (c Config) topic(subject string) (topic string, partitioned bool, err error) {
	if prefix := c.partitionPrefix(); prefix != "" {
		if rest, ok := strings.CutPrefix(subject, prefix); ok && len(rest) > 4 && rest[1] == '.' && rest[3] == '.' {
			topic, err = Topic("", rest[4:])
			return topic, true, err
		}
	}
	topic, err = Topic(c.Prefix, subject)
	return topic, false, err
}

// setName is the name of the partition of the log that has a set of the stream's partitions.
func setName(stream string, set int) string { return stream + "/" + strconv.Itoa(set) }

func setNames(stream string) []string {
	names := make([]string, readSets)
	for set := range names {
		names[set] = setName(stream, set)
	}
	return names
}

// queueInSets reports whether a durable consumer has to read messages with a partition too. It asks for no more than information about the
// stream, since other requests need permissions that users of a durable consumer may lack.
func (c SubscriberConfig) queueInSets(ctx context.Context, stream jetstream.Stream) (bool, error) {
	if c.Prefix == "" || c.saysSets(stream.CachedInfo().Config) {
		return c.saysSets(stream.CachedInfo().Config), nil
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(c.allPartitioned()))
	if err != nil {
		return false, err
	}
	return len(info.State.Subjects) > 0, nil
}

// bothFilters returns the subjects with and without a partition.
func (c SubscriberConfig) bothFilters() []string { return append(c.filtersOfSet("*"), c.filters()...) }

// filtersOfSet returns the subjects with a partition whose first digit is digit.
func (c SubscriberConfig) filtersOfSet(digit string) []string {
	prefix := c.partitionPrefix()
	if len(c.Topics) == 0 {
		return []string{prefix + digit + ".>"}
	}
	filters := make([]string, len(c.Topics))
	for i, topic := range c.Topics {
		filters[i] = prefix + digit + ".*." + Subject("", topic)
	}
	return filters
}
