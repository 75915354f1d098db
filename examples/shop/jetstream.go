package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// Stream is the JetStream stream between the services.
const Stream = "SHOP"

// JetStream is a Broker: a stream of a NATS server, which the services read as a log.
type JetStream struct {
	// URL is the address of the server.
	URL string
	// Stream is the name of the stream. Default: Stream.
	Stream string
	// MaxAge is how long the stream keeps messages. Default: 24 h.
	MaxAge time.Duration
	Logger *slog.Logger
}

// Publisher implements Broker.
func (j JetStream) Publisher(ctx context.Context, service string) (Publisher, error) {
	url, cfg, err := j.config(service)
	if err != nil {
		return nil, err
	}
	return natsbroker.Open(ctx, url, cfg)
}

// Subscriber implements Broker. Without a durable consumer, the position of a service is in its own database.
func (j JetStream) Subscriber(ctx context.Context, consumer string, topics []string) (Subscriber, error) {
	url, cfg, err := j.config(consumer)
	if err != nil {
		return nil, err
	}
	return natsbroker.OpenSubscriber(ctx, url, natsbroker.SubscriberConfig{Config: cfg, Topics: topics})
}

func (j JetStream) config(service string) (url string, c natsbroker.Config, err error) {
	if url, c, err = natsbroker.ParseURL(j.URL, natsbroker.Config{}); err != nil {
		return "", c, err
	}
	c.Stream, c.MaxAge, c.Name, c.Logger = cmp.Or(j.Stream, Stream), cmp.Or(j.MaxAge, 24*time.Hour), "shop "+service, j.Logger
	return url, c, nil
}

// startTimeout is how long a server may take to start.
const startTimeout = 2 * time.Minute

// StartJetStream starts a NATS server in this process, with its data in dir, so that nothing needs to be installed. It listens on a
// port of the loopback interface, by default a free one.
func StartJetStream(dir string, port int) (url string, stop func(), err error) {
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "shop", Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return "", nil, fmt.Errorf("start the JetStream server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return "", nil, errors.New("start the JetStream server: no answer within " + startTimeout.String())
	}
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
	}, nil
}
