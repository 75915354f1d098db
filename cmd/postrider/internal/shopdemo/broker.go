package shopdemo

import (
	"context"
	"fmt"
	"log/slog"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/cmd/postrider/internal/cleanup"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/shop"
)

// site is the broker between the services. What it creates there begins with a name, so that nothing of others is touched.
type site interface {
	shop.Broker
	// remove removes what was created.
	remove(ctx context.Context) error
}

// siteOf is the broker of a URL. Of the URL's options, those of the connection apply.
func siteOf(address, name string, logger *slog.Logger) (site, error) {
	kind, err := config.BrokerOf(address)
	if err != nil {
		return nil, err
	}
	switch kind.Name {
	case "nats":
		return jetStream{shop.JetStream{URL: address, Stream: name, Logger: logger}}, nil
	case "kafka":
		return kafka{address, name, logger}, nil
	case "redis":
		return redis{address, name, logger}, nil
	case "rabbitmq":
		return rabbitMQ{address, name, logger}, nil
	default:
		return nil, fmt.Errorf("the services of the shop cannot read from a %s; write the URL of NATS, Kafka, RabbitMQ or Redis", kind.Name)
	}
}

// CheckPublisher returns an error if the shop cannot run on the broker of a URL. It does not connect.
func CheckPublisher(address string) error {
	_, err := siteOf(address, "", nil)
	return err
}

// jetStream is a stream of a NATS server.
type jetStream struct{ shop.JetStream }

func (j jetStream) remove(ctx context.Context) error { return cleanup.Stream(ctx, j.URL, j.Stream) }

// kafka has topics of a Kafka cluster, which the services read as logs.
type kafka struct {
	url, name string
	logger    *slog.Logger
}

// kafkaPartitions is the number of partitions of each topic.
const kafkaPartitions = 4

func (k kafka) config() (servers string, c kafkabroker.Config, err error) {
	servers, c, err = kafkabroker.ParseURL(k.url, kafkabroker.Config{})
	c.Topic, c.Prefix, c.Create, c.Partitions, c.Logger = "", k.name+".", true, kafkaPartitions, k.logger
	return servers, c, err
}

func (k kafka) Publisher(ctx context.Context, _ string) (shop.Publisher, error) {
	servers, c, err := k.config()
	if err != nil {
		return nil, err
	}
	return kafkabroker.Open(ctx, servers, c)
}

func (k kafka) Subscriber(ctx context.Context, _ string, topics []string) (shop.Subscriber, error) {
	servers, c, err := k.config()
	if err != nil {
		return nil, err
	}
	return kafkabroker.OpenSubscriber(ctx, servers, kafkabroker.SubscriberConfig{
		Connection: c.Connection, Topics: topics, Prefix: c.Prefix, Create: true, Partitions: c.Partitions, Replicas: c.Replicas,
		LagGroup: kafkabroker.NoLagGroup,
	})
}

func (k kafka) remove(ctx context.Context) error { return cleanup.Topics(ctx, k.url, "", k.name+".") }

// redis has streams of a Redis server, which the services read as logs.
type redis struct {
	url, name string
	logger    *slog.Logger
}

func (r redis) config() (server string, c redisbroker.Config, err error) {
	server, c, err = redisbroker.ParseURL(r.url, redisbroker.Config{})
	c.Prefix, c.Partitions, c.MaxLen, c.Logger = r.name+":", 0, 0, r.logger
	return server, c, err
}

func (r redis) Publisher(ctx context.Context, _ string) (shop.Publisher, error) {
	server, c, err := r.config()
	if err != nil {
		return nil, err
	}
	return redisbroker.Open(ctx, server, c)
}

func (r redis) Subscriber(ctx context.Context, _ string, topics []string) (shop.Subscriber, error) {
	server, c, err := r.config()
	if err != nil {
		return nil, err
	}
	return redisbroker.OpenSubscriber(ctx, server, redisbroker.SubscriberConfig{Config: c, Topics: topics})
}

func (r redis) remove(ctx context.Context) error { return cleanup.Keys(ctx, r.url, r.name+":") }

// rabbitMQ has an exchange of a RabbitMQ server, and a queue for each consumer. One process at a time reads a queue, so that the
// messages of a key stay in order.
type rabbitMQ struct {
	url, name string
	logger    *slog.Logger
}

func (r rabbitMQ) config() (server string, c rabbitmqbroker.Config, err error) {
	server, c, err = rabbitmqbroker.ParseURL(r.url, rabbitmqbroker.Config{})
	c.Exchange, c.ExchangePerTopic, c.AllowUnroutable, c.Logger = r.name, false, true, r.logger // not every event has a reader
	return server, c, err
}

func (r rabbitMQ) Publisher(ctx context.Context, _ string) (shop.Publisher, error) {
	server, c, err := r.config()
	if err != nil {
		return nil, err
	}
	return rabbitmqbroker.Open(ctx, server, c)
}

func (r rabbitMQ) Subscriber(ctx context.Context, consumer string, topics []string) (shop.Subscriber, error) {
	server, c, err := r.config()
	if err != nil {
		return nil, err
	}
	s, err := rabbitmqbroker.OpenSubscriber(ctx, server, rabbitmqbroker.SubscriberConfig{
		Connection: c.Connection, Exchange: r.name, Queue: r.queue(consumer), Topics: topics, Ordered: true,
	})
	if err != nil {
		return nil, err
	}
	declared, err := s.Subscribe(ctx) // what is published before the queue exists would be dropped
	if err != nil {
		return nil, err
	}
	return s, declared.Close(ctx)
}

func (r rabbitMQ) queue(consumer string) string { return r.name + "." + consumer }

func (r rabbitMQ) remove(ctx context.Context) error {
	queues := []string{r.queue("saga-replies")}
	for _, name := range append([]string{"view", "loyalty"}, shop.Names...) {
		queues = append(queues, r.queue(name), r.queue(name+"-events"))
	}
	return cleanup.Queues(ctx, r.url, r.name, queues...)
}
