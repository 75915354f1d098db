package natsbroker

import (
	"context"
	"errors"
	"slices"
	"strings"

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

// whole returns the messages that a reader of the whole stream has read, unless there may be messages with a partition before them, which
// it does not get: then it ends, before a message could overtake an earlier one of its key. Such messages leave a gap, and are stored after the
// stream has taken their subjects.
func (r *logReader) whole(ctx context.Context, out []*postrider.Delivery) []*postrider.Delivery {
	if !r.gap || r.set != wholeStream {
		return out
	}
	r.gap = false
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.PublishTimeout)
	defer cancel()
	stream, err := r.s.js.Stream(ctx, r.s.cfg.Stream)
	if err == nil {
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
// sets, unless the stream no longer takes such messages and has none after the position: a server needs several times as long to look for
// two filters as for one.
func (r *logReader) filters(ctx context.Context) ([]string, error) {
	plain := r.s.cfg.filters()
	if r.set == wholeStream {
		return plain, nil
	}
	filters, both := r.s.cfg.filtersOfSet(digits[r.set:r.set+1]), strings.HasSuffix(r.part.Term, termOfBoth)
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
	if both {
		filters = append(filters, plain...)
	}
	return filters, nil
}

// isOfOtherSet reports whether a message without a partition in its subject belongs to another set.
func (r *logReader) isOfOtherSet(subject string, m *postrider.Message) bool {
	if r.set == wholeStream {
		return false
	}
	_, partitioned, _ := r.s.cfg.topic(subject)
	return !partitioned && setOf(m) != r.set
}
