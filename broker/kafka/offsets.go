package kafkabroker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicMark stands before the topic's ID in the metadata of a committed offset. A group keeps offsets by the names of
// topics: one that is committed about the time when a topic is deleted and made again would pass over messages of the new
// one, if it did not say which topic it is for.
const topicMark = "topic-id="

// marked lets the commits made with the context it returns say which topics they are for; epochs are the IDs by topic.
func marked(ctx context.Context, epochs map[string]string) context.Context {
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			id := epochs[req.Topics[i].Topic]
			if id == "" {
				continue
			}
			mark := topicMark + id
			for j := range req.Topics[i].Partitions {
				req.Topics[i].Partitions[j].Metadata = &mark
			}
		}
		return nil
	})
}

// fetched takes note of committed offsets, and looks for those that are for other topics than those that now have their
// names.
func (s *Subscription) fetched(ctx context.Context, client *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	s.strange = nil
	for _, name := range s.cfg.names() {
		details, err := describeTopic(ctx, client, name)
		if _, answered := errors.AsType[*kerr.Error](err); answered {
			continue // it is not there, and there is nothing to be read of it
		}
		if err != nil {
			return fmt.Errorf("describe topic %s: %w", name, err)
		}
		id := hex.EncodeToString(details.TopicID[:])
		for _, p := range partitionsOf(resp, name, details.TopicID) {
			if of, ok := markOf(p.Metadata); ok && of != id {
				s.strange = append(s.strange, place{name, p.Partition})
			} else {
				s.expect(name, p.Partition, p.Offset)
			}
		}
	}
	return nil
}

// partitionsOf returns what a response says of a topic, which it knows by name or ID.
func partitionsOf(resp *kmsg.OffsetFetchResponse, name string, id [16]byte) (found []kmsg.OffsetFetchResponseGroupTopicPartition) {
	for _, group := range resp.Groups {
		for _, t := range group.Topics {
			if t.Topic == name || t.Topic == "" && t.TopicID == id {
				found = append(found, t.Partitions...)
			}
		}
	}
	return found
}

// expect takes note of the offset from which a partition is to be read.
func (s *Subscription) expect(topic string, number int32, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.owned(topic, number); p != nil {
		p.expected = offset // -1 if none is committed
	}
}

// place names a partition.
type place struct {
	topic  string
	number int32
}

func markOf(metadata *string) (id string, ok bool) {
	if metadata == nil {
		return "", false
	}
	return strings.CutPrefix(*metadata, topicMark)
}

// adjusted lets partitions whose committed offset is for another topic be read from their beginning.
func (s *Subscription) adjusted(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for _, p := range s.strange {
		if _, ours := offsets[p.topic][p.number]; ours {
			s.cfg.Logger.Warn("the Kafka topic was made anew since the group's offset was committed; reading it from the beginning",
				"topic", p.topic, "partition", p.number, "group", s.cfg.Group)
			offsets[p.topic][p.number] = kgo.NewOffset().AtStart()
		}
	}
	return offsets, nil
}
