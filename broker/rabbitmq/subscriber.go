package rabbitmqbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/address"
)

// Defaults of SubscriberConfig.
const (
	DefaultPrefetch = 256
	DefaultAckWait  = 30 * time.Minute
)

// SubscriberConfig configures a Subscriber. Queue is required; the zero value of every other field means its default.
type SubscriberConfig struct {
	Connection
	// Queue is the queue that all processes of the consumer read. It is declared as durable.
	Queue string
	// Exchange is the exchange that the queue is bound to, with ExchangePerTopic and ExchangeType as in Config. It is
	// declared. Without Exchange and ExchangePerTopic, nothing is bound: the queue gets what others route to it.
	Exchange         string
	ExchangePerTopic bool
	ExchangeType     string
	// Topics are the binding keys: topic patterns, in which * matches one word and # any number of words, separated by
	// dots. With ExchangePerTopic they are complete topics. Existing bindings that are not listed remain. Default: "#";
	// required with ExchangePerTopic.
	Topics []string
	// QueueType is QuorumQueue or ClassicQueue. Default: QuorumQueue.
	QueueType string
	// Ordered declares the queue with a single active consumer: one process at a time reads it, another one takes over
	// when that process leaves, and a Nack requeues all unsettled messages. All processes must use the same Prefetch.
	// Default: all processes read concurrently, without order.
	Ordered bool
	// DeliveryLimit is how often a quorum queue redelivers a message before it drops or dead-letters it. Default: no
	// limit. (RabbitMQ 4 has a limit of 20 unless the queue disables it, as done here.)
	DeliveryLimit int
	// DeadLetterExchange receives messages that are rejected or exceed DeliveryLimit, with DeadLetterKey as routing key,
	// or else their own. Default: RabbitMQ drops them.
	DeadLetterExchange, DeadLetterKey string
	// CheckOnly declares nothing: exchange and queue must exist, be bound, and have the arguments that the other fields
	// imply. Clients cannot read the arguments, so Ordered is not verified.
	CheckOnly bool
	// Prefetch is a process's maximum number of unsettled messages, 1 to 65,535. Default: 256.
	Prefetch int
	// AckWait is the server's consumer_timeout: if a process has not settled a message for that long, the server
	// requeues all its messages. Clients cannot read the setting. Default: 30 min, as in RabbitMQ; negative: the server
	// has no timeout.
	AckWait time.Duration
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.Connection = c.Connection.withDefaults()
	c.ExchangeType = exchangeType(c.ExchangeType, c.ExchangePerTopic)
	c.Topics = slices.Clone(c.Topics)
	if len(c.Topics) == 0 && !c.ExchangePerTopic && c.Exchange != "" {
		c.Topics = []string{"#"}
	}
	c.QueueType = cmp.Or(c.QueueType, QuorumQueue)
	c.Prefetch = cmp.Or(c.Prefetch, DefaultPrefetch)
	c.AckWait = max(cmp.Or(c.AckWait, DefaultAckWait), 0)
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c SubscriberConfig) validate() error {
	faults := c.Connection.faults()
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("rabbitmq: "+format, args...))
	}
	if c.Queue == "" {
		fault("no queue is named; set Queue, or ?queue=NAME in the URL")
	}
	for of, name := range map[string]string{"queue": c.Queue, "exchange": c.Exchange, "dead letter exchange": c.DeadLetterExchange} {
		if err := checkName(of, name); err != nil {
			faults = append(faults, err)
		}
	}
	switch {
	case c.ExchangePerTopic && len(c.Topics) == 0:
		fault("every topic has an exchange of its own, and no topic is named; set Topics")
	case c.Exchange == defaultExchange:
		fault("queues cannot be bound to %s; leave Exchange out, every queue gets what is published there under its name", defaultExchange)
	case c.Exchange == "" && !c.ExchangePerTopic && len(c.Topics) > 0:
		fault("topics %v are to be bound, and no exchange is named; set Exchange", c.Topics)
	}
	for _, topic := range c.Topics {
		if topic == "" || len(c.prefix())+len(topic) > maxName {
			fault("topic %.80q: give 1 to %d bytes, the exchange's prefix included", topic, maxName)
		}
	}
	if c.QueueType != QuorumQueue && c.QueueType != ClassicQueue {
		fault("queue type %q; give %s or %s", c.QueueType, QuorumQueue, ClassicQueue)
	}
	if c.DeliveryLimit < 0 || c.DeliveryLimit > 0 && c.QueueType != QuorumQueue {
		fault("delivery limit %d of a %s queue; give 1 or more of a quorum queue, or 0 for none", c.DeliveryLimit, c.QueueType)
	}
	if c.DeadLetterKey != "" && c.DeadLetterExchange == "" {
		fault("a dead letter key is given, and no dead letter exchange; set DeadLetterExchange")
	}
	if c.Prefetch < 1 || c.Prefetch > 65_535 {
		fault("prefetch is %d; give 1 to 65535", c.Prefetch)
	}
	return errors.Join(faults...)
}

// prefix returns the prefix of topics in the names of exchanges.
func (c SubscriberConfig) prefix() string {
	if c.ExchangePerTopic {
		return c.Exchange
	}
	return ""
}

// topology returns what the configuration requires on the server.
func (c SubscriberConfig) topology() topology {
	return topology{
		exchange: c.Exchange, perTopic: c.ExchangePerTopic, exchangeType: c.ExchangeType, checkOnly: c.CheckOnly, topics: c.Topics,
		log: c.Logger,
		queue: queueSettings{
			name: c.Queue, kind: c.QueueType, singleActive: c.Ordered, deliveryLimit: c.DeliveryLimit,
			deadLetterExchange: c.DeadLetterExchange, deadLetterKey: c.DeadLetterKey,
		},
	}
}

// ParseSubscriberURL is ParseURL for OpenSubscriber.
func ParseSubscriberURL(url string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	options := cfg.options()
	maps.Copy(options, map[string]option{
		"queue": address.Text(&cfg.Queue), "exchange": address.Text(&cfg.Exchange), "exchange_per_topic": address.Bool(&cfg.ExchangePerTopic),
		"exchange_type": address.Text(&cfg.ExchangeType), "topics": address.List(&cfg.Topics), "queue_type": address.Text(&cfg.QueueType),
		"ordered": address.Bool(&cfg.Ordered), "delivery_limit": address.Number(&cfg.DeliveryLimit),
		"dead_letter_exchange": address.Text(&cfg.DeadLetterExchange), "dead_letter_key": address.Text(&cfg.DeadLetterKey),
		"check_only": address.Bool(&cfg.CheckOnly), "prefetch": address.Number(&cfg.Prefetch), "ack_wait": address.Duration(&cfg.AckWait),
	})
	base, err := cfg.parse(url, options)
	return base, cfg, err
}

// Subscriber reads a queue for one consumer. Each of its subscriptions has its own connection.
type Subscriber struct {
	cfg    SubscriberConfig
	dialer *dialer
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber returns a Subscriber. The URL has the form described at Open; its options are queue, exchange,
// exchange_per_topic, exchange_type, topics (comma-separated), queue_type, ordered, delivery_limit,
// dead_letter_exchange, dead_letter_key, check_only, prefetch, ack_wait, name, user, password, external, ca, cert, key
// and heartbeat.
//
// The error lists every value that is missing or out of range. OpenSubscriber does not connect; Subscribe does.
func OpenSubscriber(_ context.Context, address string, cfg SubscriberConfig) (*Subscriber, error) {
	base, cfg, err := ParseSubscriberURL(address, cfg)
	if err != nil {
		return nil, err
	}
	at, err := parseLocation(base)
	cfg = cfg.withDefaults()
	if err := errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	dialer, err := newDialer(cfg.Connection, at)
	if err != nil {
		return nil, err
	}
	return &Subscriber{cfg: cfg, dialer: dialer}, nil
}

// Capabilities implements postrider.Subscriber. Ordered and AckWait are those of SubscriberConfig: RabbitMQ's timeout
// cannot be extended.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{Ordered: s.cfg.Ordered, AckWait: s.cfg.AckWait}
}

// Close implements io.Closer. It does nothing: subscriptions close their connections themselves.
func (s *Subscriber) Close() error { return nil }

// VerifyPosition implements postrider.Subscriber: a queue has no positions.
func (s *Subscriber) VerifyPosition(context.Context, postrider.Position) (postrider.PositionState, error) {
	return postrider.PositionRemoved, nil
}

// Subscribe implements postrider.Subscriber. It connects, declares or checks exchange and queue, and starts to read. It
// returns postrider.Unavailable if no server can be reached; other errors say what to change.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	sub := newSubscription(s)
	if _, err := sub.reader(ctx); err != nil {
		return nil, errors.Join(err, sub.Close(ctx))
	}
	return sub, nil
}
