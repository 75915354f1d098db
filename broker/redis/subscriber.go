package redisbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/address"
)

// Defaults of SubscriberConfig.
const (
	DefaultMaxAckPending = 256
	DefaultClaimAfter    = 15 * time.Second
	DefaultPoll          = 50 * time.Millisecond
)

// SubscriberConfig configures a Subscriber. Topics is required; the zero value of every other field means its default.
type SubscriberConfig struct {
	// Config names the streams (Prefix, Partitions) and configures the connection. MaxLen, MaxMessageBytes, Replicas and
	// Fsync are ignored.
	Config
	// Group is the consumer group. All processes that share the work use the same name. Default: the streams are read as a
	// log, from the positions that the consumer keeps in its database (postrider.Log); then MaxAckPending, ClaimAfter and
	// DeleteSettled must be left out.
	Group string
	// Topics are the topics to read, each from the oldest message in its streams.
	Topics []string
	// MaxAckPending is a process's maximum number of unsettled messages per partition. Default: 256.
	MaxAckPending int
	// ClaimAfter is how long a process may be silent before others claim its messages; at least 200 ms. The partitions
	// of a crashed process are blocked for that long. Default: 15 s.
	ClaimAfter time.Duration
	// Poll is the maximum interval between two reads for new messages. Default: 50 ms.
	Poll time.Duration
	// DeleteSettled deletes settled messages from the stream. Use it only for streams with one group.
	DeleteSettled bool
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.Config = c.Config.withDefaults()
	c.Topics = slices.Clone(c.Topics)
	c.MaxAckPending = cmp.Or(c.MaxAckPending, DefaultMaxAckPending)
	c.ClaimAfter = cmp.Or(c.ClaimAfter, DefaultClaimAfter)
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c SubscriberConfig) validate() error {
	faults := []error{c.Config.validate()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("redis: "+format, args...)) }
	if c.Group == "" && (c.MaxAckPending != DefaultMaxAckPending || c.ClaimAfter != DefaultClaimAfter || c.DeleteSettled) {
		fault("MaxAckPending, ClaimAfter and DeleteSettled are of a group; name one (Group, or ?group=NAME in the URL), or leave them " +
			"out: then the streams are read as a log, in order")
	}
	if strings.HasPrefix(c.Group, "postrider-epoch-") {
		fault("group %q: names with postrider-epoch- are taken", c.Group)
	}
	if len(c.Topics) == 0 || slices.Contains(c.Topics, "") {
		fault("topics are missing, or one is empty; set Topics, or ?topics=A,B in the URL")
	}
	if c.MaxAckPending < 1 {
		fault("%d unsettled messages; give 1 or more", c.MaxAckPending)
	}
	if c.ClaimAfter < 200*time.Millisecond {
		fault("a silent process keeps what it has for %s; give 200ms or more", c.ClaimAfter)
	}
	if c.Poll < time.Millisecond {
		fault("wait between two looks is %s; give 1ms or more", c.Poll)
	}
	return errors.Join(faults...)
}

// Subscriber reads Redis streams for a group of consumers, or as a log. It is safe for concurrent use.
type Subscriber struct {
	cfg        SubscriberConfig
	client     redis.UniversalClient
	ownsClient bool
	sessions   sessions
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber connects as Open does. The Subscriber's Close closes the connections. The URL may have the options of
// Open, and group, topics (comma-separated), max_ack_pending, claim_after, poll and delete_settled.
func OpenSubscriber(ctx context.Context, address string, cfg SubscriberConfig) (*Subscriber, error) {
	servers, cfg, err := ParseSubscriberURL(address, cfg)
	if err != nil {
		return nil, err
	}
	complete := cfg.withDefaults()
	if err := complete.validate(); err != nil {
		return nil, err
	}
	client, err := dial(ctx, servers, complete.Config)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: complete, client: client, ownsClient: true}
	s.sessions.watch(client)
	return s, nil
}

// NewSubscriber returns a Subscriber on an existing client, which the caller closes; see New for its options.
func NewSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg, client: client}
	s.sessions.watch(client)
	return s, nil
}

// Capabilities implements postrider.Subscriber. AckWait is 0: a process keeps its messages as long as it runs and
// reaches the server. A message may be redelivered as long as its stream has it.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	if s.cfg.Group == "" {
		return postrider.SubscriberCapabilities{Log: true, Ordered: true, Positions: true}
	}
	return postrider.SubscriberCapabilities{Ordered: true, Positions: true, NackDelay: true}
}

// Close closes the connections if OpenSubscriber made them. Close the subscriptions first.
func (s *Subscriber) Close() error {
	if s.ownsClient {
		return s.client.Close()
	}
	return nil
}

// Subscribe implements postrider.Subscriber. It creates missing streams and groups.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	if s.cfg.Group == "" {
		return nil, errors.New("redis: subscribe: no group is named (Group); the streams are read as a log, by their positions")
	}
	sub := newSubscription(s)
	if err := sub.join(ctx); err != nil {
		return nil, fmt.Errorf("subscribe to Redis: %w", err)
	}
	return sub, nil
}

// ParseSubscriberURL is ParseURL for OpenSubscriber.
func ParseSubscriberURL(url string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	settings := cfg.Config.settings()
	settings["group"] = address.Text(&cfg.Group)
	settings["topics"] = address.List(&cfg.Topics)
	settings["max_ack_pending"] = address.Number(&cfg.MaxAckPending)
	settings["claim_after"] = address.Duration(&cfg.ClaimAfter)
	settings["poll"] = address.Duration(&cfg.Poll)
	settings["delete_settled"] = address.Bool(&cfg.DeleteSettled)
	servers, err := cfg.parseURL(url, settings)
	return servers, cfg, err
}
