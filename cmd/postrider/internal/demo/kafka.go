package demo

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	"github.com/postrider/postrider/cmd/postrider/internal/cleanup"
)

// kafkaBroker is an existing Kafka cluster, with a topic for the demo.
type kafkaBroker struct {
	url, servers string
	connect      kafkabroker.Connection
	topic        string
	gate         gate
}

func newKafka(url, topic string) (*kafkaBroker, error) {
	servers, cfg, err := kafkabroker.ParseURL(url, kafkabroker.Config{})
	if err != nil {
		return nil, err
	}
	cfg.Connection.ClientID, cfg.Connection.Logger = "postrider-demo", slog.New(slog.DiscardHandler)
	return &kafkaBroker{url: url, servers: servers, connect: cfg.Connection, topic: topic}, nil
}

func (b *kafkaBroker) away() string {
	b.gate.close()
	return cutOff
}

func (b *kafkaBroker) back() error {
	b.gate.open()
	return nil
}

// OnBrokerConnect implements kgo.HookBrokerConnect: brokers advertise their own addresses, so a proxy cannot intercept
// the client's connections, but they can be closed as soon as they are open.
func (b *kafkaBroker) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if err == nil {
		_ = b.gate.pass(conn) // the client finds it closed
	}
}

func (b *kafkaBroker) publisher(ctx context.Context) (publisher, error) {
	cfg := b.config()
	cfg.Options = []kgo.Opt{kgo.WithHooks(b)}
	return kafkabroker.Open(ctx, b.servers, cfg)
}

func (b *kafkaBroker) config() kafkabroker.Config {
	return kafkabroker.Config{Connection: b.connect, Topic: b.topic, Create: true, Partitions: 4, PublishTimeout: 2 * time.Second}
}

func (b *kafkaBroker) consume(ctx context.Context, take func(*postrider.Message) error) error {
	s, err := kafkabroker.OpenSubscriber(ctx, b.servers, kafkabroker.SubscriberConfig{
		Connection: b.connect, Group: b.topic, Topics: []string{b.topic},
	})
	if err != nil {
		return ending(ctx, err)
	}
	return consumeFrom(ctx, s, take)
}

// end removes the topic and the consumer group.
func (b *kafkaBroker) end(ctx context.Context) error {
	b.gate.open()
	return cleanup.Topics(ctx, b.url, b.topic, b.topic)
}
