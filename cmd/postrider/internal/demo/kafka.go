package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// kafkaBroker is an existing Kafka cluster, with a topic for the demo.
type kafkaBroker struct {
	servers string
	connect kafkabroker.Connection
	topic   string
	gate    gate
}

func newKafka(url, topic string) (*kafkaBroker, error) {
	servers, cfg, err := kafkabroker.ParseURL(url, kafkabroker.Config{})
	if err != nil {
		return nil, err
	}
	cfg.Connection.ClientID, cfg.Connection.Logger = "postrider-demo", slog.New(slog.DiscardHandler)
	return &kafkaBroker{servers: servers, connect: cfg.Connection, topic: topic}, nil
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
	if err := b.remove(ctx); err != nil {
		return fmt.Errorf("remove the topic %s: %w; remove it by hand: kafka-topics.sh --delete --topic %s", b.topic, err, b.topic)
	}
	return nil
}

// remove uses the client of a publisher, which supports all connection options.
func (b *kafkaBroker) remove(ctx context.Context) error {
	var client *kgo.Client
	cfg := b.config()
	cfg.Options = []kgo.Opt{kgo.WithHooks(newClient(func(c *kgo.Client) { client = c }))}
	p, err := kafkabroker.Open(ctx, b.servers, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	admin := kadm.NewClient(client)
	_, groupErr := admin.DeleteGroup(ctx, b.topic)
	if errors.Is(groupErr, kerr.GroupIDNotFound) { // nothing was consumed
		groupErr = nil
	}
	_, err = admin.DeleteTopic(ctx, b.topic)
	return errors.Join(err, groupErr)
}

// newClient receives the client that it is a hook of.
type newClient func(*kgo.Client)

// OnNewClient implements kgo.HookNewClient.
func (f newClient) OnNewClient(c *kgo.Client) { f(c) }
