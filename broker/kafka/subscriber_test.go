package kafkabroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// source is a topic with four partitions and its publisher.
type source struct {
	address, topic string
	admin          *kadm.Client
	publisher      *kafkabroker.Publisher
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{address: sharedServer(t), topic: newPrefix() + "orders"}
	s.admin = createTopic(t, s.address, s.topic, 4, nil)
	s.publisher = open(t, s.address, kafkabroker.Config{Topic: s.topic})
	return s
}

// publish publishes n messages, each with its own key.
func (s *source) publish(t *testing.T, from, n int) {
	t.Helper()
	var msgs []*postrider.Message
	for i := from; i < from+n; i++ {
		msgs = append(msgs, message("orders", "order/"+strconv.Itoa(i), i))
	}
	mustPublish(t, s.publisher, msgs...)
}

// join adds a member with short timeouts to the group, which has the topic's name.
func (s *source) join(t *testing.T, set func(*kafkabroker.SubscriberConfig)) (postrider.Subscription, *proxy) {
	t.Helper()
	link := newProxy(t, s.address)
	cfg := kafkabroker.SubscriberConfig{
		Connection: through(link, kgo.MetadataMaxAge(time.Second)), Group: s.topic, Topics: []string{s.topic},
		SessionTimeout: sessionTimeout, RevokeWait: 300 * time.Millisecond, CommitEvery: 50 * time.Millisecond,
	}
	if set != nil {
		set(&cfg)
	}
	sub, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+link.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	joined, err := sub.Subscribe(by(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = joined.Close(context.WithoutCancel(t.Context())) }) // fails for a member that was cut off
	return joined, link
}

// receive returns n deliveries.
func receive(t *testing.T, sub postrider.Subscription, n int) []*postrider.Delivery {
	t.Helper()
	ctx := by(t)
	var all []*postrider.Delivery
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func ack(t *testing.T, deliveries ...*postrider.Delivery) {
	t.Helper()
	for _, d := range deliveries {
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("acknowledge %s: %v", d.Message.ID, err)
		}
	}
}

func isLost(d *postrider.Delivery) bool {
	select {
	case <-d.Lost():
		return true
	default:
		return false
	}
}

// committed returns the offsets that the group has committed, by partition, and their metadata.
func (s *source) committed(t *testing.T) (offsets map[string]int64, marks map[string]string) {
	t.Helper()
	fetched, err := s.admin.FetchOffsets(by(t), s.topic)
	if err != nil {
		t.Fatal(err)
	}
	offsets, marks = make(map[string]int64), make(map[string]string)
	fetched.Each(func(o kadm.OffsetResponse) {
		name := fmt.Sprintf("%s/%d", o.Topic, o.Partition)
		offsets[name], marks[name] = o.At, o.Metadata
	})
	return offsets, marks
}

// TestCommitsNothingBeyondUnsettled settles messages from the last to the first.
func TestCommitsNothingBeyondUnsettled(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 40)
	sub, _ := s.join(t, nil)
	got := receive(t, sub, 40)
	first, last := make(map[string]*postrider.Delivery), make(map[string]int64)
	for _, d := range got {
		if p := d.Position.Partition; first[p] == nil {
			first[p] = d
		}
		last[d.Position.Partition] = d.Position.Offset
	}
	held := first[s.topic+"/0"]
	for i := len(got) - 1; i >= 0; i-- {
		if got[i] != held {
			ack(t, got[i])
		}
	}
	until(t, func() bool {
		offsets, _ := s.committed(t)
		return offsets[s.topic+"/1"] == last[s.topic+"/1"]+1 && offsets[s.topic+"/3"] == last[s.topic+"/3"]+1
	})
	if offsets, _ := s.committed(t); offsets[s.topic+"/0"] > 0 {
		t.Errorf("offset %d is committed, and the first message is not settled", offsets[s.topic+"/0"])
	}
	ack(t, held)
	until(t, func() bool {
		offsets, marks := s.committed(t)
		if id := held.Position.Incarnation; offsets[s.topic+"/0"] > 0 && marks[s.topic+"/0"] != "topic-id="+id {
			t.Errorf("the offset is marked %q, want the topic's ID %s", marks[s.topic+"/0"], id)
		}
		return offsets[s.topic+"/0"] == last[s.topic+"/0"]+1
	})
}

// TestOffsetOfAnotherTopic checks that the offset of a deleted topic hides nothing of a recreated topic of the same
// name.
func TestOffsetOfAnotherTopic(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 40)
	sub, _ := s.join(t, nil)
	got := receive(t, sub, 40)
	ack(t, got...)
	if err := sub.Close(by(t)); err != nil {
		t.Fatal(err)
	}
	offsets, marks := s.committed(t)
	if _, err := s.admin.DeleteTopic(by(t), s.topic); err != nil {
		t.Fatal(err)
	}
	createTopic(t, s.address, s.topic, 4, nil)
	again := make(kadm.Offsets) // a commit that was in flight
	for p := range int32(4) {
		name := fmt.Sprintf("%s/%d", s.topic, p)
		again.Add(kadm.Offset{Topic: s.topic, Partition: p, At: offsets[name], LeaderEpoch: -1, Metadata: marks[name]})
	}
	until(t, func() bool { return s.admin.CommitAllOffsets(by(t), s.topic, again) == nil })
	s.publisher = open(t, s.address, kafkabroker.Config{Topic: s.topic})
	s.publish(t, 100, 20)
	sub, _ = s.join(t, nil)
	for _, d := range receive(t, sub, 20) {
		if n := d.Message.AggregateVersion; n < 100 || d.Position.Incarnation == got[0].Position.Incarnation {
			t.Errorf("message %d came, of incarnation %s", n, d.Position.Incarnation)
		}
	}
}

// TestRevokedPartitionIsDrained adds a member while another one works: messages settled in time are not redelivered.
func TestRevokedPartitionIsDrained(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.publish(t, 0, 40)
	patient := func(c *kafkabroker.SubscriberConfig) { c.RevokeWait = 50 * time.Second }
	one, _ := s.join(t, patient)
	under := receive(t, one, 40)
	two, _ := s.join(t, patient)
	var second []*postrider.Delivery
	var reading sync.WaitGroup
	reading.Go(func() { second = receive(t, two, 1) })
	until(t, func() bool { // until the group has assigned partitions to the new member
		described, err := s.admin.DescribeGroups(by(t), s.topic)
		return err == nil && described[s.topic].State == "Stable" && len(described[s.topic].Members) == 2
	})
	for _, d := range under {
		if isLost(d) {
			t.Errorf("message %s is lost while it may be settled", d.Message.ID)
		}
		ack(t, d)
	}
	var after []*postrider.Message
	for n := range 40 {
		after = append(after, message("orders", "late/"+strconv.Itoa(n), 1_000+n))
	}
	mustPublish(t, s.publisher, after...)
	reading.Wait()
	for _, d := range second {
		if d.Message.AggregateVersion < 1_000 {
			t.Errorf("message %s was settled, and comes again at another member", d.Message.ID)
		}
	}
}

// TestOthersRecords reads records that no CloudEvents producer wrote, with and without a custom decoder.
func TestOthersRecords(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	client := plainClient(t, s.address)
	record := func(headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Topic: s.topic, Key: []byte("order/1"), Value: []byte("x"), Headers: headers}
	}
	event := []kgo.RecordHeader{
		{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("1")}, {Key: "ce_source", Value: []byte("/s")},
		{Key: "ce_type", Value: []byte("t")},
	}
	structured := record(kgo.RecordHeader{Key: "content-type", Value: []byte("application/cloudevents+json")})
	structured.Value = []byte(`{"specversion":"1.0","id":"2","source":"/s","type":"t"}`)
	if err := client.ProduceSync(by(t), record(event...), structured, record()).FirstErr(); err != nil {
		t.Fatal(err)
	}
	sub, _ := s.join(t, nil)
	got := receive(t, sub, 3)
	for i, id := range []string{"1", "2"} {
		if d := got[i]; d.Err != nil || d.Message.ID != id || d.Message.Key != "order/1" {
			t.Errorf("got %+v and %v, want event %s with the record's key", d.Message, d.Err, id)
		}
	}
	if d := got[2]; d.Err == nil || string(d.Raw) != "x" || d.Message.Key != "order/1" || d.Message.Topic != s.topic {
		t.Errorf("got %+v, raw %q, error %v, want what came and an error", d.Message, d.Raw, d.Err)
	}
	own, _ := s.join(t, func(c *kafkabroker.SubscriberConfig) {
		c.Group += ".own"
		c.Decode = func(r *kgo.Record) (*postrider.Message, error) {
			if len(r.Headers) > 0 {
				return nil, errors.New("no")
			}
			return &postrider.Message{ID: strconv.FormatInt(r.Offset, 10), Key: string(r.Key), Payload: r.Value}, nil
		}
	})
	if got := receive(t, own, 3); got[0].Err == nil || got[2].Err != nil || got[2].Message.ID != "2" {
		t.Errorf("got %+v, want what the decoder made", got[2])
	}
	broken, _ := s.join(t, func(c *kafkabroker.SubscriberConfig) {
		c.Group += ".broken"
		c.Decode = func(r *kgo.Record) (*postrider.Message, error) {
			switch r.Offset {
			case 0:
				panic("no schema")
			case 1:
				return nil, nil
			}
			var none *noError
			return nil, none
		}
	})
	for i, d := range receive(t, broken, 3) {
		want := []string{"no schema", "neither", "noError"}[i]
		if d.Err == nil || !strings.Contains(d.Err.Error(), want) || d.Message == nil || d.Message.Key == "" || d.Raw == nil {
			t.Errorf("record %d: %+v, error %v, want %q and what could be read", i, d.Message, d.Err, want)
		}
	}
}

// noError panics as a nil pointer.
type noError struct{ text string }

func (e *noError) Error() string { return e.text }

// TestDelayDoesNotStarveOthers nacks a message with a delay while many messages are queued after it in its partition.
func TestDelayDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	var many []*postrider.Message
	for n := range 4_000 {
		many = append(many, message("orders", "order/0", n))
	}
	mustPublish(t, s.publisher, many...)
	sub, _ := s.join(t, nil)
	first := receive(t, sub, 1)[0]
	if err := first.Nack(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	s.publish(t, 1, 400)
	want := 0
	for _, r := range records(t, s.address, s.topic) {
		if fmt.Sprintf("%s/%d", s.topic, r.Partition) != first.Position.Partition {
			want++
		}
	}
	for _, d := range receive(t, sub, want) {
		if d.Position.Partition == first.Position.Partition {
			t.Fatalf("message %s came before its time", d.Message.ID)
		}
		ack(t, d)
	}
}

// TestDeletedUnread checks that deleted unread messages are reported, and that reading continues.
func TestDeletedUnread(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	var msgs []*postrider.Message
	for n := range 20 {
		msgs = append(msgs, message("orders", "order/1", n))
	}
	mustPublish(t, s.publisher, msgs...)
	sub, _ := s.join(t, nil)
	ack(t, receive(t, sub, 20)[:5]...)
	if err := sub.Close(by(t)); err != nil {
		t.Fatal(err)
	}
	start := make(kadm.Offsets)
	offsets, _ := s.committed(t)
	for name, at := range offsets {
		if at == 5 {
			number, err := strconv.Atoi(strings.TrimPrefix(name, s.topic+"/"))
			if err != nil {
				t.Fatal(err)
			}
			start.AddOffset(s.topic, int32(number), 12, -1)
		}
	}
	if _, err := s.admin.DeleteRecords(by(t), start); err != nil || len(start) != 1 {
		t.Fatalf("delete records before %v: %v", start, err)
	}
	var log bytes.Buffer
	sub, _ = s.join(t, func(c *kafkabroker.SubscriberConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if first := receive(t, sub, 8)[0]; first.Position.Offset != 12 {
		t.Errorf("reading goes on at offset %d, want 12", first.Position.Offset)
	}
	if err := sub.Close(by(t)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "deleted messages that the group had not read") || !strings.Contains(log.String(), "first=5 last=11") {
		t.Errorf("the log does not tell what was deleted: %s", log.String())
	}
}

func TestSubscribeToWhatIsMissing(t *testing.T) {
	t.Parallel()
	address, topic := sharedServer(t), newPrefix()+"missing"
	cfg := kafkabroker.SubscriberConfig{Group: topic, Topics: []string{topic}}
	sub, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sub.Subscribe(by(t))
	wantError(t, err, "topic "+topic+" does not exist", "kafka-topics.sh --create")
	if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
		t.Errorf("%v is made by Unavailable, and nobody would read it", err)
	}
	cfg.Topics = []string{strings.Repeat("ü", 100)}
	_, err = kafkabroker.OpenSubscriber(t.Context(), "kafka://"+address, cfg)
	wantError(t, err, "800 bytes")
}
