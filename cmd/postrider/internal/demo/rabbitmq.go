package demo

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	"github.com/postrider/postrider/cmd/postrider/internal/cleanup"
)

// rabbitMQ is an existing RabbitMQ server, with an exchange and a queue for the demo.
type rabbitMQ struct {
	url     string
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
	server, err := cleanup.FirstServer(base)
	if err != nil {
		return nil, fmt.Errorf("the URL of RabbitMQ: %w", err)
	}
	b := &rabbitMQ{url: address, server: server, connect: cfg.Connection, name: name}
	b.connect.Name, b.connect.Logger = "postrider demo", slog.New(slog.DiscardHandler)
	port := server.Port()
	if server.Scheme == "amqps" {
		if b.tls, err = cleanup.TLSConfig(server.Hostname(), cfg.CAFile, cfg.CertFile, cfg.KeyFile); err != nil {
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
	return cleanup.Queues(ctx, b.url, b.name, b.name)
}
