package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
)

// broker is what the demo publishes to and reads from: one of its own in this process, which it stops and starts, or one
// that exists, from which it cuts the relay's connections. What it makes there is called after Config.Name.
type broker interface {
	// publisher connects the relay's publisher.
	publisher(ctx context.Context) (publisher, error)
	// consume hands on what arrives, the messages of a key in their order, until ctx ends. Its error is that nothing can be
	// read, or that of take.
	consume(ctx context.Context, take func(*postrider.Message) error) error
	// away takes the broker away and says how, back brings it back.
	away() string
	back() error
	// end removes what the demo has made, and ends what it has started.
	end(ctx context.Context) error
}

type publisher interface {
	postrider.Publisher
	io.Closer
}

// InProcess is a Config.Publisher: a webhook whose receiver is in this process.
const InProcess = "webhook:"

// startTimeout is how long a broker may take to answer.
const startTimeout = 10 * time.Second

// openBroker opens the broker that a configuration names. Of the options in the URL those that say how to connect count.
func openBroker(cfg Config) (broker, error) {
	switch cfg.Publisher {
	case "":
		return startNATS(cfg.Dir, cfg.Name)
	case InProcess:
		return startReceiver()
	}
	kind, err := config.BrokerOf(cfg.Publisher)
	if err != nil {
		return nil, err
	}
	switch kind.Name {
	case "nats":
		return &natsBroker{url: cfg.Publisher, stream: cfg.Name}, nil
	case "kafka":
		return newKafka(cfg.Publisher, cfg.Name)
	case "redis":
		return newRedis(cfg.Publisher, cfg.Name)
	case "rabbitmq":
		return newRabbitMQ(cfg.Publisher, cfg.Name)
	default:
		return nil, fmt.Errorf("what arrives at somebody else's %s cannot be read back and compared; for a receiver in this process write: --publisher %s",
			kind.Name, InProcess)
	}
}

// cutOff says how a broker of somebody else is taken away.
const cutOff = "the relay's connection is cut and cannot be made again"

// readAtOnce is how many messages the consumer takes at a time.
const readAtOnce = 100

// consumeFrom reads by a subscriber until ctx ends. What could not be acknowledged comes again, and counts as a duplicate.
func consumeFrom(ctx context.Context, s postrider.Subscriber, take func(*postrider.Message) error) (err error) {
	var sub postrider.Subscription
	for sub == nil {
		if sub, err = s.Subscribe(ctx); err != nil && !waits(ctx, err) {
			return ending(ctx, err)
		}
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		if closed := sub.Close(closing); err == nil && closed != nil {
			err = fmt.Errorf("end the consumer: %w", closed)
		}
	}()
	for {
		deliveries, err := sub.Receive(ctx, readAtOnce)
		if err != nil && !waits(ctx, err) {
			return ending(ctx, err)
		}
		for _, d := range deliveries {
			if err := errors.Join(d.Err, take(d.Message)); err != nil {
				return fmt.Errorf("consume: %w", err)
			}
			_ = d.Ack(ctx)
		}
	}
}

// waits says whether the broker could not be reached, in which case it waits a moment.
func waits(ctx context.Context, err error) bool {
	if ctx.Err() != nil || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
	return true
}

// ending is the error of a consumer that ends; that its time is over is none.
func ending(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("consume: %w", err)
}

// factOf is what a message of the shop says about itself.
func factOf(m *postrider.Message) (fact, error) {
	var d detail
	if err := json.Unmarshal(m.Payload, &d); err != nil {
		return fact{}, fmt.Errorf("message %s is not the shop's: %w", m.ID, err)
	}
	return fact{ID: m.ID, Key: d.Customer, N: d.Number}, nil
}

// tlsConfig is for connections to serverName, with certificates of files.
func tlsConfig(serverName, ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}
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
