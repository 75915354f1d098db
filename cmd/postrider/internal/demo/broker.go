package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/config"
)

// broker is the broker of the demo: either one started in this process, which the demo stops and starts, or an existing
// one, from which it cuts the relay's connections. Objects that it creates there are named Config.Name.
type broker interface {
	// publisher connects the relay's publisher.
	publisher(ctx context.Context) (publisher, error)
	// consume passes on messages, those of a key in order, until ctx ends. It fails if nothing can be read, or with the
	// error of take.
	consume(ctx context.Context, take func(*postrider.Message) error) error
	// away makes the broker unavailable and says how; back makes it available again.
	away() string
	back() error
	// end removes what the demo has created, and stops what it has started.
	end(ctx context.Context) error
}

type publisher interface {
	postrider.Publisher
	io.Closer
}

// InProcess is a Config.Publisher: a webhook whose receiver runs in this process.
const InProcess = "webhook:"

// startTimeout is how long a broker may take to start.
const startTimeout = 10 * time.Second

// openBroker opens the configured broker. Only the connection options in the URL apply.
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

// cutOff describes how an existing broker is made unavailable.
const cutOff = "the relay's connection is cut and cannot be made again"

// readAtOnce is how many messages the consumer reads at a time.
const readAtOnce = 100

// consumeFrom reads from a subscriber until ctx ends. Messages that could not be acknowledged are redelivered, and count
// as duplicates.
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

// waits reports whether the broker could not be reached; if so, it waits briefly.
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

// ending returns the error of a consumer that ends; the end of ctx is not an error.
func ending(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("consume: %w", err)
}

// factOf returns the fact in a message of the shop.
func factOf(m *postrider.Message) (fact, error) {
	var d detail
	if err := json.Unmarshal(m.Payload, &d); err != nil {
		return fact{}, fmt.Errorf("message %s is not the shop's: %w", m.ID, err)
	}
	return fact{ID: m.ID, Key: d.Customer, N: d.Number}, nil
}
