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
)

// The defaults of SubscriberConfig.
const (
	DefaultMaxAckPending = 256
	DefaultClaimAfter    = 15 * time.Second
	DefaultPoll          = 50 * time.Millisecond
)

// SubscriberConfig configures a Subscriber. Group and Topics are required; the zero value of every other field means its
// default.
type SubscriberConfig struct {
	// Config says how streams are named (Prefix, Partitions) and how to connect. MaxLen, MaxMessageBytes, Replicas and Fsync
	// have no meaning.
	Config
	// Group names the processes that share the work.
	Group string
	// Topics are what the group reads, from the first message that their streams have.
	Topics []string
	// MaxAckPending is how many messages of one partition a process may have unsettled at a time. Default: 256.
	MaxAckPending int
	// ClaimAfter is how long a process that is not heard of keeps what it has: 200 ms or more. A process that dies holds up
	// its partitions for that long. Default: 15 s.
	ClaimAfter time.Duration
	// Poll is the longest wait between two looks for new messages. Default: 50 ms.
	Poll time.Duration
	// DeleteSettled deletes a message from its stream when it is settled. Only for streams with one group.
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

// validate names every fault of a configuration with defaults.
func (c SubscriberConfig) validate() error {
	faults := []error{c.Config.validate()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("redis: "+format, args...)) }
	if c.Group == "" {
		fault("no group is named; set Group, or ?group=NAME in the URL")
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

// Subscriber reads Redis streams for a group of consumers. It is safe for concurrent use.
type Subscriber struct {
	cfg        SubscriberConfig
	client     redis.UniversalClient
	ownsClient bool
	sessions   sessions
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber connects as Open does and returns a Subscriber that closes the connections with itself. The URL may carry
// the options of Open, and besides group, topics (separated by commas), max_ack_pending, claim_after, poll and delete_settled.
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

// NewSubscriber returns a Subscriber on a client that the caller keeps and closes, made as for New.
func NewSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg, client: client}
	s.sessions.watch(client)
	return s, nil
}

// Capabilities implements postrider.Subscriber. A process keeps what it has for as long as it lives and reaches the server.
// A message may come again for as long as its stream has it.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{Ordered: true, Positions: true, NackDelay: true}
}

// Close closes the connections, if OpenSubscriber made them. Close the subscriptions first.
func (s *Subscriber) Close() error {
	if s.ownsClient {
		return s.client.Close()
	}
	return nil
}

// Subscribe implements postrider.Subscriber. It creates what is missing: streams, and the group in each.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	sub := newSubscription(s)
	if err := sub.join(ctx); err != nil {
		return nil, fmt.Errorf("subscribe to Redis: %w", err)
	}
	return sub, nil
}

// ParseSubscriberURL is ParseURL for OpenSubscriber.
func ParseSubscriberURL(address string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	settings := cfg.Config.settings()
	settings["group"] = text(&cfg.Group)
	settings["topics"] = list(&cfg.Topics)
	settings["max_ack_pending"] = number(&cfg.MaxAckPending)
	settings["claim_after"] = duration(&cfg.ClaimAfter)
	settings["poll"] = duration(&cfg.Poll)
	settings["delete_settled"] = boolean(&cfg.DeleteSettled)
	servers, err := parseURL(address, settings)
	return servers, cfg, err
}
