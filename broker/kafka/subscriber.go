package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// The defaults of SubscriberConfig.
const (
	DefaultSessionTimeout = 45 * time.Second
	DefaultRevokeWait     = 5 * time.Second
	DefaultCommitEvery    = time.Second
	DefaultFetchBytes     = 16 << 20
)

// The places to start from, for SubscriberConfig.Start.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// SubscriberConfig configures a Subscriber. Group and Topics are required; the zero value of every other field means its
// default.
type SubscriberConfig struct {
	Connection

	// Group names the consumer group whose members share the partitions. Required.
	Group string
	// Topics are what the group reads: topics of messages, behind Prefix and as TopicName writes them, or names that others
	// have given to topics of Kafka. Required.
	Topics []string
	// Prefix stands before each of Topics in the name of Kafka's topic, as in Config. Default: none.
	Prefix string
	// Create creates topics that do not exist, with Partitions and Replicas as in Config. Default: they must exist.
	Create               bool
	Partitions, Replicas int

	// Start is where a group begins in a topic of which it has committed nothing yet, or where its place is no longer there:
	// StartEarliest or StartLatest, which passes over what the topic has. Partitions that are added to a topic later are read
	// from their beginning. Default: StartEarliest.
	Start string
	// Instance makes the member a static one: if it comes back under this name within SessionTimeout, it gets its partitions
	// again without a rebalance. No two members of a group have the same. Default: none.
	Instance string
	// SessionTimeout is how long the group waits for a sign of life before it gives the member's partitions to others. It must
	// be within what the brokers allow, 6 s to 30 min by default. Default: 45 s.
	SessionTimeout time.Duration
	// RevokeWait is how long a partition that is to go to another member is kept for what is under way in it. It is less than
	// 60 s, which is how long the group waits for its members in a rebalance. Default: 5 s; negative: not at all.
	RevokeWait time.Duration
	// CommitEvery is how often the offsets of what is settled are committed. What was settled since comes again after a crash.
	// Default: 1 s.
	CommitEvery time.Duration
	// FetchBytes bounds what is fetched from each broker ahead of Receive, in bytes as they are in the topic, that is
	// compressed. A batch that is larger comes all the same. Default: 16 MiB.
	FetchBytes int
	// Decode reads a message from a record. It keeps nothing of the record but key, value and headers. Default: as a CloudEvent
	// of binary or structured mode, whose key is the record's if the event itself has none.
	Decode func(r *kgo.Record) (*postrider.Message, error)
}

// ParseSubscriberURL takes the options out of a URL for OpenSubscriber and sets them in cfg. It returns the URL without them
// and without credentials. The options are group, topics (separated by commas), prefix, create, partitions, replicas, start, instance,
// session_timeout, revoke_wait, commit_every, fetch_bytes, client_id, user, password, sasl, tls, ca, cert and key. Its error
// names every option that is unknown or has a bad value.
func ParseSubscriberURL(address string, cfg SubscriberConfig) (string, SubscriberConfig, error) {
	servers, err := settings{
		"group": text(&cfg.Group), "topics": list(&cfg.Topics), "prefix": text(&cfg.Prefix), "create": boolean(&cfg.Create),
		"partitions": number(&cfg.Partitions), "replicas": number(&cfg.Replicas), "start": text(&cfg.Start),
		"instance": text(&cfg.Instance), "session_timeout": duration(&cfg.SessionTimeout),
		"revoke_wait": duration(&cfg.RevokeWait), "commit_every": duration(&cfg.CommitEvery),
		"fetch_bytes": number(&cfg.FetchBytes),
	}.parse(address, &cfg.Connection)
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

// validate names every fault of a configuration with defaults.
func (c SubscriberConfig) validate() error {
	faults := c.faults()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kafka: "+format, args...)) }
	if c.Group == "" {
		fault("no group is named; set Group, or ?group=NAME in the URL")
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

// names are the names of Kafka's topics.
func (c SubscriberConfig) names() []string {
	names := make([]string, len(c.Topics))
	for i, t := range c.Topics {
		names[i] = TopicName(c.Prefix, t)
	}
	return names
}

const (
	// rebalanceTimeout is how long the group waits for its members in a rebalance.
	rebalanceTimeout = 60 * time.Second
	// checkWait bounds the look at the topics when a member joins.
	checkWait = 10 * time.Second
	// fetchWait is how long a broker may wait for messages before it answers that there are none.
	fetchWait = 2 * time.Second
	// requestTimeout bounds the wait for an answer, beyond what the request itself lets the broker wait.
	requestTimeout = 10 * time.Second
	// consumerMetadataAge bounds how long new partitions go unnoticed.
	consumerMetadataAge = 30 * time.Second
)

// Subscriber reads topics of a Kafka cluster for one member of a group after another.
type Subscriber struct {
	cfg     SubscriberConfig
	brokers []string
	options []kgo.Opt
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// OpenSubscriber returns a subscriber for a cluster, which is named as for Open (see ParseSubscriberURL for the options). It
// connects to nobody yet. Its error names everything in cfg that has to be changed.
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

// Capabilities implements postrider.Subscriber. There is no limit to redelivery: a group can be set back to any message that
// the topic still has.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{Ordered: true, Positions: true, NackDelay: true}
}

// Subscribe implements postrider.Subscriber. Errors: one made by postrider.Unavailable if no broker can be reached; others say
// what to change: credentials, a topic that does not exist.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	unread, err := s.check(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("subscribe to Kafka: %w", ctx.Err())
		}
		return nil, err
	}
	sub := newSubscription(s.cfg, unread)
	age := kgo.MetadataMaxAge(consumerMetadataAge) // which Options may change
	client, err := kgo.NewClient(slices.Concat([]kgo.Opt{age}, s.options, s.consumerOptions(), sub.options())...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	sub.start(client)
	return sub, nil
}

// check connects, and looks up the topics or creates them. It returns those that the group is to start in at the end, with how
// many partitions they have.
func (s *Subscriber) check(ctx context.Context) (unread map[string]int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	client, err := kgo.NewClient(append(s.options, kgo.RequestTimeoutOverhead(requestTimeout))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	defer client.Close()
	if err := connect(ctx, client, s.brokers); err != nil {
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

// consumerOptions are those that the promises depend on.
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
		kgo.BlockRebalanceOnPoll(), // from the moment that the client gives messages out until they are in their partitions
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
