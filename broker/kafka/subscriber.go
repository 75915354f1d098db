package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/address"
)

// Defaults of SubscriberConfig.
const (
	DefaultSessionTimeout = 45 * time.Second
	DefaultRevokeWait     = 5 * time.Second
	DefaultCommitEvery    = time.Second
	DefaultFetchBytes     = 16 << 20
)

// Values of SubscriberConfig.Start.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// SubscriberConfig configures a Subscriber. Topics is required; the zero value of every other field means its default.
type SubscriberConfig struct {
	Connection

	// Group is the consumer group. Default: the topics are read as a log, from the positions that the consumer keeps in its
	// database (postrider.Log); then Start, Instance, SessionTimeout, RevokeWait and CommitEvery must be left out.
	Group string
	// LagGroup is the group for which the positions in a log are committed from time to time, so that Kafka's tools show the
	// consumer's lag. It must have no members. Default: "postrider." and the consumer's name; NoLagGroup: none.
	LagGroup string
	// Topics are the topics to read: message topics, which are converted with Prefix and TopicName, or existing Kafka
	// topic names. Required.
	Topics []string
	// Prefix is prepended to each of Topics, as in Config. Default: none.
	Prefix string
	// Create creates missing topics, with Partitions and Replicas as in Config. Default: topics must exist.
	Create               bool
	Partitions, Replicas int

	// Start is where the group starts in a topic without committed offset, or when the committed offset no longer
	// exists: StartEarliest, or StartLatest to skip existing messages. Partitions added to a topic later are read from
	// the beginning. Default: StartEarliest.
	Start string
	// Instance makes the member a static member (group.instance.id): if it rejoins within SessionTimeout, it gets its
	// partitions back without a rebalance. Every member of a group must have a different value. Default: none.
	Instance string
	// SessionTimeout is how long the group waits for a heartbeat before it reassigns the member's partitions. It must be
	// within the brokers' limits, by default 6 s to 30 min. Default: 45 s.
	SessionTimeout time.Duration
	// RevokeWait is how long a revoked partition is kept so that its unsettled messages can be settled. It must be less
	// than the rebalance timeout of 60 s. Default: 5 s; negative: no wait.
	RevokeWait time.Duration
	// CommitEvery is the interval at which the offsets of settled messages are committed. After a crash, messages
	// settled since the last commit are redelivered. Default: 1 s.
	CommitEvery time.Duration
	// FetchBytes is the maximum number of (compressed) bytes prefetched from each broker. A larger batch is still
	// fetched. Default: 16 MiB.
	FetchBytes int
	// Decode converts a record to a message. It must not retain anything of the record except key, value and headers.
	// With an error, or if it panics, the message is dead-lettered with what Decode returned, or else with what the
	// default reads. Default: CloudEvents in binary or structured mode; an event without a key gets the record's key.
	Decode func(r *kgo.Record) (*postrider.Message, error)
}

// ParseSubscriberURL reads the options in the URL for OpenSubscriber into cfg and returns the URL without options and
// credentials. The options are group, lag_group, topics (comma-separated), prefix, create, partitions, replicas, start, instance,
// session_timeout, revoke_wait, commit_every, fetch_bytes, client_id, user, password, sasl, tls, ca, cert and key. The
// error lists every option that is unknown or invalid.
func ParseSubscriberURL(url string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	servers, err := settings{
		"group": address.Text(&cfg.Group), "lag_group": address.Text(&cfg.LagGroup), "topics": address.List(&cfg.Topics), "prefix": address.Text(&cfg.Prefix), "create": address.Bool(&cfg.Create),
		"partitions": address.Number(&cfg.Partitions), "replicas": address.Number(&cfg.Replicas), "start": address.Text(&cfg.Start),
		"instance": address.Text(&cfg.Instance), "session_timeout": address.Duration(&cfg.SessionTimeout),
		"revoke_wait": address.Duration(&cfg.RevokeWait), "commit_every": address.Duration(&cfg.CommitEvery),
		"fetch_bytes": address.Number(&cfg.FetchBytes),
	}.parse(url, &cfg.Connection)
	return servers, cfg, err
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.Connection = c.Connection.withDefaults()
	c.Topics = slices.Clone(c.Topics)
	c.Start = cmp.Or(c.Start, StartEarliest)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, DefaultSessionTimeout)
	c.RevokeWait = max(cmp.Or(c.RevokeWait, DefaultRevokeWait), 0)
	c.CommitEvery = cmp.Or(c.CommitEvery, DefaultCommitEvery)
	c.FetchBytes = cmp.Or(c.FetchBytes, DefaultFetchBytes)
	if c.Decode == nil {
		c.Decode = decode
	}
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c SubscriberConfig) validate() error {
	faults := c.faults()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kafka: "+format, args...)) }
	if c.Group == "" && (c.Start != StartEarliest || c.Instance != "" || c.SessionTimeout != DefaultSessionTimeout ||
		c.RevokeWait != DefaultRevokeWait || c.CommitEvery != DefaultCommitEvery) {
		fault("Start, Instance, SessionTimeout, RevokeWait and CommitEvery are of a group; name one (Group, or ?group=NAME in the URL), " +
			"or leave them out: then the topics are read as a log, in order")
	}
	if c.Group != "" && c.LagGroup != "" {
		fault("LagGroup is for a log, which has no group; leave out LagGroup or Group")
	}
	if len(c.Topics) == 0 {
		fault("no topics are named; set Topics, or ?topics=NAME,NAME in the URL")
	}
	for _, t := range c.Topics {
		if name := TopicName(c.Prefix, t); t == "" || len(name) > maxTopicName {
			fault("topic %q: its name in Kafka has %d bytes; it may have 1 to %d", t, len(name), maxTopicName)
		}
	}
	faults = append(faults, prefixFaults(c.Prefix)...)
	faults = append(faults, creationFaults(c.Create, c.Partitions, c.Replicas)...)
	if c.Start != StartEarliest && c.Start != StartLatest {
		fault("start %q; give %s or %s", c.Start, StartEarliest, StartLatest)
	}
	if c.SessionTimeout < time.Second {
		fault("session timeout is %s; give 1s or more, and what the brokers allow (6s by default)", c.SessionTimeout)
	}
	if c.RevokeWait >= rebalanceTimeout {
		fault("revoke wait is %s; give less than %s", c.RevokeWait, rebalanceTimeout)
	}
	if c.CommitEvery < 10*time.Millisecond {
		fault("commits every %s; give 10ms or more", c.CommitEvery)
	}
	if c.FetchBytes < 64<<10 || c.FetchBytes > 1<<30 {
		fault("fetch bytes are %d; give 65536 to %d", c.FetchBytes, 1<<30)
	}
	return errors.Join(faults...)
}

// names returns the Kafka names of the topics.
func (c SubscriberConfig) names() []string {
	names := make([]string, len(c.Topics))
	for i, t := range c.Topics {
		names[i] = TopicName(c.Prefix, t)
	}
	return names
}

const (
	// rebalanceTimeout is how long the group waits for its members to rejoin in a rebalance.
	rebalanceTimeout = 60 * time.Second
	// checkWait bounds the check of the topics when a member joins.
	checkWait = 10 * time.Second
	// fetchWait is how long a broker may wait for messages before it returns an empty response.
	fetchWait = 2 * time.Second
	// requestTimeout bounds the wait for a response, on top of the time that the request itself lets the broker wait.
	requestTimeout = 10 * time.Second
	// consumerMetadataAge is the maximum delay before new partitions are noticed.
	consumerMetadataAge = 30 * time.Second
)

// Subscriber reads topics of a Kafka cluster. Each Subscribe adds a member to its group; without a group, it reads them as a log.
type Subscriber struct {
	cfg     SubscriberConfig
	brokers []string
	options []kgo.Opt
	checked atomic.Bool // the topics of the log were found or created

	mu     sync.Mutex
	client *kgo.Client // see shared
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber returns a subscriber for a cluster. The address has the form described at Open; its options are listed
// at ParseSubscriberURL. OpenSubscriber does not connect. The error lists everything that is wrong in cfg.
func OpenSubscriber(_ context.Context, address string, cfg SubscriberConfig) (*Subscriber, error) {
	servers, cfg, err := ParseSubscriberURL(address, cfg)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg}
	if s.brokers, err = brokersOf(servers); err != nil {
		return nil, err
	}
	if s.options, err = cfg.options(s.brokers); err != nil {
		return nil, err
	}
	return s, nil
}

// Capabilities implements postrider.Subscriber. Redelivery is not limited: a group can be reset to any message that the
// topic still has.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	if s.cfg.Group == "" {
		return postrider.SubscriberCapabilities{Log: true, Ordered: true, Positions: true}
	}
	return postrider.SubscriberCapabilities{Ordered: true, Positions: true, NackDelay: true}
}

// Subscribe implements postrider.Subscriber. It returns postrider.Unavailable if no broker can be reached; other errors
// say what to change: the credentials, or a topic that does not exist.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	if s.cfg.Group == "" {
		return nil, errors.New("kafka: subscribe: no group is named (Group); the topics are read as a log, by their positions")
	}
	unread, err := s.check(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("subscribe to Kafka: %w", ctx.Err())
		}
		return nil, err
	}
	sub := newSubscription(s.cfg, unread)
	age := kgo.MetadataMaxAge(consumerMetadataAge) // Options may override it
	client, err := kgo.NewClient(slices.Concat([]kgo.Opt{age}, s.options, s.consumerOptions(), sub.options())...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	sub.start(client)
	return sub, nil
}

// check connects, and looks up or creates the topics. With StartLatest it returns the topics in which the group has to
// start at the end, each with its number of partitions.
func (s *Subscriber) check(ctx context.Context) (unread map[string]int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	client, err := kgo.NewClient(append(s.options, kgo.RequestTimeoutOverhead(requestTimeout))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	defer client.Close()
	if err := connect(ctx, client, s.brokers, s.cfg.Logger); err != nil {
		return nil, err
	}
	topics := &topics{client: client, admin: kadm.NewClient(client), cfg: Config{
		Connection: s.cfg.Connection, Create: s.cfg.Create, Partitions: s.cfg.Partitions, Replicas: s.cfg.Replicas,
	}}
	for _, name := range s.cfg.names() {
		if _, err := topics.look(ctx, name); err != nil {
			return nil, err
		}
	}
	if s.cfg.Start == StartLatest {
		return unreadTopics(ctx, topics.admin, s.cfg.Group, s.cfg.names())
	}
	return nil, nil
}

// consumerOptions returns the options that the delivery guarantees depend on.
func (s *Subscriber) consumerOptions() []kgo.Opt {
	start := kgo.NewOffset().AtStart()
	if s.cfg.Start == StartLatest {
		start = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.ConsumeTopics(s.cfg.names()...),
		kgo.ConsumeResetOffset(start),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(), // from when the client returns messages until they are in their partitions
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(s.cfg.SessionTimeout),
		kgo.HeartbeatInterval(min(s.cfg.SessionTimeout/10, 3*time.Second)),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(int32(s.cfg.FetchBytes)),
		kgo.FetchMaxPartitionBytes(int32(min(s.cfg.FetchBytes, 1<<20))),
		kgo.BrokerMaxReadBytes(1 << 30),
	}
	if s.cfg.Instance != "" {
		options = append(options, kgo.InstanceID(s.cfg.Instance))
	}
	return options
}
