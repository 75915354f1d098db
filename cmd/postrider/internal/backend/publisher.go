package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/address"
)

// Uses is what a publisher may need of its process.
type Uses struct {
	// Relay is the name of the relay that publishes.
	Relay string
	// Attempts records attempts, if not nil.
	Attempts postrider.AttemptLog
	Logger   *slog.Logger
}

// Promises are a publisher's guarantees that are known without asking its broker.
type Promises struct {
	postrider.Capabilities
	// Size says what limits a message when MaxMessageBytes is 0.
	Size string
	// Notes are what an operator should know beyond the numbers.
	Notes []string
}

// adapter creates publishers for one kind of broker.
type adapter struct {
	open func(ctx context.Context, address string, u Uses) (closingPublisher, error)
	// promises parses the options in an address and returns the errors in them.
	promises func(address string) (Promises, error)
	// check returns errors that would prevent opening a publisher, as far as its address shows them.
	check func(address string) error
}

type closingPublisher interface {
	postrider.Publisher
	io.Closer
}

// adapters are keyed by the names in config.Brokers.
var adapters = map[string]adapter{
	"nats": {
		open: func(ctx context.Context, address string, u Uses) (closingPublisher, error) {
			return natsbroker.Open(ctx, address, natsbroker.Config{Logger: u.Logger})
		},
		promises: func(address string) (Promises, error) {
			_, c, err := natsbroker.ParseURL(address, natsbroker.Config{})
			return Promises{
				Capabilities: postrider.Capabilities{
					Ordered: true, DedupeWindow: cmp.Or(c.DedupeWindow, natsbroker.DefaultDedupeWindow),
				},
				Size:  "what the server takes (max_payload, 1 MiB by default) less 4 KiB for headers",
				Notes: []string{"acknowledged by one server, a message is on disk only if sync_interval says so; with 3 replicas a majority has it"},
			}, err
		},
		check: func(address string) error {
			_, c, err := natsbroker.ParseURL(address, natsbroker.Config{})
			switch {
			case err != nil:
				return err
			case c.Stream == "":
				return errors.New("nats: no stream is named; add the option stream, as in ?stream=NAME")
			case c.Replicas < 0 || c.Replicas > 5:
				return fmt.Errorf("nats: replicas=%d; give 1, 3 or 5", c.Replicas)
			}
			return nil
		},
	},
	"kafka": {
		open: func(ctx context.Context, address string, u Uses) (closingPublisher, error) {
			return kafkabroker.Open(ctx, address, kafkabroker.Config{Connection: kafkabroker.Connection{Logger: u.Logger}})
		},
		promises: func(address string) (Promises, error) {
			_, _, err := kafkabroker.ParseURL(address, kafkabroker.Config{})
			return Promises{
				Capabilities: postrider.Capabilities{Ordered: true},
				Size:         "what the topic takes (max.message.bytes, 1 MiB by default) less 4 KiB for headers",
				Notes:        []string{"acknowledged by all replicas in sync: set min.insync.replicas to 2 or more, or one server's loss can lose messages"},
			}, err
		},
		check: func(address string) error {
			_, c, err := kafkabroker.ParseURL(address, kafkabroker.Config{})
			if err == nil && (c.Partitions < 0 || c.Replicas < 0) {
				return fmt.Errorf("kafka: partitions=%d, replicas=%d; give positive numbers", c.Partitions, c.Replicas)
			}
			return err
		},
	},
	"rabbitmq": {
		open: func(ctx context.Context, address string, u Uses) (closingPublisher, error) {
			return rabbitmqbroker.Open(ctx, address, rabbitmqbroker.Config{Connection: rabbitmqbroker.Connection{Logger: u.Logger}})
		},
		promises: func(address string) (Promises, error) {
			_, c, err := rabbitmqbroker.ParseURL(address, rabbitmqbroker.Config{})
			note := "a message that no queue takes is a failed attempt"
			if c.AllowUnroutable {
				note = "a message that no queue takes is dropped (allow_unroutable)"
			}
			return Promises{
				Capabilities: postrider.Capabilities{Ordered: true, MaxMessageBytes: cmp.Or(c.MaxMessageBytes, rabbitmqbroker.DefaultMaxMessageBytes)},
				Notes:        []string{note},
			}, err
		},
		check: func(address string) error {
			_, c, err := rabbitmqbroker.ParseURL(address, rabbitmqbroker.Config{})
			if err == nil && c.Exchange == "" && !c.ExchangePerTopic {
				return errors.New("rabbitmq: no exchange is named; add the option exchange, as in ?exchange=NAME, or exchange_per_topic=true")
			}
			return err
		},
	},
	"redis": {
		open: func(ctx context.Context, address string, u Uses) (closingPublisher, error) {
			return redisbroker.Open(ctx, address, redisbroker.Config{Logger: u.Logger})
		},
		promises: func(address string) (Promises, error) {
			_, c, err := redisbroker.ParseURL(address, redisbroker.Config{})
			return Promises{
				Capabilities: postrider.Capabilities{Ordered: true, MaxMessageBytes: cmp.Or(c.MaxMessageBytes, redisbroker.DefaultMaxMessageBytes)},
				Notes:        redisNotes(c),
			}, err
		},
		check: func(address string) error {
			_, c, err := redisbroker.ParseURL(address, redisbroker.Config{})
			if err == nil && c.Replicas < 0 {
				return fmt.Errorf("redis: replicas=%d; give 0 or more", c.Replicas)
			}
			return err
		},
	},
	"webhook": {
		open: func(_ context.Context, address string, u Uses) (closingPublisher, error) {
			return webhook.Open(address, webhook.Config{Relay: u.Relay, Attempts: u.Attempts, Logger: u.Logger})
		},
		promises: func(address string) (Promises, error) {
			_, c, err := webhook.ParseURL(address, webhook.Config{})
			return Promises{
				Capabilities: postrider.Capabilities{Ordered: true, MaxMessageBytes: c.MaxMessageBytes},
				Size:         "what the receiver takes; max_message_bytes bounds it here",
				Notes: []string{
					"the receiver drops duplicates or not: it gets the message ID as Idempotency-Key",
					"answers of 4xx make a message dead at once, except 408, 425 and 429",
				},
			}, err
		},
		check: func(address string) error {
			publisher, err := webhook.Open(address, webhook.Config{}) // does not connect
			if err != nil {
				return err
			}
			return publisher.Close()
		},
	},
}

// redisNotes say when Redis can lose acknowledged messages.
func redisNotes(c redisbroker.Config) (notes []string) {
	if !c.Fsync {
		notes = append(notes, "Redis acknowledges before a message is on disk: a crash can lose what was acknowledged, unless appendfsync is always or fsync=true")
	}
	if c.Replicas == 0 {
		notes = append(notes, "Redis acknowledges before a replica has a message: a failover can lose what was acknowledged; replicas=1 waits for one")
	}
	if c.MaxLen > 0 {
		notes = append(notes, "the oldest messages beyond maxlen are dropped, consumed or not")
	}
	return notes
}

// OpenPublisher connects to a broker. It retries a broker that cannot be reached until ctx ends; a broker that refuses
// the connection is an error at once. The returned function closes the publisher.
func OpenPublisher(ctx context.Context, p config.Publisher, u Uses) (postrider.Publisher, func(), error) {
	a, address, err := adapterOf(p)
	if err != nil {
		return nil, nil, err
	}
	publisher, err := a.open(ctx, address, u)
	if err != nil {
		return nil, nil, err
	}
	return publisher, func() { _ = publisher.Close() }, nil
}

// PromisesOf returns a broker's guarantees by its URL and options, or the errors in them. It does not connect.
func PromisesOf(p config.Publisher) (Promises, error) {
	a, address, err := adapterOf(p)
	if err != nil {
		return Promises{}, err
	}
	promises, err := a.promises(address)
	if err != nil {
		return Promises{}, badURL("%v", err)
	}
	return promises, nil
}

// CheckPublisher returns errors that would prevent opening a publisher, as far as its URL and options show them: those of
// PromisesOf, and missing options that only publishing needs. It does not connect.
func CheckPublisher(p config.Publisher) error {
	a, address, err := adapterOf(p)
	if err != nil {
		return err
	}
	if err := a.check(address); err != nil {
		return badURL("%v", err)
	}
	return nil
}

// adapterOf returns the adapter of a publisher and its address including all options.
func adapterOf(p config.Publisher) (adapter, string, error) {
	var faults []error
	p.Check(func(where, text string) { faults = append(faults, fmt.Errorf("publisher.%s: %s", where, text)) })
	if err := errors.Join(faults...); err != nil {
		return adapter{}, "", badURL("%v", err)
	}
	b, err := config.BrokerOf(p.URL)
	if err != nil {
		return adapter{}, "", badURL("%v", err)
	}
	return adapters[b.Name], p.Address(), nil
}

// ShownPublisher is a broker's URL without secrets: without user information and options, and for a webhook only the
// host, since some receivers identify callers by the path.
func ShownPublisher(text string) string {
	servers := address.Servers(text)
	if strings.HasPrefix(servers, "http") && !strings.HasSuffix(servers, "…") {
		servers += "/…"
	}
	return servers
}
