package kafkabroker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/address"
)

// Defaults of Config.
const (
	DefaultPublishTimeout = 10 * time.Second
	DefaultBuffer         = 64 << 20
	DefaultCompress       = "snappy"
)

// Config configures a Publisher. The zero value of every field means its default.
type Config struct {
	Connection

	// Topic is the Kafka topic for all messages. Default: each message's own topic, with Prefix.
	Topic string
	// Prefix is prepended to a message's topic to form the Kafka topic name, e.g. "shop.". Default: none.
	Prefix string

	// Create creates missing topics, with Partitions and Replicas. Default: topics must exist.
	Create bool
	// Partitions is the partition count of created topics. Changing it later breaks the order of keys. Default: the
	// broker's num.partitions.
	Partitions int
	// Replicas is the replication factor of created topics. Default: the broker's default.replication.factor.
	Replicas int

	// PublishTimeout is how long to wait for the acknowledgement of a message. It should exceed the time of a leader
	// election. Default: 10 s.
	PublishTimeout time.Duration
	// Buffer is the maximum size of all unacknowledged messages of all calls, in bytes; further calls wait. Default: 64
	// MiB.
	Buffer int
	// Compress is the compression of batches: none, gzip, snappy, lz4 or zstd. Default: snappy.
	Compress string
}

// ParseURL reads the options in the URL for Open into cfg and returns the URL without options and credentials. The
// options are topic, prefix, create, partitions, replicas, publish_timeout, buffer (bytes), compress, client_id, user,
// password, sasl, tls, ca, cert and key. The error lists every option that is unknown or invalid.
func ParseURL(url string, cfg Config) (string, Config, error) {
	servers, err := settings{
		"topic": address.Text(&cfg.Topic), "prefix": address.Text(&cfg.Prefix), "create": address.Bool(&cfg.Create),
		"partitions": address.Number(&cfg.Partitions), "replicas": address.Number(&cfg.Replicas), "publish_timeout": address.Duration(&cfg.PublishTimeout),
		"buffer": address.Number(&cfg.Buffer), "compress": address.Text(&cfg.Compress),
	}.parse(url, &cfg.Connection)
	return servers, cfg, err
}

func (c Config) withDefaults() Config {
	c.Connection = c.Connection.withDefaults()
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	c.Compress = cmp.Or(c.Compress, DefaultCompress)
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c Config) validate() error {
	faults := c.faults()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kafka: "+format, args...)) }
	if c.Topic != "" {
		if c.Prefix != "" {
			fault("both a topic and a prefix are given; give Topic for one topic, or Prefix for one per topic of messages")
		}
		if TopicName("", c.Topic) != c.Topic || len(c.Topic) > maxTopicName {
			fault("topic %q: a name has 1 to %d of the characters a-z, A-Z, 0-9, dot, underscore and hyphen", c.Topic, maxTopicName)
		}
	}
	faults = append(faults, prefixFaults(c.Prefix)...)
	faults = append(faults, creationFaults(c.Create, c.Partitions, c.Replicas)...)
	if c.PublishTimeout < 100*time.Millisecond {
		fault("PublishTimeout is %s; give 100ms or more", c.PublishTimeout)
	}
	if c.Buffer < 1<<20 {
		fault("buffer is %d bytes; give 1 MiB or more", c.Buffer)
	}
	if _, ok := codecs[c.Compress]; !ok {
		fault("compression %q; give none, gzip, snappy, lz4 or zstd", c.Compress)
	}
	return errors.Join(faults...)
}

func prefixFaults(prefix string) []error {
	if TopicName("", prefix+"-") == prefix+"-" {
		return nil
	}
	return []error{fmt.Errorf("kafka: prefix %q: give characters of a-z, A-Z, 0-9, dot, underscore and hyphen", prefix)}
}

func creationFaults(create bool, partitions, replicas int) (faults []error) {
	if partitions < 0 || partitions > 1<<31-1 || replicas < 0 || replicas > 1<<15-1 {
		faults = append(faults, fmt.Errorf("kafka: %d partitions with %d replicas; give positive numbers, or 0 for the broker's default", partitions, replicas))
	}
	if !create && (partitions > 0 || replicas > 0) {
		faults = append(faults, errors.New("kafka: partitions or replicas are given, and topics are not to be created; set Create, or create=true in the URL"))
	}
	return faults
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}
