// Package cleanup removes what the demos have created on servers that are not theirs.
package cleanup

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

// errNoPrefix keeps a caller without a name from removing everything that a broker has.
var errNoPrefix = errors.New("nothing is removed without a prefix: all names begin with an empty one")

// Stream removes a JetStream stream, if it exists. It uses the connection of a publisher, which supports all options of the URL.
func Stream(ctx context.Context, address, name string) error {
	servers, cfg, err := natsbroker.ParseURL(address, natsbroker.Config{})
	if err != nil {
		return err
	}
	connected := make(chan *nats.Conn, 1)
	cfg.Stream, cfg.Prefix, cfg.Subjects, cfg.CheckOnly, cfg.Logger = name, "", nil, false, slog.New(slog.DiscardHandler)
	cfg.Options = append(cfg.Options, nats.ConnectHandler(func(c *nats.Conn) { connected <- c }))
	p, err := natsbroker.Open(ctx, servers, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	select {
	case conn := <-connected:
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove the stream %s: %w; remove it by hand: nats stream rm %s", name, err, name)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Topics removes the Kafka topics whose names begin with a prefix, and a consumer group. It uses the client of a publisher, which supports all
// options of the URL.
func Topics(ctx context.Context, address, group, prefix string) error {
	if prefix == "" {
		return errNoPrefix
	}
	servers, cfg, err := kafkabroker.ParseURL(address, kafkabroker.Config{})
	if err != nil {
		return err
	}
	var client *kgo.Client
	cfg.Topic, cfg.Logger = "", slog.New(slog.DiscardHandler)
	cfg.Options = append(cfg.Options, kgo.WithHooks(newClient(func(c *kgo.Client) { client = c })))
	p, err := kafkabroker.Open(ctx, servers, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	admin := kadm.NewClient(client)
	var errs []error
	if group != "" {
		if _, err := admin.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nothing was consumed
			errs = append(errs, fmt.Errorf("remove the consumer group %s: %w", group, err))
		}
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list the topics: %w", err))...)
	}
	for topic := range topics {
		if !strings.HasPrefix(topic, prefix) {
			continue
		}
		if _, err := admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("remove the topic %s: %w; remove it by hand: kafka-topics.sh --delete --topic %s", topic, err, topic))
		}
	}
	return errors.Join(errs...)
}

// newClient receives the client that it is a hook of.
type newClient func(*kgo.Client)

// OnNewClient implements kgo.HookNewClient.
func (f newClient) OnNewClient(c *kgo.Client) { f(c) }

// Keys removes the keys of a Redis server that begin with a prefix.
func Keys(ctx context.Context, address, prefix string) error {
	if prefix == "" {
		return errNoPrefix
	}
	base, cfg, err := redisbroker.ParseURL(address, redisbroker.Config{})
	if err != nil {
		return err
	}
	server, err := FirstServer(base)
	if err != nil {
		return fmt.Errorf("the URL of Redis: %w", err)
	}
	o := &redis.Options{Addr: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "6379")), Username: cfg.User, Password: cfg.Password, DB: cfg.DB}
	if user := server.User; user != nil && o.Username == "" && o.Password == "" {
		o.Username = user.Username()
		o.Password, _ = user.Password()
	}
	if server.Scheme == "rediss" {
		if o.TLSConfig, err = TLSConfig(server.Hostname(), cfg.CAFile, cfg.CertFile, cfg.KeyFile); err != nil {
			return err
		}
	}
	if number := strings.Trim(server.Path, "/"); number != "" && o.DB == 0 {
		if o.DB, err = strconv.Atoi(number); err != nil {
			return fmt.Errorf("database %q is not a number", number)
		}
	}
	client := redis.NewClient(o)
	defer client.Close()
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("remove the keys %s*: %w; remove them by hand", prefix, err)
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("remove the keys %s*: %w; remove them by hand", prefix, err)
	}
	return nil
}

// Queues removes queues of RabbitMQ and an exchange.
func Queues(ctx context.Context, address, exchange string, queues ...string) error {
	base, cfg, err := rabbitmqbroker.ParseURL(address, rabbitmqbroker.Config{})
	if err != nil {
		return err
	}
	server, err := FirstServer(base)
	if err != nil {
		return fmt.Errorf("the URL of RabbitMQ: %w", err)
	}
	var encryption *tls.Config
	if server.Scheme == "amqps" {
		if encryption, err = TLSConfig(server.Hostname(), cfg.CAFile, cfg.CertFile, cfg.KeyFile); err != nil {
			return err
		}
	}
	if cfg.User != "" {
		server.User = url.UserPassword(cfg.User, cfg.Password)
	}
	vhost := cmp.Or(strings.TrimPrefix(server.Path, "/"), "/")
	conn, err := amqp.DialConfig(server.String(), amqp.Config{Vhost: vhost, TLSClientConfig: encryption})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, queue := range queues {
		if _, err := channel.QueueDelete(queue, false, false, false); err != nil {
			return fmt.Errorf("remove the queue %s: %w; remove it by hand: rabbitmqctl delete_queue %s", queue, err, queue)
		}
	}
	if err := channel.ExchangeDelete(exchange, false, false); err != nil {
		return fmt.Errorf("remove the exchange %s: %w; remove it by hand", exchange, err)
	}
	return nil
}

// FirstServer returns a broker's URL with only the first of its servers.
func FirstServer(base string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(base, "://")
	authority, path, _ := strings.Cut(rest, "/")
	first, _, _ := strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ",")
	u, err := url.Parse(scheme + "://" + authority[:strings.LastIndexByte(authority, '@')+1] + first + "/" + path)
	if err != nil {
		return nil, errors.New("it cannot be read; percent-encode what is special in user, password and path") // err would repeat them
	}
	return u, nil
}

// TLSConfig is for connections to a server, with certificates from files.
func TLSConfig(server, ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(pem)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
