package kafkabroker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestSubscriberConformance(t *testing.T) {
	t.Parallel()
	const commits = "offsets are committed, a second later at most, up to the first message that is not settled"
	brokertest.RunSubscriber(t, brokertest.SubscriberHarness{
		Features: brokertest.SubscriberFeatures{
			NoDeliveryCount: "Kafka does not count", NoRedeliveredFlag: "Kafka does not know what it has delivered",
			CumulativeAcks: commits, UnconfirmedAcks: commits,
		},
		New: func(t *testing.T) brokertest.SubscriberEnv {
			if strings.Contains(t.Name(), "restart") {
				s := startServer(t, "")
				env, _ := inboundEnv(t, s.address)
				env.Stop, env.Start = s.stop, s.start
				return env
			}
			env, _ := inboundEnv(t, sharedServer(t))
			return env
		},
	})
}

const sessionTimeout = 3 * time.Second

// inboundEnv returns an environment, and the prefix of its topics.
func inboundEnv(t *testing.T, address string) (_ brokertest.SubscriberEnv, prefix string) {
	prefix = newPrefix()
	out := newProxy(t, address)
	links := []*proxy{out}
	p, err := kafkabroker.Open(by(t), "kafka://"+out.Address(), kafkabroker.Config{
		Connection: through(out), Prefix: prefix, Create: true, Partitions: 4, PublishTimeout: 15 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close publisher: %v", err)
		}
	})
	const topic = "orders"
	name := kafkabroker.TopicName(prefix, topic)
	return brokertest.SubscriberEnv{
		Topic:     topic,
		Publisher: p,
		Member: func(t testing.TB, group string) brokertest.Member {
			link := newProxy(t, address)
			links = append(links, link)
			return brokertest.Member{
				Subscriber: openSubscriber(t, link, kafkabroker.SubscriberConfig{
					Group: prefix + group, Topics: []string{topic}, Prefix: prefix, Create: true, Partitions: 4,
				}),
				Cut: link.Sever, Restore: link.Restore,
			}
		},
		Poison: func(t testing.TB, m *postrider.Message) {
			if err := plainClient(t, address).ProduceSync(by(t), poison(name, m)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		},
		Recreate: func(t testing.TB) {
			admin := kadm.NewClient(plainClient(t, address))
			if _, err := admin.DeleteTopic(by(t), name); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { // until the broker knows it
				listed, err := admin.ListTopics(by(t), name)
				return err == nil && errors.Is(listed[name].Err, kerr.UnknownTopicOrPartition)
			})
		},
		Stop: func(testing.TB) {
			for _, link := range links {
				link.Sever()
			}
		},
		Start: func(testing.TB) {
			for _, link := range links {
				link.Restore()
			}
		},
	}, prefix
}

// openSubscriber opens a subscriber with short timeouts.
func openSubscriber(t testing.TB, link *proxy, cfg kafkabroker.SubscriberConfig) postrider.Subscriber {
	t.Helper()
	cfg.Connection = through(link, kgo.MetadataMaxAge(time.Second))
	cfg.SessionTimeout = sessionTimeout
	cfg.RevokeWait = 300 * time.Millisecond
	cfg.CommitEvery = 100 * time.Millisecond
	s, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+link.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// poison is the record of a message, with a time that is none.
func poison(topic string, m *postrider.Message) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: []byte(m.Key), Value: m.Payload}
	for name, value := range (postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}).Headers(m) {
		if name == "ce_time" {
			value = "yesterday"
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r
}
