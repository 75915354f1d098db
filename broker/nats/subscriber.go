package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/address"
)

// Defaults of SubscriberConfig.
const (
	DefaultMaxAckPending = 1024
	DefaultAckWait       = 30 * time.Second
)

// notInNames are characters that names of consumers do not have.
const notInNames = " .*>/\\\t\r\n"

// SubscriberConfig configures a Subscriber. Config.Stream is required; the zero value of every other field means its default.
type SubscriberConfig struct {
	// Config names the stream and configures the connection. A missing stream is created as by a Publisher, unless
	// CheckOnly is set; the settings of an existing stream are not checked. PublishTimeout bounds the wait for the
	// confirmation of a settlement and for answers about stream and consumer. MaxInFlight is ignored.
	Config
	// Durable is the name of a durable consumer, for reading the stream as a queue: all processes that share the work use the
	// same name, and messages that are redelivered arrive out of order. Default: the stream is read as a log, in order, from the
	// position that the consumer keeps in its database (postrider.Log); then Ordered, MaxAckPending, AckWait and ConfirmAcks must
	// be left out.
	Durable string
	// LagConsumer is the durable consumer that shows the position in a log, so that the tools of NATS show the consumer's lag. It is
	// recreated from time to time, and nobody reads with it. Default: "postrider-" and the consumer's name; NoLagConsumer: none.
	LagConsumer string
	// Topics are the topics to read, without wildcards. Default: all under Prefix.
	Topics []string
	// Ordered limits the group to one unsettled message, over all processes. Only this way does JetStream keep the order
	// when a message is redelivered. Default: redelivered messages arrive out of order.
	Ordered bool
	// MaxAckPending is the group's maximum number of unsettled messages, over all processes. Default: 1,024; 1 with
	// Ordered.
	MaxAckPending int
	// AckWait is how long the server waits for a settlement before it redelivers a message; at least 1 s. The messages
	// of a crashed process are redelivered after that time. Default: 30 s.
	AckWait time.Duration
	// ConfirmAcks makes Ack and Reject wait for the server's confirmation. Default: they only send the settlement; if it
	// is lost with the connection, the message is redelivered.
	ConfirmAcks bool
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.Config = c.Config.withDefaults()
	c.Topics = slices.Clone(c.Topics)
	if c.Ordered {
		c.MaxAckPending = cmp.Or(c.MaxAckPending, 1)
	}
	c.MaxAckPending = cmp.Or(c.MaxAckPending, DefaultMaxAckPending)
	c.AckWait = cmp.Or(c.AckWait, DefaultAckWait)
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c SubscriberConfig) validate() error {
	faults := []error{c.Config.validate()}
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("nats: "+format, args...))
	}
	if c.Durable == "" && (c.Ordered || c.ConfirmAcks || c.MaxAckPending != DefaultMaxAckPending || c.AckWait != DefaultAckWait) {
		fault("Ordered, MaxAckPending, AckWait and ConfirmAcks are of a durable consumer; name one (Durable, or ?durable=NAME in the " +
			"URL), or leave them out: then the stream is read as a log, in order")
	}
	for _, name := range []string{c.Durable, c.LagConsumer} {
		if strings.ContainsAny(name, notInNames) {
			fault("durable %q: a name has no space, dot, slash, * or >", name)
		}
	}
	if c.Durable != "" && c.LagConsumer != "" {
		fault("LagConsumer is for a log, which has no durable consumer; leave out LagConsumer or Durable")
	}
	if slices.Contains(c.Topics, "") {
		fault("a topic is empty; leave Topics out to read everything under the prefix")
	}
	if c.Ordered && c.MaxAckPending != 1 {
		fault("%d unsettled messages in order; a group that is to keep the order has 1", c.MaxAckPending)
	}
	if c.MaxAckPending < 1 {
		fault("%d unsettled messages; give 1 or more", c.MaxAckPending)
	}
	if c.AckWait < time.Second {
		fault("settlement is to come within %s; give 1s or more", c.AckWait)
	}
	return errors.Join(faults...)
}

// filters returns the subjects without a partition that the consumer reads; nil means the whole stream.
func (c SubscriberConfig) filters() []string {
	if len(c.Topics) == 0 {
		if c.Prefix == "" {
			return nil
		}
		return []string{c.Prefix + ">"}
	}
	filters := make([]string, len(c.Topics))
	for i, topic := range c.Topics {
		filters[i] = Subject(c.Prefix, topic)
	}
	return filters
}

// Subscriber reads a JetStream stream for a group of consumers. It is safe for concurrent use.
type Subscriber struct {
	cfg      SubscriberConfig
	conn     *nats.Conn
	js       jetstream.JetStream
	ownsConn bool
	caps     postrider.SubscriberCapabilities
	log      *slog.Logger
	// How often readers of a set and subscriptions look at the stream's subjects.
	subjectsEvery, filtersEvery time.Duration
	// oneLag: there are no consumers that show the lag of sets.
	oneLag atomic.Bool
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber connects as Open does. The Subscriber's Close closes the connection. The URL may have the options of
// Open, and durable, lag_consumer, topics (comma-separated), ordered, max_ack_pending, ack_wait and confirm_acks.
func OpenSubscriber(ctx context.Context, address string, cfg SubscriberConfig) (*Subscriber, error) {
	servers, cfg, err := ParseSubscriberURL(address, cfg)
	if err != nil {
		return nil, err
	}
	complete := cfg.withDefaults()
	if err := complete.validate(); err != nil {
		return nil, err
	}
	if servers, err = complete.locate(servers); err != nil {
		return nil, err
	}
	options, err := connectOptions(complete.Config)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, options, complete.Logger)
	if err != nil {
		return nil, err
	}
	s, err := NewSubscriber(ctx, conn, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.ownsConn = true
	return s, nil
}

// NewSubscriber returns a Subscriber on an existing connection, which the caller closes; see New for its options. It
// finds or creates the stream within ctx. Subscribe prepares the consumer.
func NewSubscriber(ctx context.Context, conn *nats.Conn, cfg SubscriberConfig) (*Subscriber, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	s := &Subscriber{cfg: cfg, conn: conn, js: js, log: cfg.Logger, subjectsEvery: subjectsEvery, filtersEvery: filtersEvery}
	stream, err := findStream(ctx, js, cfg.Config)
	if err != nil {
		return nil, err
	}
	if cfg.Durable == "" {
		if err := checkLog(stream.CachedInfo().Config); err != nil {
			return nil, err
		}
		s.caps = postrider.SubscriberCapabilities{Log: true, Ordered: true, Positions: true, RedeliveryWindow: stream.CachedInfo().Config.MaxAge}
		return s, nil
	}
	s.caps = postrider.SubscriberCapabilities{
		Ordered: cfg.Ordered, Positions: true, RedeliveryWindow: stream.CachedInfo().Config.MaxAge, AckWait: cfg.AckWait,
		NackDelay: true,
	}
	return s, nil
}

// Capabilities implements postrider.Subscriber. Ordered is SubscriberConfig.Ordered. RedeliveryWindow is the stream's
// max_age: a message may be redelivered for as long as the stream has it.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities { return s.caps }

// Close closes the connection if OpenSubscriber made it. Close the subscriptions first.
func (s *Subscriber) Close() error {
	if s.ownsConn {
		s.conn.Close()
	}
	return nil
}

// Subscribe implements postrider.Subscriber. It creates or checks the group's consumer. If the consumer does not match
// the configuration, the error lists every difference and names the command to fix it.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	if s.cfg.Durable == "" {
		return nil, errors.New("nats: subscribe: no durable consumer is named (Durable); the stream is read as a log, by its positions")
	}
	if !s.conn.IsConnected() {
		return nil, postrider.Unavailable(fmt.Errorf("subscribe to NATS: %w", errNotConnected))
	}
	c, err := s.prepareConsumer(ctx)
	if err != nil {
		return nil, err
	}
	return s.newSubscription(c)
}

// ParseSubscriberURL is ParseURL for OpenSubscriber.
func ParseSubscriberURL(url string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	settings := cfg.Config.settings()
	settings["durable"] = address.Text(&cfg.Durable)
	settings["lag_consumer"] = address.Text(&cfg.LagConsumer)
	settings["topics"] = address.List(&cfg.Topics)
	settings["ordered"] = address.Bool(&cfg.Ordered)
	settings["max_ack_pending"] = address.Number(&cfg.MaxAckPending)
	settings["ack_wait"] = address.Duration(&cfg.AckWait)
	settings["confirm_acks"] = address.Bool(&cfg.ConfirmAcks)
	servers, err := parseURL(url, settings)
	if err == nil {
		err = cfg.check(servers)
	}
	return servers, cfg, err
}
