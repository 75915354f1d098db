package kafkabroker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
)

// topicMark is the prefix of the topic ID in the metadata of a committed offset. A group stores offsets by topic name.
// Without the ID, an offset that is committed while a topic is deleted and recreated would skip messages of the new
// topic.
const topicMark = "topic-id="

// marked returns a context whose commits contain topic IDs as metadata; topicIDs are the IDs by topic.
func marked(ctx context.Context, topicIDs map[string]string) context.Context {
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			id := topicIDs[req.Topics[i].Topic]
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

// fetched records committed offsets, and finds those that belong to an earlier topic of the same name.
func (s *Subscription) fetched(ctx context.Context, client *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	s.strange, s.placeless = nil, nil
	for _, name := range s.cfg.names() {
		details, err := describeTopic(ctx, client, name)
		if _, answered := errors.AsType[*kerr.Error](err); answered {
			continue // the topic does not exist, so there is nothing to read
		}
		if err != nil {
			return fmt.Errorf("describe topic %s: %w", name, err)
		}
		var id string
		if details.TopicID != [16]byte{} { // brokers before 2.8 do not report it
			id = hex.EncodeToString(details.TopicID[:])
		}
		for _, p := range partitionsOf(resp, name, details.TopicID) {
			if of, ok := markOf(p.Metadata); ok && of != id {
				s.strange = append(s.strange, place{name, p.Partition})
			} else {
				s.expect(name, p.Partition, p.Offset, id)
				if p.Offset < 0 {
					s.placeless = append(s.placeless, place{name, p.Partition})
				}
			}
		}
	}
	return nil
}

// partitionsOf returns the partitions of a topic in a response, which contains its name or its ID.
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

// expect records the offset at which reading a partition starts, and its topic's ID.
func (s *Subscription) expect(topic string, number int32, offset int64, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.owned(topic, number); p != nil {
		p.expected = offset // -1 without committed offset
		p.topicID = id
	}
}

// place identifies a partition.
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

// adjusted makes partitions whose committed offset is for an earlier topic start at the beginning, and sets the start of
// partitions without offset.
func (s *Subscription) adjusted(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for _, p := range s.strange {
		if _, ours := offsets[p.topic][p.number]; ours {
			s.cfg.Logger.Warn("the Kafka topic was recreated since the group's offset was committed; reading it from the beginning",
				"topic", p.topic, "partition", p.number, "group", s.cfg.Group)
			offsets[p.topic][p.number] = kgo.NewOffset().AtStart()
		}
	}
	if s.cfg.Start == StartLatest && len(s.placeless) > 0 {
		return offsets, s.begin(ctx, offsets)
	}
	return offsets, nil
}

// begin sets the start of partitions without committed offset for StartLatest. Partitions of a topic that is new to the
// group start at the current end, and nothing of them is delivered until that offset is committed: if this member ended
// before, the next one would start at a later end, and messages delivered here would not be redelivered. Partitions
// added since then start at the beginning, because all their messages were published while the group was reading.
func (s *Subscription) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	listing, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	ends, err := kadm.NewClient(s.client).ListCommittedOffsets(listing, s.cfg.names()...)
	if ctx.Err() != nil {
		return ctx.Err() // the partitions are being reassigned
	}
	if err != nil {
		s.cfg.Logger.Warn("Kafka does not tell the ends of all partitions; in the others the group begins before the first message that comes",
			"group", s.cfg.Group, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.placeless {
		p := s.owned(at.topic, at.number)
		if _, ours := offsets[at.topic][at.number]; !ours || p == nil {
			continue
		}
		if at.number >= s.unread[at.topic] {
			offsets[at.topic][at.number] = kgo.NewOffset().AtStart()
			continue
		}
		p.placing = true
		if end, found := ends.Lookup(at.topic, at.number); found && end.Err == nil {
			offsets[at.topic][at.number] = kgo.NewOffset().At(end.Offset)
			p.settled = kgo.EpochOffset{Epoch: -1, Offset: end.Offset}
		}
	}
	return nil
}

// unreadTopics returns the topics without any committed offset of a group, with their number of partitions. It retries
// until ctx ends, because a new cluster first has to create its offsets topic.
func unreadTopics(ctx context.Context, admin *kadm.Client, group string, topics []string) (map[string]int32, error) {
	for attempt := 1; ; attempt++ {
		unread, err := lookForUnread(ctx, admin, group, topics)
		if err == nil {
			return unread, nil
		}
		if errors.Is(err, kerr.GroupAuthorizationFailed) {
			return nil, groupRefused(group, err)
		}
		if !kerr.IsRetriable(err) || wait(ctx, nil, time.Now().Add(retryDelay(attempt))) != nil {
			return nil, postrider.Unavailable(fmt.Errorf("look for what group %s has committed to Kafka: %w", group, err))
		}
	}
}

func lookForUnread(ctx context.Context, admin *kadm.Client, group string, topics []string) (map[string]int32, error) {
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	if err := listed.Error(); err != nil {
		return nil, err
	}
	unread := make(map[string]int32)
	for name, details := range listed {
		if len(committed[name]) == 0 {
			unread[name] = int32(len(details.Partitions))
		}
	}
	return unread, nil
}
