package natsbroker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

// listed returns the partitions with these names, or all without names.
func listed(parts []postrider.LogPartition, names []string) []postrider.LogPartition {
	return slices.DeleteFunc(parts, func(p postrider.LogPartition) bool { return len(names) > 0 && !slices.Contains(names, p.Name) })
}

// setOf returns the number of the set that a partition of the log is, or wholeStream.
func (s *Subscriber) setOf(partition string) int {
	return slices.Index(setNames(s.cfg.Stream), partition)
}

var errDivided = errors.New("the stream has subjects with partitions now, which have to be read too")

var errPlain = errors.New("the stream has subjects without a partition again, which have to be read too")

// subjectsEvery is how long a reader of a set returns messages before it looks at the stream's subjects again.
const subjectsEvery = 5 * time.Second

// all returns what a reader has read, unless there may be messages before it that it does not get: then it ends, before a message could
// overtake an earlier one of its key. For a reader of the whole stream, these are messages with a partition. They leave a gap, and are
// stored after the stream has taken their subjects. For a reader of a set that reads nothing else, these are messages without one.
func (r *logReader) all(ctx context.Context, out []*postrider.Delivery) []*postrider.Delivery {
	if due := r.narrow && len(out) > 0 && time.Since(r.looked) >= r.s.subjectsEvery; !r.gap && !due {
		return out
	}
	r.gap, r.looked = false, time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.PublishTimeout)
	defer cancel()
	stream, err := r.s.js.Stream(ctx, r.s.cfg.Stream)
	if err == nil && r.narrow && r.s.cfg.takesPlain(stream.CachedInfo().Config) {
		err = errPlain
	} else if err == nil && !r.narrow {
		var divided bool
		if divided, err = r.s.inSets(ctx, stream.CachedInfo().Config); divided {
			err = errDivided
		}
	}
	if err != nil {
		r.ended = err
		return nil
	}
	return out
}

// filters returns the subjects to read. For a set, these are also all those without a partition, of which it drops the messages of other
// sets, unless the stream no longer takes such messages and has none after the position. It also gets and drops other topics, unless there is
// only one to read. A server needs several times as long to look for two filters as for one.
func (r *logReader) filters(ctx context.Context) ([]string, error) {
	if r.set == wholeStream {
		return r.s.cfg.filters(), nil
	}
	cfg, both := r.s.cfg, strings.HasSuffix(r.part.Term, termOfBoth)
	if len(cfg.Topics) > 1 {
		cfg.Topics = nil
	}
	plain, filters := cfg.filters(), cfg.filtersOfSet(digits[r.set:r.set+1])
	for _, subject := range plain {
		if both {
			break
		}
		last, err := r.s.lastOf(ctx, subject)
		if err != nil {
			return nil, err
		}
		both = last > r.at
	}
	if r.narrow = !both; both {
		filters = append(filters, plain...)
	}
	return filters, nil
}

// isOfOtherTopic reports whether a message has a topic that is not to be read.
func (r *logReader) isOfOtherTopic(subject string) bool {
	if r.set == wholeStream || len(r.s.cfg.Topics) < 2 {
		return false // the server knows
	}
	topic, _, err := r.s.cfg.topic(subject)
	return err != nil || !slices.Contains(r.s.cfg.Topics, topic)
}

// isOfOtherSet reports whether a message without a partition in its subject belongs to another set.
func (r *logReader) isOfOtherSet(subject string, m *postrider.Message) bool {
	if r.set == wholeStream {
		return false
	}
	_, partitioned, _ := r.s.cfg.topic(subject)
	return !partitioned && setOf(m) != r.set
}
