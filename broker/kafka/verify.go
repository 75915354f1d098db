package kafkabroker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

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

// VerifyPosition implements postrider.Subscriber. It reads the record with a separate client. If the record was
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
	i := strings.LastIndexByte(at.Partition, '/')
	number, err := strconv.ParseInt(at.Partition[i+1:], 10, 32)
	if i < 0 || err != nil {
		return 0, fmt.Errorf("%q is no partition of a topic", at.Partition)
	}
	topic, partition := at.Partition[:i], int32(number)
	client, err := kgo.NewClient(append(s.options[:len(s.options):len(s.options)],
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(at.Offset)}}),
	)...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	details, err := describeTopic(ctx, client, topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return postrider.PositionReplaced, nil
	case err != nil:
		return 0, err
	case at.Incarnation != "" && details.TopicID != [16]byte{} && hex.EncodeToString(details.TopicID[:]) != at.Incarnation:
		return postrider.PositionReplaced, nil
	}
	admin := kadm.NewClient(client)
	start, end, err := bounds(ctx, admin, topic, partition)
	switch {
	case err != nil:
		return 0, err
	case end <= at.Offset:
		return postrider.PositionReplaced, nil
	case start > at.Offset:
		return postrider.PositionRemoved, nil
	}
	r, err := firstRecord(ctx, client)
	switch {
	case err != nil:
		return 0, err
	case r.Offset != at.Offset:
		return s.compareEpoch(ctx, admin, topic, partition, at)
	case recordMark(r) == at.Mark:
		return postrider.PositionKept, nil
	}
	return postrider.PositionReplaced, nil
}

// bounds returns the first offset of a partition and the one after its last record.
func bounds(ctx context.Context, admin *kadm.Client, topic string, partition int32) (start, end int64, err error) {
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	first, _ := starts.Lookup(topic, partition)
	last, found := ends.Lookup(topic, partition)
	if !found {
		return 0, 0, kerr.UnknownTopicOrPartition
	}
	return first.Offset, last.Offset, errors.Join(first.Err, last.Err)
}

// firstRecord reads until there is a record.
func firstRecord(ctx context.Context, client *kgo.Client) (*kgo.Record, error) {
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			return nil, e.Err
		}
		for r := range fetches.RecordsAll() {
			return r, nil
		}
	}
}

// compareEpoch decides about a record that compaction has removed: in a partition that was truncated, the record's
// leader epoch ends before the record.
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
