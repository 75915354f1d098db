package rabbitmqbroker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/address"
)

// Defaults of Config.
const (
	DefaultMaxInFlight     = 1024
	DefaultPublishTimeout  = 5 * time.Second
	DefaultMaxMessageBytes = 16 << 20
)

// maxName is the maximum length of names and routing keys in AMQP, in bytes.
const maxName = 255

// Config configures a Publisher. Exchange is required, unless ExchangePerTopic is set; the zero value of every other field
// means its default.
type Config struct {
	Connection
	// Exchange is the exchange for all messages, with the topic as routing key. "amq.default" is the default exchange,
	// where the routing key is a queue name.
	Exchange string
	// ExchangePerTopic gives every topic its own exchange, named Exchange followed by the topic; the routing key is the
	// message key.
	ExchangePerTopic bool
	// ExchangeType is "topic", "fanout", "direct", "headers", or a type provided by a plugin, such as
	// "x-consistent-hash". Default: "topic"; with ExchangePerTopic "fanout".
	ExchangeType string
	// Queue is a queue to declare and bind to all topics, so that messages are kept before the first consumer exists. It
	// is a quorum queue, like those of subscribers. Default: none.
	Queue string
	// CheckOnly declares nothing: exchange and queue must exist.
	CheckOnly bool
	// AllowUnroutable treats a message that no queue takes as delivered; RabbitMQ drops it. Default: the message fails.
	AllowUnroutable bool
	// MaxInFlight is the maximum number of unacknowledged messages, over all calls. Default: 1024.
	MaxInFlight int
	// PublishTimeout is how long to wait for the acknowledgement of a message. Default: 5 s.
	PublishTimeout time.Duration
	// MaxMessageBytes is the maximum message size. It must not exceed the server's max_message_size, which clients
	// cannot read. Default: 16 MiB, as in RabbitMQ 4.
	MaxMessageBytes int
}

// withDefaults returns a copy with all defaults set.
func (c Config) withDefaults() Config {
	c.Connection = c.Connection.withDefaults()
	c.ExchangeType = exchangeType(c.ExchangeType, c.ExchangePerTopic)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	return c
}

func exchangeType(kind string, perTopic bool) string {
	if perTopic {
		return cmp.Or(kind, "fanout")
	}
	return cmp.Or(kind, "topic")
}

// validate returns all errors of a configuration that has its defaults set.
func (c Config) validate() error {
	faults := c.Connection.faults()
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("rabbitmq: "+format, args...))
	}
	if c.Exchange == "" && !c.ExchangePerTopic {
		fault("no exchange is named; set Exchange, or ?exchange=NAME in the URL, or ExchangePerTopic")
	}
	if err := checkName("exchange", c.Exchange); err != nil {
		faults = append(faults, err)
	}
	if err := checkName("queue", c.Queue); err != nil {
		faults = append(faults, err)
	}
	if c.Exchange == defaultExchange && (c.Queue != "" || c.ExchangePerTopic) {
		fault("queues cannot be bound to %s, and it is no prefix; name another exchange", defaultExchange)
	}
	if c.MaxInFlight < 1 {
		fault("MaxInFlight is %d; give 1 or more", c.MaxInFlight)
	}
	if c.PublishTimeout < 0 {
		fault("PublishTimeout is %s; give more than 0", c.PublishTimeout)
	}
	if c.MaxMessageBytes < 1 {
		fault("largest message is %d bytes; give 1 or more", c.MaxMessageBytes)
	}
	return errors.Join(faults...)
}

// checkName checks the name of an exchange or queue; it may be empty.
func checkName(of, name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("rabbitmq: the name of the %s has %d bytes; give at most %d", of, len(name), maxName)
	case strings.ContainsAny(name, "\r\n\x00"):
		return fmt.Errorf("rabbitmq: %s %q: a name has no line breaks", of, name)
	}
	return nil
}

// topology returns what the configuration requires on the server.
func (c Config) topology() topology {
	t := topology{exchange: c.Exchange, perTopic: c.ExchangePerTopic, exchangeType: c.ExchangeType, checkOnly: c.CheckOnly,
		queue: queueSettings{name: c.Queue, kind: QuorumQueue}, log: c.Logger}
	if !c.ExchangePerTopic {
		t.topics = []string{"#"}
	}
	return t
}

// ParseURL reads the options in the URL for Open into cfg and returns the URL without options. The error lists every
// option that is unknown or invalid.
func ParseURL(url string, cfg Config) (string, Config, error) {
	options := cfg.options()
	maps.Copy(options, map[string]option{
		"exchange": address.Text(&cfg.Exchange), "exchange_type": address.Text(&cfg.ExchangeType), "exchange_per_topic": address.Bool(&cfg.ExchangePerTopic),
		"queue": address.Text(&cfg.Queue), "check_only": address.Bool(&cfg.CheckOnly), "allow_unroutable": address.Bool(&cfg.AllowUnroutable),
		"max_in_flight": address.Number(&cfg.MaxInFlight), "publish_timeout": address.Duration(&cfg.PublishTimeout), "max_message_bytes": address.Number(&cfg.MaxMessageBytes),
	})
	base, err := cfg.parse(url, options)
	return base, cfg, err
}
