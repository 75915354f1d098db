package kafkabroker_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	address, prefix := sharedServer(t), newPrefix()
	_, err := kafkabroker.Open(by(t), "kafka://"+address, kafkabroker.Config{Topic: prefix + "missing"})
	wantError(t, err, "topic "+prefix+"missing does not exist", "kafka-topics.sh --create --topic "+prefix+"missing")
	createTopic(t, address, prefix+"there", 1, nil)
	p := open(t, address, kafkabroker.Config{Prefix: prefix})
	errs := p.Publish(t.Context(), []*postrider.Message{message("missing", "a", 1), message("there", "b", 1), message("missing", "", 1)})
	if errs == nil || errs[1] != nil {
		t.Fatalf("got %v, want errors of the topic that is missing", errs)
	}
	for _, i := range []int{0, 2} {
		wantError(t, errs[i], "does not exist")
		if kind := postrider.OutcomeOf(errs[i]).Kind; kind != postrider.Retried {
			t.Errorf("outcome %v of %v, want one that is retried", kind, errs[i])
		}
	}
	errs = p.Publish(t.Context(), []*postrider.Message{message(strings.Repeat("t", 249), "a", 1)})
	if errs == nil || postrider.OutcomeOf(errs[0]).Kind != postrider.DeadLettered {
		t.Errorf("got %v for a topic whose name is too long, want dead", errs)
	}
}

// TestTopicDeleted checks that the publisher notices that a topic is deleted and then recreated.
func TestTopicDeleted(t *testing.T) {
	t.Parallel()
	address, prefix := sharedServer(t), newPrefix()
	admin := createTopic(t, address, prefix+"gone", 2, nil)
	p := open(t, address, kafkabroker.Config{Prefix: prefix})
	mustPublish(t, p, message("gone", "a", 1))
	if _, err := admin.DeleteTopic(by(t), prefix+"gone"); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		errs := p.Publish(t.Context(), []*postrider.Message{message("gone", "a", 2)})
		return errs != nil && strings.Contains(errs[0].Error(), "does not exist")
	})
	createTopic(t, address, prefix+"gone", 2, nil)
	until(t, func() bool { return p.Publish(t.Context(), []*postrider.Message{message("gone", "a", 3)}) == nil })
}

// until waits for a condition that depends on a server.
func until(t testing.TB, condition func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatal("waited five minutes in vain")
		}
	}
}

func TestCompactedTopicWantsKeys(t *testing.T) {
	t.Parallel()
	address, topic := sharedServer(t), newPrefix()+"compacted"
	createTopic(t, address, topic, 1, map[string]string{"cleanup.policy": "compact"})
	p := open(t, address, kafkabroker.Config{Topic: topic})
	errs := p.Publish(t.Context(), []*postrider.Message{message("x", "a", 1), message("x", "", 1)})
	if errs == nil || errs[0] != nil || postrider.OutcomeOf(errs[1]).Kind != postrider.DeadLettered {
		t.Errorf("got %v, want the message without a key dead", errs)
	}
	tombstone := message("x", "a", 2)
	tombstone.Payload = nil
	mustPublish(t, p, tombstone)
	for _, r := range records(t, address, topic) {
		if r.Value == nil {
			t.Error("a message without payload is a tombstone")
		}
	}
}

// TestTopicTakesLessThanBefore lowers the limit of a topic without the publisher's knowledge: messages that fit are
// delivered.
func TestTopicTakesLessThanBefore(t *testing.T) {
	t.Parallel()
	address, topic := sharedServer(t), newPrefix()+"limited"
	admin := createTopic(t, address, topic, 1, map[string]string{"max.message.bytes": "20000"})
	p := open(t, address, kafkabroker.Config{Topic: topic, Compress: "none"})
	if got := p.Capabilities().MaxMessageBytes; got > 20_000 || got < 10_000 {
		t.Errorf("the largest message has %d bytes, want nearly 20,000", got)
	}
	mustPublish(t, p, message("limited", "a", 0))
	limit := "3000"
	if _, err := admin.AlterTopicConfigs(by(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, topic); err != nil {
		t.Fatal(err)
	}
	var msgs []*postrider.Message
	for n := range 30 {
		msgs = append(msgs, message("limited", "key"+strconv.Itoa(n%5), n/5+1))
	}
	msgs[12].Payload = []byte(strings.Repeat("x", 4_000)) // the third of key2
	msgs[12].ContentType = "text/plain"
	var errs []error
	until(t, func() bool { // until the brokers have applied it
		errs = p.Publish(t.Context(), msgs)
		return errs != nil
	})
	for i, err := range errs {
		switch kind := postrider.OutcomeOf(err).Kind; {
		case i == 12:
			wantError(t, err, kerr.MessageTooLarge.Message)
			if kind != postrider.DeadLettered {
				t.Errorf("outcome %v of a message that is too large, want dead", kind)
			}
		case msgs[i].Key == "key2" && i > 12:
			if kind != postrider.Retried || err == nil {
				t.Errorf("message %s, after a dead one: %v", msgs[i].ID, err)
			}
		case err != nil:
			t.Errorf("message %s: %v", msgs[i].ID, err)
		}
	}
}

// TestPartitionTakesNothing checks that a partition without available replicas stops only its own messages, and that
// these count no attempt. A Kafka with a single broker has no such partitions.
func TestPartitionTakesNothing(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "starved", "fed"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if err := errors.Join(cluster.MoveTopicPartition("starved", 0, 0), cluster.MoveTopicPartition("fed", 0, 1)); err != nil {
		t.Fatal(err)
	}
	cluster.ControlKey(produceKey, func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() != 0 {
			return nil, nil, false
		}
		return notEnoughReplicas(r.(*kmsg.ProduceRequest)), nil, true
	})
	p := open(t, cluster.ListenAddrs()[0], kafkabroker.Config{PublishTimeout: time.Second})
	errs := p.Publish(t.Context(), []*postrider.Message{message("starved", "a", 1), message("fed", "b", 1), message("starved", "a", 2)})
	if errs == nil || errs[1] != nil {
		t.Fatalf("got %v, want errors of the starved topic only", errs)
	}
	wantError(t, errs[0], "broker 0, which leads partition 0, takes nothing for it")
	if o := postrider.OutcomeOf(errs[0]); o.Kind != postrider.Snoozed || o.After <= 0 {
		t.Errorf("outcome %+v of %v, want snoozed", o, errs[0])
	}
	if errs[2] == nil {
		t.Error("the follower is accepted")
	}
}

func notEnoughReplicas(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
