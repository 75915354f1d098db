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

// The defaults of Config.
const (
	DefaultPrefix          = "postrider:"
	DefaultPartitions      = 8
	DefaultMaxMessageBytes = 8 << 20
	DefaultPublishTimeout  = 5 * time.Second
)

// Config configures a Publisher. The zero value of every field means its default.
type Config struct {
	// Prefix stands before the names of all keys. Default: "postrider:".
	Prefix string
	// Partitions is the number of streams of a topic, the same for all who publish to it and read it. Changing it is for times
	// when nothing is under way. Default: 8.
	Partitions int
	// MaxLen bounds a stream to about that many entries: the oldest are dropped, consumed or not. Default: no bound; consumers
	// delete what they have settled (SubscriberConfig.DeleteSettled), or an operator trims.
	MaxLen int64
	// MaxMessageBytes is the size (postrider.Message.Size) above which a message is dead. Redis itself takes 512 MiB. Default:
	// 8 MiB.
	MaxMessageBytes int
	// PublishTimeout bounds the wait for an answer. Default: 5 s.
	PublishTimeout time.Duration
	// Replicas is how many replicas must have a message before it counts as accepted (WAIT). Default: 0.
	Replicas int
	// Fsync has a message count as accepted only when the server, and as many replicas as Replicas says, have it in their
	// append-only file on disk (WAITAOF, Redis 7.2 or newer). Default: as appendfsync says.
	Fsync bool
	// Logger hears what operators should know, such as settings of the server by which messages may be lost. Default: nothing
	// is logged.
	Logger *slog.Logger

	// The rest is for Open, which makes the client itself.

	// Name is the name of the connections in the server's reports. Default: "postrider".
	Name string
	// User and Password say who connects. Default: what the URL says.
	User, Password string
	// DB is the database's number; a cluster has only 0. Default: what the URL says, or 0.
	DB int
	// Cluster says that the addresses are those of a Redis cluster's nodes. Default: true if there are several, and no Master.
	Cluster bool
	// Master names the master that the addresses, which are those of sentinels, watch over.
	Master string
	// SentinelUser and SentinelPassword say who connects to the sentinels. Default: nobody in particular.
	SentinelUser, SentinelPassword string
	// TLS configures encryption; nil leaves it to the URL. CAFile, CertFile and KeyFile name PEM files: those who sign the
	// server's certificate (default: the system's), and the client's own certificate and key.
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, DefaultPartitions)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Name = cmp.Or(c.Name, "postrider")
	return c
}

// validate names every fault of a configuration with defaults.
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
