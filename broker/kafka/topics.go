package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
)

const (
	// defaultMessageBytes is the default of message.max.bytes, used if the user may not read the setting.
	defaultMessageBytes = 1048588
	// topicAge is how long information about a topic is used.
	topicAge = 5 * time.Minute
	// sizeAllowance is what the headers may add to Message.Size: their names, lengths, and escaping.
	sizeAllowance = 4 << 10
)

// topic is information about a Kafka topic.
type topic struct {
	name      string
	limit     int // max.message.bytes
	inSync    int // min.insync.replicas; 0 if unknown
	compacted bool
	untold    error    // why its settings are unknown
	risks     []string // settings that may lose acknowledged messages
}

// report logs what operators should know about a topic.
func (t *topic) report(log *slog.Logger) {
	if t.untold != nil {
		log.Info("Kafka does not tell the settings of a topic, and the usual limit of a message's size is assumed; allow DescribeConfigs",
			"topic", t.name, "limit", t.limit, "error", t.untold)
	}
	for _, risk := range t.risks {
		log.Warn("Kafka may lose acknowledged messages of a topic: "+risk, "topic", t.name)
	}
}

// sizeLimit returns the maximum message size (Message.Size) of a topic or broker that accepts batches up to limit.
func sizeLimit(limit int) int { return max(limit-sizeAllowance, limit/2) }

// topics looks up topics, and creates them if configured. It refreshes its information after topicAge, in the
// background.
type topics struct {
	client  *kgo.Client
	admin   *kadm.Client
	cfg     Config
	running *sync.WaitGroup // background lookups

	mu    sync.Mutex
	known map[string]*knownTopic
}

type knownTopic struct {
	topic atomic.Pointer[topic] // nil until it is found
	mu    sync.Mutex            // held during the first lookup; guards next
	// next is when it has to be looked up again.
	next time.Time
}

// batchBytes returns the maximum batch size of a topic. The client calls it once per topic, after get, and blocks
// everything meanwhile.
func (t *topics) batchBytes(name string) int32 {
	t.mu.Lock()
	k := t.known[name]
	t.mu.Unlock()
	limit := defaultMessageBytes
	if k != nil && k.topic.Load() != nil {
		limit = k.topic.Load().limit
	}
	return int32(min(max(limit, 512), 1<<30)) // the client's limits
}

// get returns a topic, after looking it up or creating it if necessary. Its error applies to all messages of the topic.
func (t *topics) get(ctx context.Context, name string) (*topic, error) {
	t.mu.Lock()
	k := t.known[name]
	if k == nil {
		k = &knownTopic{}
		t.known[name] = k
	}
	t.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if found := k.topic.Load(); found != nil {
		if now := time.Now(); now.After(k.next) {
			k.next = now.Add(topicAge)
			t.running.Go(func() { t.renew(k, name) })
		}
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.PublishTimeout)
	defer cancel()
	found, err := t.look(ctx, name)
	if err != nil {
		return nil, err
	}
	found.report(t.cfg.Logger)
	k.topic.Store(found)
	k.next = time.Now().Add(topicAge)
	return found, nil
}

// renew looks up a topic again. If that fails, the old information remains; if the topic is gone, publishing will fail.
func (t *topics) renew(k *knownTopic, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), t.cfg.PublishTimeout)
	defer cancel()
	found, err := t.look(ctx, name)
	if err != nil {
		return
	}
	if before := k.topic.Swap(found); before.limit != found.limit {
		t.client.PurgeTopicsFromProducing(name) // the client caches the batch size with its other information about the topic
	}
}

// remove makes the next message look up a topic again, because it may have been deleted or recreated.
func (t *topics) remove(name string) {
	t.mu.Lock()
	_, known := t.known[name]
	delete(t.known, name)
	t.mu.Unlock()
	if known {
		t.client.PurgeTopicsFromProducing(name)
	}
}

// topicOf returns the Kafka topic for a message topic.
func (p *Publisher) topicOf(ctx context.Context, name string) (*topic, error) {
	return p.topics.get(ctx, cmp.Or(p.cfg.Topic, TopicName(p.cfg.Prefix, name)))
}

func (t *topics) look(ctx context.Context, name string) (*topic, error) {
	if len(name) > maxTopicName {
		return nil, postrider.Dead("no name for the topic in Kafka", fmt.Errorf("%s has %d bytes, Kafka takes %d; shorten the topic, or the prefix",
			name, len(name), maxTopicName))
	}
	details, err := describeTopic(ctx, t.client, name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if !t.cfg.Create {
			return nil, fmt.Errorf("topic %s does not exist in Kafka and is not to be created (Create); run: kafka-topics.sh --create --topic %s --partitions N --replication-factor N: %w",
				name, name, err)
		}
		if err := t.create(ctx, name); err != nil {
			return nil, err
		}
		details, err = t.awaitCreated(ctx, name)
	}
	if err != nil {
		return nil, topicError(name, "Describe", err)
	}
	found := &topic{name: name, limit: defaultMessageBytes}
	t.configure(ctx, found, len(details.Partitions[0].Replicas))
	if t.cfg.Buffer > 0 { // only for a Publisher
		found.limit = min(found.limit, t.cfg.Buffer)
	}
	return found, nil
}

// create can run in many processes at once.
func (t *topics) create(ctx context.Context, name string) error {
	orDefault := func(n int) int {
		if n == 0 {
			return -1
		}
		return n
	}
	_, err := t.admin.CreateTopic(ctx, int32(orDefault(t.cfg.Partitions)), int16(orDefault(t.cfg.Replicas)), nil, name)
	switch {
	case err == nil:
		t.cfg.Logger.Info("Kafka topic created", "topic", name)
		return nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return fmt.Errorf("create topic %s: %d replicas need as many brokers; set Replicas to less, or add brokers: %w", name, t.cfg.Replicas, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("create topic %s: Kafka refuses the name; names that differ only in dots and underscores cannot stand together: %w", name, err)
	}
	return topicError(name, "Create", err)
}

// awaitCreated describes a topic that was just created and that some brokers do not know yet.
func (t *topics) awaitCreated(ctx context.Context, name string) (*kmsg.MetadataResponseTopic, error) {
	for attempt := 1; ; attempt++ {
		details, err := describeTopic(ctx, t.client, name)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return details, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("topic %s was created and is not there yet: %w", name, ctx.Err())
		case <-time.After(retryDelay(attempt)):
		}
	}
}

// configure reads the settings of a topic, if the user may.
func (t *topics) configure(ctx context.Context, found *topic, replicas int) {
	values, err := t.settings(ctx, found.name)
	if err != nil {
		found.untold = err
		return
	}
	if n, err := strconv.Atoi(values["max.message.bytes"]); err == nil {
		found.limit = n
	}
	found.inSync, _ = strconv.Atoi(values["min.insync.replicas"]) // 0 if unknown
	found.compacted = strings.Contains(values["cleanup.policy"], "compact")
	if replicas > 1 && found.inSync < 2 {
		found.risks = append(found.risks, "min.insync.replicas is 1, so that a single broker may acknowledge; set it to 2")
	}
	if values["unclean.leader.election.enable"] == "true" {
		found.risks = append(found.risks, "unclean.leader.election.enable lets a broker lead that lacks messages; set it to false")
	}
}

func (t *topics) settings(ctx context.Context, name string) (map[string]string, error) {
	described, err := t.admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := described.On(name, nil)
	if err != nil {
		return nil, err
	}
	if config.Err != nil {
		return nil, config.Err
	}
	return valuesOf(config), nil
}

func valuesOf(config kadm.ResourceConfig) map[string]string {
	values := make(map[string]string, len(config.Configs))
	for _, c := range config.Configs {
		values[c.Key] = c.MaybeValue()
	}
	return values
}

// brokerLimit returns the brokers' message.max.bytes, which is the default for topics.
func brokerLimit(ctx context.Context, admin *kadm.Client) (int, error) {
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list brokers: %w", err)
	}
	if len(brokers) == 0 { // e.g. from a broker that is starting
		return 0, errors.New("list brokers: the cluster names none yet")
	}
	described, err := admin.DescribeBrokerConfigs(ctx, brokers.NodeIDs()[0])
	if err != nil {
		return 0, err
	}
	for _, config := range described {
		if n, err := strconv.Atoi(valuesOf(config)["message.max.bytes"]); err == nil {
			return n, nil
		}
	}
	return defaultMessageBytes, nil
}

// describeTopic asks a broker for the partitions of a topic.
func describeTopic(ctx context.Context, client *kgo.Client, name string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("the broker describes %d topics instead of one", len(resp.Topics))
	}
	found := &resp.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, err
	}
	if len(found.Partitions) == 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	return found, nil
}
