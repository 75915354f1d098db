package redisbroker

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Defaults of Config.
const (
	DefaultPrefix          = "postrider:"
	DefaultPartitions      = 8
	DefaultMaxMessageBytes = 8 << 20
	DefaultPublishTimeout  = 5 * time.Second
)

// Config configures a Publisher. The zero value of every field means its default.
type Config struct {
	// Prefix is prepended to all key names. Default: "postrider:".
	Prefix string
	// Partitions is the number of streams per topic. All publishers and consumers of a topic must use the same value.
	// Change it only while no messages are in flight. Default: 8.
	Partitions int
	// MaxLen is the approximate maximum length of a stream: the oldest entries are removed, consumed or not. Default: no
	// limit; consumers delete settled messages (SubscriberConfig.DeleteSettled), or an operator trims the streams.
	MaxLen int64
	// MaxMessageBytes is the largest size (postrider.Message.Size) that is accepted. Publish returns postrider.Dead for
	// larger messages. Redis itself accepts 512 MiB. Default: 8 MiB.
	MaxMessageBytes int
	// PublishTimeout is how long to wait for an answer. Default: 5 s.
	PublishTimeout time.Duration
	// Replicas is how many replicas must have stored a message before it counts as accepted (WAIT). Default: 0.
	Replicas int
	// Fsync makes a message count as accepted only when the server, and as many replicas as Replicas says, have written
	// it to the append-only file on disk (WAITAOF, Redis 7.2 or newer). Default: the server's appendfsync applies.
	Fsync bool
	// Logger logs warnings for operators, such as server settings that may lose messages. Default: slog.Default().
	Logger *slog.Logger

	// The fields below are used only by Open, which creates the client.

	// Name is the connection name shown by the server. Default: "postrider".
	Name string
	// User and Password are the credentials. Default: those of the URL.
	User, Password string
	// DB is the database number; a cluster has only 0. Default: that of the URL, or 0.
	DB int
	// Cluster means that the addresses are nodes of a Redis cluster. Default: true if there are several, and Master is
	// empty.
	Cluster bool
	// Master is the name of the master that the sentinels monitor; the addresses are then those of the sentinels.
	Master string
	// SentinelUser and SentinelPassword are the credentials for the sentinels. Default: none.
	SentinelUser, SentinelPassword string
	// AllowPlaintext permits to send passwords to another host without encryption.
	AllowPlaintext bool
	// TLS configures encryption; nil leaves it to the URL. CAFile, CertFile and KeyFile are PEM files: the CA
	// certificates (default: the system's), and the client certificate and key.
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, DefaultPartitions)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Name = cmp.Or(c.Name, "postrider")
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("redis: "+format, args...)) }
	if strings.ContainsAny(c.Prefix, "{}") {
		fault("prefix %q: braces are for the topic, by which a cluster places a stream", c.Prefix)
	}
	if c.Partitions < 1 || c.Partitions > 1024 {
		fault("%d partitions; give 1 to 1024", c.Partitions)
	}
	if c.MaxLen < 0 {
		fault("length of a stream is %d; give 0 for no bound, or more", c.MaxLen)
	}
	if c.MaxMessageBytes < 1 || c.MaxMessageBytes > 500<<20 {
		fault("messages of at most %d bytes; give 1 to 500 MiB (524288000)", c.MaxMessageBytes)
	}
	if c.PublishTimeout < 10*time.Millisecond {
		fault("wait for an answer is %s; give 10ms or more", c.PublishTimeout)
	}
	if c.Replicas < 0 {
		fault("%d replicas; give 0 or more", c.Replicas)
	}
	if c.DB < 0 || c.DB > 0 && c.Cluster {
		fault("database %d; give 0 or more, and 0 for a cluster", c.DB)
	}
	if c.Cluster && c.Master != "" {
		fault("both a cluster and master %q of sentinels; give one", c.Master)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("client certificate and key come together; give both files or none")
	}
	return errors.Join(faults...)
}
