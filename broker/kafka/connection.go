package kafkabroker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/outage"
)

// SASL mechanisms.
const (
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

// Connection configures the connection to a cluster. The zero value of each field means its default.
type Connection struct {
	// ClientID identifies the client in the brokers' logs, quotas and metrics. Default: "postrider".
	ClientID string
	// User and Password are the credentials. Default: those of the URL, or no authentication.
	User, Password string
	// SASL is the authentication mechanism: SASLPlain, SASLScramSHA256 or SASLScramSHA512. SASLPlain sends the password
	// to the broker, so it needs encryption. Default: SASLScramSHA512.
	SASL string
	// AllowPlaintext permits SASLPlain to send the password to another host without encryption.
	AllowPlaintext bool
	// Encrypt enables TLS, like the scheme kafkas://. TLS configures it. CAFile, CertFile and KeyFile are PEM files: the
	// CA certificates (default: the system's), and the client certificate and key. TLS, CAFile and CertFile imply
	// Encrypt.
	Encrypt                   bool
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string
	// Logger logs what operators should know. Default: slog.Default().
	Logger *slog.Logger
	// Options are additional options of the client. Options that the delivery guarantees depend on override them. Hooks
	// may wrap the context of a record, as tracing hooks do, but must not retain a finished record, because its memory
	// is reused.
	Options []kgo.Opt
}

const (
	// The retry delay of requests and connections doubles from retryFirst to retryLast, with jitter.
	retryFirst, retryLast = 50 * time.Millisecond, time.Second
	// dialTimeout bounds one connection attempt.
	dialTimeout = 5 * time.Second
	// metadataMinAge is the minimum interval between the client's queries for partition leaders.
	metadataMinAge = 200 * time.Millisecond
)

func (c Connection) withDefaults() Connection {
	c.ClientID = cmp.Or(c.ClientID, "postrider")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.User != "" {
		c.SASL = cmp.Or(strings.ToLower(c.SASL), SASLScramSHA512)
	}
	c.Encrypt = c.Encrypt || c.TLS != nil || c.CAFile != "" || c.CertFile != ""
	return c
}

// faults returns all errors of a connection that has its defaults set.
func (c Connection) faults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kafka: "+format, args...)) }
	switch c.SASL {
	case "", SASLPlain, SASLScramSHA256, SASLScramSHA512:
	default:
		fault("SASL mechanism %q; give %s, %s or %s", c.SASL, SASLPlain, SASLScramSHA256, SASLScramSHA512)
	}
	if c.User == "" && (c.Password != "" || c.SASL != "") {
		fault("a password or SASL mechanism is given, and no user; set User, or name it in the URL")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("client certificate and key come together; give both files or none")
	}
	return faults
}

// options returns the client's options for a connection that has its defaults set.
func (c Connection) options(brokers []string) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(clientLogger{c.Logger}),
		kgo.RetryBackoffFn(retryDelay),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.DialTimeout(dialTimeout),
	}
	if c.User != "" {
		options = append(options, kgo.SASL(c.mechanism()))
	}
	if c.Encrypt {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	return append(options, c.Options...), nil
}

func (c Connection) mechanism() sasl.Mechanism {
	switch auth := (scram.Auth{User: c.User, Pass: c.Password}); c.SASL {
	case SASLPlain:
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case SASLScramSHA256:
		return auth.AsSha256Mechanism()
	default:
		return auth.AsSha512Mechanism()
	}
}

func (c Connection) tlsConfig() (*tls.Config, error) {
	config := c.TLS.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafka: read CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("kafka: CA file %s has no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("kafka: read client certificate: %w", err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	return config, nil
}

// retryDelay returns the delay after the given number of failed attempts.
func retryDelay(attempts int) time.Duration {
	delay := min(retryFirst<<min(max(attempts-1, 0), 6), retryLast)
	return delay/2 + rand.N(delay/2)
}

// connect retries until a broker answers, ctx ends, or a broker rejects the credentials or the TLS handshake.
func connect(ctx context.Context, client *kgo.Client, brokers []string, log *slog.Logger) error {
	var start outage.Start
	at := strings.Join(brokers, ",")
	for attempts := 1; ; attempts++ {
		err := client.Ping(ctx)
		switch {
		case err == nil:
			return nil
		case refusesCredentials(err):
			return fmt.Errorf("connect to Kafka at %s: the broker refuses the credentials; check user, password and SASL mechanism: %w", at, err)
		case refusesCertificate(err):
			return fmt.Errorf("connect to Kafka at %s: check the CA file, and that the certificate names this host: %w", at, err)
		}
		start.Failed(log, "Kafka", err)
		select {
		case <-ctx.Done():
			return postrider.Unavailable(fmt.Errorf("connect to Kafka at %s: %w after %d attempts, the last: %w; check that the broker runs, the address is right, and whether the listener wants TLS or SASL",
				at, ctx.Err(), attempts, err))
		case <-time.After(retryDelay(attempts)):
		}
	}
}

// refusesCredentials reports whether a broker rejected the credentials.
func refusesCredentials(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState)
}

func refusesCertificate(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return bad || alert
}

// clientLogger passes the client's warnings and errors to log.
type clientLogger struct{ log *slog.Logger }

func (l clientLogger) Level() kgo.LogLevel {
	if !l.log.Enabled(context.Background(), slog.LevelWarn) {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelWarn
}

func (l clientLogger) Log(level kgo.LogLevel, text string, keyvals ...any) {
	to := slog.LevelWarn
	if level == kgo.LogLevelError {
		to = slog.LevelError
	}
	l.log.Log(context.Background(), to, "Kafka client: "+text, keyvals...)
}

// withPort adds Kafka's default port to a host without a port.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "9092")
}
