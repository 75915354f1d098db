package kafkabroker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// TestNewLeaderIsNotATruncatedLog: for a moment after an election, a leader returns nothing of what it has, because it does not know yet how
// much of it is committed. Nothing is lost.
func TestNewLeaderIsNotATruncatedLog(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	address := cluster.ListenAddrs()[0]
	if err := plainClient(t, address).ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+address, kafkabroker.SubscriberConfig{Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	parts, err := s.Partitions(t.Context())
	if err != nil || len(parts) != 1 {
		t.Fatalf("partitions %+v, %v", parts, err)
	}
	reader, err := s.ReadLog(t.Context(), parts[0], -1)
	if err != nil {
		t.Fatal(err)
	}
	read, err := reader.Read(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := req.(*kmsg.FetchRequest)
		resp := asked.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition()) // whose high watermark is 0
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if state, err := s.VerifyPosition(t.Context(), read[0].Position); state != postrider.PositionKept || err != nil {
		t.Errorf("verified %v, %v; want it kept", state, err)
	}
}
