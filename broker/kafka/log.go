package kafkabroker

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
)

var (
	_ postrider.Log         = (*Subscriber)(nil)
	_ postrider.LogReporter = (*Subscriber)(nil)
)

const (
	// NoLagGroup is the value of SubscriberConfig.LagGroup that commits no offsets.
	NoLagGroup = "-"
	// lagGroupPrefix comes before the name of a consumer in the default of SubscriberConfig.LagGroup.
	lagGroupPrefix = "postrider."
	// logRetries is how often a request is repeated: its caller repeats it too.
	logRetries = 3
)

// Timestamps of a ListOffsets request that stand for the ends of a partition.
const earliest, latest = -2, -1

// shared returns the client for requests other than those of subscriptions and readers.
func (s *Subscriber) shared() (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	client, err := kgo.NewClient(append(s.options[:len(s.options):len(s.options)],
		kgo.RequestTimeoutOverhead(requestTimeout), kgo.RequestRetries(logRetries), kgo.BrokerMaxReadBytes(1<<30))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	s.client = client
	return client, nil
}

// Close closes the connections that reading a log and VerifyPosition have opened. Close subscriptions and readers first.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	return nil
}

// Partitions implements postrider.Log. The first call looks up the topics, or creates them, and its error says what to change.
func (s *Subscriber) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	if !s.checked.Load() {
		if _, err := s.check(ctx); err != nil {
			return nil, err
		}
		s.checked.Store(true)
	}
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	parts, err := s.partitions(ctx, names)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		s.checked.Store(false)
	}
	if err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("look at the partitions of Kafka: %w", err))
	}
	return parts, nil
}

func (s *Subscriber) partitions(ctx context.Context, names []string) (parts []postrider.LogPartition, err error) {
	client, err := s.shared()
	if err != nil {
		return nil, err
	}
	for _, name := range s.cfg.names() {
		inTopic := func(partition string) bool {
			topic, _, err := splitPartition(partition)
			return err == nil && topic == name
		}
		if len(names) > 0 && !slices.ContainsFunc(names, inTopic) {
			continue
		}
		details, err := describeTopic(ctx, client, name)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", name, err)
		}
		if len(names) > 0 {
			details.Partitions = slices.DeleteFunc(details.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool {
				return !slices.Contains(names, partitionName(name, p.Partition))
			})
		}
		first, err := offsetsAt(ctx, client, details, earliest)
		if err != nil {
			return nil, err
		}
		end, err := offsetsAt(ctx, client, details, latest)
		if err != nil {
			return nil, err
		}
		for i := range details.Partitions {
			p := &details.Partitions[i]
			parts = append(parts, postrider.LogPartition{
				Name: partitionName(name, p.Partition), Incarnation: topicID(details), Topic: name, Number: int(p.Partition),
				Term: strconv.Itoa(int(p.LeaderEpoch)), First: first[p.Partition], End: end[p.Partition] - 1,
			})
		}
	}
	return parts, nil
}

// partitionName is the Partition of positions.
func partitionName(topic string, number int32) string { return fmt.Sprintf("%s/%d", topic, number) }

// topicID returns the ID of a topic; "" from brokers before 2.8.
func topicID(details *kmsg.MetadataResponseTopic) string {
	if details.TopicID == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(details.TopicID[:])
}

// offsetsAt asks the leaders of all partitions for an offset: the first one, or the one after the last.
func offsetsAt(ctx context.Context, client *kgo.Client, details *kmsg.MetadataResponseTopic, timestamp int64) (map[int32]int64, error) {
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = *details.Topic
	for i := range details.Partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = details.Partitions[i].Partition, timestamp
		topic.Partitions = append(topic.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("topic %s, partition %d: %w", t.Topic, p.Partition, err)
			}
			offsets[p.Partition] = p.Offset
		}
	}
	if len(offsets) != len(details.Partitions) {
		return nil, fmt.Errorf("topic %s: offsets of %d partitions instead of %d", topic.Topic, len(offsets), len(details.Partitions))
	}
	return offsets, nil
}

// ReportPosition implements postrider.LogReporter: it commits the offset for SubscriberConfig.LagGroup, which has no members, so
// that Kafka's tools show the consumer's lag.
func (s *Subscriber) ReportPosition(ctx context.Context, consumer string, at postrider.Position) error {
	group := cmp.Or(s.cfg.LagGroup, lagGroupPrefix+consumer)
	if group == NoLagGroup {
		return nil
	}
	topic, partition, err := splitPartition(at.Partition)
	if err != nil {
		return err
	}
	client, err := s.shared()
	if err != nil {
		return err
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at.Offset + 1, LeaderEpoch: -1, Metadata: topicMark + at.Incarnation})
	resp, err := kadm.NewClient(client).CommitOffsets(ctx, group, offsets)
	if err = cmp.Or(err, resp.Error()); err != nil {
		return fmt.Errorf("commit offset %d of partition %s of Kafka for group %s (allow: kafka-acls.sh --add --allow-principal User:NAME --operation Read --group %s): %w",
			at.Offset+1, at.Partition, group, group, err)
	}
	return nil
}
