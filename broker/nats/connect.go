package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// The wait before another round of connecting doubles from the first to the last of these, with full jitter.
	reconnectFirst, reconnectLast = 100 * time.Millisecond, 5 * time.Second
	// A server that answers none of two pings is given up.
	pingInterval, pingsOutstanding = 10 * time.Second, 2
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 3 * time.Second
)

// Open connects to a server, or to one of several separated by commas, and returns a Publisher that closes the connection
// with itself. The URL may carry options behind a question mark, which go before those of cfg:
//
//	nats://host:4222,other:4222?stream=ORDERS&replicas=3&dedupe_window=10m&creds=/etc/orders.creds
//
// They are stream, prefix, subjects (separated by commas), check_only, replicas, dedupe_window, max_age, max_in_flight, publish_timeout,
// name, creds, nkey, user, password, token, ca, cert and key. The scheme tls:// asks for encryption.
//
// A server that cannot be reached is tried until ctx ends; one that refuses the credentials, or whose stream does not fit
// cfg, fails Open at once with an error that says what to change.
func Open(ctx context.Context, address string, cfg Config) (*Publisher, error) {
	servers, cfg, err := ParseURL(address, cfg)
	if err != nil {
		return nil, err
	}
	if err := cfg.withDefaults().validate(); err != nil {
		return nil, err
	}
	options, err := connectOptions(cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, options)
	if err != nil {
		return nil, err
	}
	p, err := New(ctx, conn, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	p.ownsConn = true
	return p, nil
}

// connect tries until it succeeds, ctx ends, or the server says that trying again is of no use.
func connect(ctx context.Context, servers string, options []nats.Option) (*nats.Conn, error) {
	for attempt := 1; ; attempt++ {
		conn, err := nats.Connect(servers, options...)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
			return nil, fmt.Errorf("connect to NATS at %s: the server refuses the credentials; check user, token, nkey or credentials file: %w",
				redacted(servers), err)
		case !unreachable(err):
			return nil, fmt.Errorf("connect to NATS at %s: %w", redacted(servers), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to NATS at %s: %w after %d attempts, the last: %w; check that the server runs and the address is right",
				redacted(servers), ctx.Err(), attempt, err)
		case <-time.After(reconnectDelay(attempt)):
		}
	}
}

// unreachable says whether a failed attempt to connect may succeed later without a change on this side.
func unreachable(err error) bool {
	_, network := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout)
}

func connectOptions(c Config) ([]nats.Option, error) {
	log := c.Logger
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials that are replaced on the server must not end reconnecting
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // what cannot be sent now is the relay's to keep
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOutstanding),
		nats.FlusherTimeout(c.PublishTimeout), // a write that blocks holds up every call
		nats.SkipSubjectValidation(),          // Subject makes valid ones only
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info("NATS connection made again", "server", conn.ConnectedUrlRedacted())
		}),
		nats.LameDuckModeHandler(func(conn *nats.Conn) {
			log.Info("NATS server is about to shut down", "server", conn.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Error("NATS reports an error", "error", err)
		}),
	}
	switch {
	case c.CredentialsFile != "":
		options = append(options, nats.UserCredentials(c.CredentialsFile))
	case c.NKeySeedFile != "":
		nkey, err := nats.NkeyOptionFromSeed(c.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("nats: read nkey seed %s: %w", c.NKeySeedFile, err)
		}
		options = append(options, nkey)
	case c.Token != "":
		options = append(options, nats.Token(c.Token))
	case c.User != "" || c.Password != "":
		options = append(options, nats.UserInfo(c.User, c.Password))
	}
	if c.TLS != nil {
		options = append(options, nats.Secure(c.TLS))
	}
	if c.CAFile != "" {
		options = append(options, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		options = append(options, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	return append(options, c.Options...), nil
}

// reconnectDelay is the wait after the given number of failed rounds over all servers.
func reconnectDelay(attempts int) time.Duration {
	delay := reconnectFirst << min(max(attempts-1, 0), 6)
	return rand.N(min(delay, reconnectLast)) + 1
}

// ParseURL takes the options out of a URL for Open and sets them in cfg. It returns the URL without them. Its error names
// every option that is unknown or has a bad value.
func ParseURL(address string, cfg Config) (string, Config, error) {
	servers, err := parseURL(address, cfg.settings())
	return servers, cfg, err
}

// settings are the URL options of a configuration, each as a function that sets it.
func (c *Config) settings() map[string]func(v string) error {
	return map[string]func(v string) error{
		"stream": text(&c.Stream), "prefix": text(&c.Prefix), "name": text(&c.Name),
		"subjects": list(&c.Subjects), "check_only": boolean(&c.CheckOnly),
		"replicas": number(&c.Replicas), "max_in_flight": number(&c.MaxInFlight),
		"dedupe_window": duration(&c.DedupeWindow), "max_age": duration(&c.MaxAge), "publish_timeout": duration(&c.PublishTimeout),
		"creds": text(&c.CredentialsFile), "nkey": text(&c.NKeySeedFile), "token": text(&c.Token),
		"user": text(&c.User), "password": text(&c.Password),
		"ca": text(&c.CAFile), "cert": text(&c.CertFile), "key": text(&c.KeyFile),
	}
}

// parseURL applies settings to the options of a URL and returns the URL without them.
func parseURL(address string, settings map[string]func(v string) error) (string, error) {
	servers, query, _ := strings.Cut(address, "?")
	for server := range strings.SplitSeq(servers, ",") {
		if scheme, _, ok := strings.Cut(server, "://"); ok && scheme != "nats" && scheme != "tls" {
			return "", fmt.Errorf("nats: URL %s: scheme %q; use nats:// or tls://", redacted(servers), scheme)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("nats: URL %s: options: %w", redacted(servers), err)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := settings[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
			faults = append(faults, fmt.Errorf("nats: unknown URL option %q; known are %s", name, known))
			continue
		}
		if err := set(values.Get(name)); err != nil {
			faults = append(faults, fmt.Errorf("nats: URL option %s: %w", name, err))
		}
	}
	return servers, errors.Join(faults...)
}

func text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

func boolean(to *bool) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

func list(to *[]string) func(string) error {
	return func(v string) error { *to = strings.Split(v, ","); return nil }
}

func number(to *int) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		return nil
	}
}

func duration(to *time.Duration) func(string) error {
	return func(v string) (err error) {
		if *to, err = time.ParseDuration(v); err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 2m", v)
		}
		return nil
	}
}

// redacted takes user, password and token out of server URLs, for errors.
func redacted(servers string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		scheme, rest, ok := strings.Cut(server, "://")
		if !ok {
			scheme, rest = "nats", server
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = rest[at+1:]
		}
		list[i] = scheme + "://" + rest
	}
	return strings.Join(list, ",")
}
