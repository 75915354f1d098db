package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logmark"
)

// recordMark returns the Mark of a record: its leader epoch, its timestamp, and the message ID.
func recordMark(r *kgo.Record) string {
	id := ""
	for _, h := range r.Headers {
		if h.Key == cloudEvents.Prefix+"id" {
			id = string(h.Value)
		}
	}
	return logmark.Of(fmt.Sprintf("%d-%d", r.LeaderEpoch, r.Timestamp.UnixMilli()), id, r.Value)
}

// readCommitted is the isolation level of a fetch that returns no records of open or aborted transactions.
const readCommitted = 1

// VerifyPosition implements postrider.Subscriber. It reads the record from the partition's leader. If the record was
// compacted away, the end offset of its leader epoch decides.
func (s *Subscriber) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	state, err := s.lookAt(ctx, at)
	if err != nil {
		return 0, postrider.Unavailable(fmt.Errorf("look at offset %d of partition %s of Kafka: %w", at.Offset, at.Partition, err))
	}
	return state, nil
}

func (s *Subscriber) lookAt(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	topic, partition, err := splitPartition(at.Partition)
	if err != nil {
		return 0, err
	}
	client, err := s.shared()
	if err != nil {
		return 0, err
	}
	details, err := describeTopic(ctx, client, topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return postrider.PositionReplaced, nil
	case err != nil:
		return 0, err
	case at.Incarnation != "" && topicID(details) != "" && topicID(details) != at.Incarnation:
		return postrider.PositionReplaced, nil
	}
	found, err := fetchAt(ctx, client, details, partition, at.Offset)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return outOfRange(ctx, client, details, partition, at.Offset)
	case err != nil:
		return 0, err
	case len(found.Records) == 0 || found.Records[0].Offset != at.Offset: // also if a new leader does not know yet how far it is committed
		return s.compareEpoch(ctx, kadm.NewClient(client), topic, partition, at)
	case recordMark(found.Records[0]) == at.Mark:
		return postrider.PositionKept, nil
	}
	return postrider.PositionReplaced, nil
}

// splitPartition splits the Partition of a position.
func splitPartition(name string) (topic string, number int32, err error) {
	i := strings.LastIndexByte(name, '/')
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if i < 0 || err != nil {
		return "", 0, fmt.Errorf("%q is no partition of a topic", name)
	}
	return name[:i], int32(n), nil
}

// outOfRange says on which side of a partition an offset is that it does not have.
func outOfRange(ctx context.Context, client *kgo.Client, details *kmsg.MetadataResponseTopic, partition int32, offset int64) (postrider.PositionState, error) {
	first, err := offsetsAt(ctx, client, details, earliest)
	if err != nil {
		return 0, err
	}
	if offset < first[partition] {
		return postrider.PositionRemoved, nil
	}
	return postrider.PositionReplaced, nil
}

// fetchAt asks the leader of a partition for the batch with an offset, and returns its records from there on.
func fetchAt(ctx context.Context, client *kgo.Client, details *kmsg.MetadataResponseTopic, partition int32, offset int64) (kgo.FetchPartition, error) {
	var none kgo.FetchPartition
	i := slices.IndexFunc(details.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == partition })
	if i < 0 {
		return none, kerr.UnknownTopicOrPartition
	}
	leader := &details.Partitions[i]
	if err := kerr.ErrorForCode(leader.ErrorCode); err != nil {
		return none, err
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = partition, offset, leader.LeaderEpoch, 1 // one batch
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = *details.Topic, details.TopicID, append(topic.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 100, 1, 1, readCommitted
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client.Broker(int(leader.Leader)))
	if err != nil {
		return none, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return none, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return none, fmt.Errorf("the broker answers for %d topics instead of one", len(resp.Topics))
	}
	found, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: *details.Topic, Partition: partition,
	}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return found, found.Err
}

// compareEpoch decides about a record that the leader does not return, e.g. because compaction has removed it: in a partition that was
// truncated, the record's leader epoch ends before the record.
func (s *Subscriber) compareEpoch(ctx context.Context, admin *kadm.Client, topic string, partition int32, at postrider.Position) (
	postrider.PositionState, error,
) {
	text, _, _ := strings.Cut(at.Mark, "-")
	leader, err := strconv.ParseInt(text, 10, 32)
	if err != nil || leader < 0 {
		return postrider.PositionRemoved, nil
	}
	var req kadm.OffsetForLeaderEpochRequest
	req.Add(topic, partition, int32(leader))
	found, err := admin.OffsetForLeaderEpoch(ctx, req)
	if err != nil {
		return 0, err
	}
	got, ok := found[topic][partition]
	switch {
	case !ok || got.Err != nil:
		return 0, errors.Join(kerr.UnknownTopicOrPartition, got.Err)
	case int64(got.LeaderEpoch) != leader || got.EndOffset <= at.Offset:
		return postrider.PositionReplaced, nil
	}
	return postrider.PositionKept, nil
}
