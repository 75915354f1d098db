package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// rabbitMQ is an existing RabbitMQ server, with an exchange and a queue for the demo.
type rabbitMQ struct {
	server  *url.URL // the first server of the URL, without options
	connect rabbitmqbroker.Connection
	tls     *tls.Config // nil without encryption
	name    string
	proxy   *proxy
}

func newRabbitMQ(address, name string) (*rabbitMQ, error) {
	base, cfg, err := rabbitmqbroker.ParseURL(address, rabbitmqbroker.Config{})
	if err != nil {
		return nil, err
	}
	server, err := firstServer(base)
	if err != nil {
		return nil, fmt.Errorf("the URL of RabbitMQ: %w", err)
	}
	b := &rabbitMQ{server: server, connect: cfg.Connection, name: name}
	b.connect.Name, b.connect.Logger = "postrider demo", slog.New(slog.DiscardHandler)
	port := server.Port()
	if server.Scheme == "amqps" {
		if b.tls, err = tlsConfig(server.Hostname(), cfg.CAFile, cfg.CertFile, cfg.KeyFile); err != nil {
			return nil, err
		}
		b.connect.TLS, b.connect.CAFile, b.connect.CertFile, b.connect.KeyFile = b.tls, "", "", ""
		if port == "" {
			port = "5671"
		}
	} else if port == "" {
		port = "5672"
	}
	b.proxy, err = startProxy(net.JoinHostPort(server.Hostname(), port))
	return b, err
}

// firstServer returns a URL with only the first of its servers.
func firstServer(base string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(base, "://")
	authority, path, _ := strings.Cut(rest, "/")
	first, _, _ := strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ",")
	u, err := url.Parse(scheme + "://" + authority[:strings.LastIndexByte(authority, '@')+1] + first + "/" + path)
	if err != nil {
		return nil, errors.New("it cannot be read; percent-encode what is special in user, password and path") // err would repeat them
	}
	return u, nil
}

func (b *rabbitMQ) away() string {
	b.proxy.gate.close()
	return cutOff
}

func (b *rabbitMQ) back() error {
	b.proxy.gate.open()
	return nil
}

func (b *rabbitMQ) publisher(ctx context.Context) (publisher, error) {
	through := *b.server
	through.Host = b.proxy.address()
	return rabbitmqbroker.Open(ctx, through.String(), rabbitmqbroker.Config{
		Connection: b.connect, Exchange: b.name, Queue: b.name, PublishTimeout: 2 * time.Second,
	})
}

func (b *rabbitMQ) consume(ctx context.Context, take func(*postrider.Message) error) error {
	s, err := rabbitmqbroker.OpenSubscriber(ctx, b.server.String(), rabbitmqbroker.SubscriberConfig{Connection: b.connect, Queue: b.name, Exchange: b.name})
	if err != nil {
		return ending(ctx, err)
	}
	defer s.Close()
	return consumeFrom(ctx, s, take)
}

// end removes exchange and queue.
func (b *rabbitMQ) end(ctx context.Context) error {
	b.proxy.end()
	if err := b.remove(ctx); err != nil {
		return fmt.Errorf("remove the exchange and the queue %s: %w; remove them by hand: rabbitmqctl delete_queue %s", b.name, err, b.name)
	}
	return nil
}

func (b *rabbitMQ) remove(ctx context.Context) error {
	server := *b.server
	if b.connect.User != "" {
		server.User = url.UserPassword(b.connect.User, b.connect.Password)
	}
	vhost := strings.TrimPrefix(server.Path, "/")
	if vhost == "" {
		vhost = "/"
	}
	conn, err := amqp.DialConfig(server.String(), amqp.Config{Vhost: vhost, TLSClientConfig: b.tls})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := channel.QueueDelete(b.name, false, false, false); err != nil {
		return err
	}
	return channel.ExchangeDelete(b.name, false, false)
}
