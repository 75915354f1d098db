package kafkabroker_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestStartLatest(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 10)
	sub, _ := s.join(t, latest)
	// The start offset is determined when the partitions are assigned: publish until a message arrives.
	ctx, cancel := context.WithCancel(by(t))
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for n := 1_000; ctx.Err() == nil; n += 10 {
			s.publish(t, n, 10)
		}
	})
	for _, d := range receive(t, sub, 20) {
		if d.Message.AggregateVersion < 1_000 {
			t.Errorf("message %s was there before", d.Message.ID)
		}
	}
	cancel()
	publishing.Wait()
}

func latest(c *kafkabroker.SubscriberConfig) { c.Start = kafkabroker.StartLatest }

// placed waits until the group has committed its start offset in n partitions.
func (s *source) placed(t *testing.T, n int) {
	t.Helper()
	until(t, func() bool {
		offsets, _ := s.committed(t)
		return len(offsets) == n
	})
}

// TestStartLatestKeepsItsPlace has a member leave that has settled nothing: the next one starts at the same offset, not
// at the current end.
func TestStartLatestKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 10)
	sub, _ := s.join(t, latest)
	s.placed(t, 4)
	s.publish(t, 1_000, 20)
	id := receive(t, sub, 20)[0].Position.Incarnation
	if _, marks := s.committed(t); marks[s.topic+"/0"] != "topic-id="+id {
		t.Errorf("the place is marked %q, want the topic's ID %s", marks[s.topic+"/0"], id)
	}
	if err := sub.Close(by(t)); err != nil {
		t.Fatal(err)
	}
	s.publish(t, 1_020, 20)
	sub, _ = s.join(t, latest)
	came := make(map[int64]bool)
	for _, d := range receive(t, sub, 40) {
		came[d.Message.AggregateVersion] = true
	}
	for n := range int64(40) {
		if !came[1_000+n] {
			t.Errorf("message %d does not come again", 1_000+n)
		}
	}
}

// TestStartLatestWaitsForItsPlace drops all commits: messages delivered now would not be redelivered after a crash.
func TestStartLatestWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	sub, link := s.join(t, func(c *kafkabroker.SubscriberConfig) {
		latest(c)
		c.CommitEvery = time.Second // so that requests are dropped before the first commit
	})
	link.dropRequests(true, commitKey)
	reading(t, link)
	s.publish(t, 0, 8)
	fetches := link.count(fetchKey)
	until(t, func() bool { return link.count(commitKey) > 0 && link.count(fetchKey) > fetches })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for ctx.Err() == nil {
		got, _ := sub.Receive(ctx, 8)
		if offsets, _ := s.committed(t); len(got) > 0 && len(offsets) == 0 {
			t.Fatalf("%d messages are delivered, and nothing is committed", len(got))
		}
	}
	link.dropRequests(false)
	ack(t, receive(t, sub, 8)...)
}

// TestStartLatestInNewPartitions adds partitions to a topic that a group reads, and publishes there before the group
// notices.
func TestStartLatestInNewPartitions(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	client := plainClient(t, s.address, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMaxAge(100*time.Millisecond))
	add := func(number int32) {
		t.Helper()
		if _, err := s.admin.UpdatePartitions(by(t), int(number)+1, s.topic); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool {
			r := &kgo.Record{Topic: s.topic, Partition: number, Value: []byte(strconv.Itoa(int(number)))}
			return client.ProduceSync(by(t), r).FirstErr() == nil
		})
	}
	sub, _ := s.join(t, latest)
	s.placed(t, 4)
	want := func(number int32) {
		t.Helper()
		d := receive(t, sub, 1)[0]
		if string(d.Raw) != strconv.Itoa(int(number)) {
			t.Errorf("got %q of partition %s, want what is in partition %d", d.Raw, d.Position.Partition, number)
		}
		ack(t, d)
		if err := sub.Close(by(t)); err != nil {
			t.Fatal(err)
		}
	}
	add(4) // for a running member
	want(4)
	add(5) // for a member that joins later
	sub, _ = s.join(t, latest)
	want(5)
}
