package natsbroker

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Defaults of Config.
const (
	DefaultDedupeWindow   = 2 * time.Minute
	DefaultMaxInFlight    = 4096
	DefaultPublishTimeout = 5 * time.Second
)

// noPrefix is the value of Config.Prefix for no prefix.
const noPrefix = "-"

// Config configures a Publisher. Stream is required; the zero value of every other field means its default.
type Config struct {
	// Stream is the JetStream stream. It is created if it does not exist.
	Stream string
	// Prefix is prepended to the topic to form the subject. Default: Stream and a dot; "-" means no prefix.
	Prefix string
	// Partitioned adds the partition of the message's key, one of 256, to each subject, so that the processes of a consumer can
	// share the stream and keep the order of keys: ORDERS-p.a.3.order.placed in place of ORDERS.order.placed. The stream
	// must take these subjects; then consumers read it in partitions. Publishers with and without Partitioned can share a stream
	// that takes the subjects of both. It needs a Prefix. Default: subjects without a partition.
	Partitioned bool
	// Subjects are the subjects that the stream must take; wildcards are allowed. Default: those under Prefix, or with
	// Partitioned those with a partition. Required if Prefix is "-", because a stream cannot take all subjects.
	Subjects []string
	// CheckOnly never creates the stream; it must exist and match this configuration.
	CheckOnly bool
	// Replicas is the stream's number of replicas, 1 to 5; an odd number is usual. An existing stream may have more. Default: 1.
	Replicas int
	// DedupeWindow is the minimum time in which the stream drops duplicates of a message. An existing stream may have a
	// longer one. Default: 2 minutes.
	DedupeWindow time.Duration
	// MaxAge is how long the stream keeps a message, consumed or not, and how long it may redeliver it. An existing
	// stream must have the same value. It must be at least DedupeWindow. Default, 0: a created stream keeps messages
	// forever, and any value of an existing stream is accepted. A consumer that stores message IDs needs MaxAge to be
	// shorter than the time for which it keeps them (inbox.ConsumerConfig.KeepIDs).
	MaxAge time.Duration
	// MaxInFlight is the maximum number of unacknowledged messages over all calls, in batches or single. The server
	// queues at most 10,000 per stream, from all publishers together. Default: 4096.
	MaxInFlight int
	// PublishTimeout is how long to wait for the acknowledgement of a message, and for any answer to a batch. Default: 5
	// s.
	PublishTimeout time.Duration
	// Logger logs lost connections and reconnects. Default: slog.Default().
	Logger *slog.Logger

	// The fields below are used only by Open, which makes the connection.

	// Name is the connection name shown by the server. Default: "postrider".
	Name string
	// CredentialsFile has a user JWT and its nkey seed, NKeySeedFile an nkey seed. Alternatives are User and Password, or
	// Token. Set at most one of the four. Default: the credentials of the URL, if any.
	CredentialsFile, NKeySeedFile, User, Password, Token string
	// AllowPlaintext permits to send password or token to another host without encryption. Encryption is certain with the scheme
	// tls://, TLS or CAFile; otherwise it is up to the server.
	AllowPlaintext bool
	// TLS configures encryption; nil leaves it to URL and server. CAFile, CertFile and KeyFile are PEM files: the CA
	// certificates (default: the system's), and the client certificate and key.
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string
	// Options are applied after those of Open.
	Options []nats.Option
}

// withDefaults returns a copy with all defaults set.
func (c Config) withDefaults() Config {
	switch {
	case c.Prefix == noPrefix:
		c.Prefix = ""
	case c.Prefix == "":
		c.Prefix = c.Stream + "."
	}
	if len(c.Subjects) == 0 && c.Prefix != "" {
		c.Subjects = []string{c.Prefix + ">"}
		if c.Partitioned {
			c.Subjects = []string{c.partitionPrefix() + ">"}
		}
	}
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.DedupeWindow = cmp.Or(c.DedupeWindow, DefaultDedupeWindow)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Name = cmp.Or(c.Name, "postrider")
	return c
}

// validate returns all errors of a configuration that has its defaults set.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("nats: "+format, args...))
	}
	if c.Stream == "" {
		fault("no stream is named; set Stream, or ?stream=NAME in the URL")
	} else if strings.ContainsAny(c.Stream, " .*>/\\\t\r\n") {
		fault("stream %q: a name has no space, dot, slash, * or >", c.Stream)
	}
	if c.Prefix != "" && (!strings.HasSuffix(c.Prefix, ".") || !validSubject(c.Prefix+"x")) {
		fault("prefix %q: give whole tokens with a dot at the end, such as \"orders.\", or \"-\" for none", c.Prefix)
	}
	if len(c.Subjects) == 0 {
		fault("no subjects and no prefix; say in Subjects what the stream takes")
	}
	for _, s := range c.Subjects {
		if !validSubject(s) {
			fault("subject %q: tokens are separated by single dots and have no space", s)
		}
	}
	if c.Partitioned && c.Prefix == "" {
		fault("subjects with a partition need a prefix; set Prefix, or leave Partitioned out")
	} else if c.Partitioned && !c.takesPartitions(c.Subjects) {
		fault("no subject with a partition is among %s; add %s>, or leave Subjects out", strings.Join(c.Subjects, ", "), c.partitionPrefix())
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		fault("%d replicas; give 1, 3 or 5", c.Replicas)
	}
	if c.DedupeWindow < 100*time.Millisecond {
		fault("dedupe window is %s; give 100ms or more", c.DedupeWindow)
	}
	if c.MaxAge < 0 || c.MaxAge > 0 && c.MaxAge < c.DedupeWindow {
		fault("max age is %s; give the dedupe window, %s, or more, or nothing for messages to be kept for ever", c.MaxAge, c.DedupeWindow)
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 10_000 {
		fault("MaxInFlight is %d; give 1 to 10000, which is what a server keeps waiting for a stream", c.MaxInFlight)
	}
	if c.PublishTimeout < 0 {
		fault("PublishTimeout is %s; give more than 0", c.PublishTimeout)
	}
	ways := []bool{c.CredentialsFile != "", c.NKeySeedFile != "", c.User != "" || c.Password != "", c.Token != ""}
	if n := len(slices.DeleteFunc(ways, func(given bool) bool { return !given })); n > 1 {
		fault("%d of credentials file, nkey, user and token are given; give one", n)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("client certificate and key come together; give both files or none")
	}
	return errors.Join(faults...)
}

func validSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
			return false
		}
	}
	return true
}
