package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider/internal/address"
	"github.com/postrider/postrider/internal/outage"
)

const (
	// The reconnect delay doubles from reconnectFirst to reconnectLast, with full jitter.
	reconnectFirst, reconnectLast = 100 * time.Millisecond, 5 * time.Second
	// A connection is closed when two pings are unanswered.
	pingInterval, pingsOutstanding = 10 * time.Second, 2
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 3 * time.Second
)

// Open connects to a server, or to one of several (comma-separated), and returns a Publisher whose Close closes the
// connection. The URL may have options after a question mark, which take precedence over cfg:
//
//	nats://host:4222,other:4222?stream=ORDERS&replicas=3&dedupe_window=10m&creds=/etc/orders.creds
//
// The options are stream, prefix, partitioned, subjects (comma-separated), check_only, replicas, dedupe_window, max_age,
// max_in_flight, publish_timeout, name, creds, nkey, user, password, token, allow_plaintext, ca, cert and key. The scheme
// tls:// requires encryption.
//
// Open retries an unreachable server until ctx ends. If the server rejects the credentials, or the stream does not match
// cfg, Open fails immediately with an error that says what to change.
func Open(ctx context.Context, url string, cfg Config) (*Publisher, error) {
	servers, cfg, err := ParseURL(url, cfg)
	if err != nil {
		return nil, err
	}
	if servers, err = cfg.locate(servers); err != nil {
		return nil, err
	}
	if err := cfg.withDefaults().validate(); err != nil {
		return nil, err
	}
	options, err := connectOptions(cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, options, cfg.withDefaults().Logger)
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

// connect retries until it succeeds, ctx ends, or an error occurs that retrying cannot fix.
func connect(ctx context.Context, servers string, options []nats.Option, log *slog.Logger) (*nats.Conn, error) {
	var start outage.Start
	for attempts := 1; ; attempts++ {
		conn, err := nats.Connect(servers, options...)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
			return nil, fmt.Errorf("connect to NATS at %s: the server refuses the credentials; check user, token, nkey or credentials file: %w",
				address.Servers(servers), err)
		case !unreachable(err):
			return nil, fmt.Errorf("connect to NATS at %s: %w", address.Servers(servers), err)
		}
		start.Failed(log, "NATS", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to NATS at %s: %w after %d attempts, the last: %w; check that the server runs and the address is right",
				address.Servers(servers), ctx.Err(), attempts, err)
		case <-time.After(reconnectDelay(attempts)):
		}
	}
}

// unreachable reports whether a failed connection attempt may succeed later without a change on the client.
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
		nats.IgnoreAuthErrorAbort(), // keep reconnecting: the credentials may be fixed on the server
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // the relay keeps what cannot be sent now
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOutstanding),
		nats.FlusherTimeout(c.PublishTimeout), // a blocked write blocks every call
		nats.SkipSubjectValidation(),          // Subject returns only valid subjects
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

// reconnectDelay returns the delay after the given number of failed rounds over all servers.
func reconnectDelay(attempts int) time.Duration {
	delay := reconnectFirst << min(max(attempts-1, 0), 6)
	return rand.N(min(delay, reconnectLast)) + 1
}

// ParseURL reads the options in the URL for Open into cfg and returns the URL without options. The error lists every
// option that is unknown or invalid.
func ParseURL(url string, cfg Config) (string, Config, error) {
	servers, err := parseURL(url, cfg.settings())
	if err == nil {
		err = cfg.check(servers)
	}
	return servers, cfg, err
}

// settings returns the setter of each URL option.
func (c *Config) settings() map[string]func(v string) error {
	return map[string]func(v string) error{
		"stream": address.Text(&c.Stream), "prefix": address.Text(&c.Prefix), "name": address.Text(&c.Name),
		"subjects": address.List(&c.Subjects), "check_only": address.Bool(&c.CheckOnly), "partitioned": address.Bool(&c.Partitioned),
		"replicas": address.Number(&c.Replicas), "max_in_flight": address.Number(&c.MaxInFlight),
		"dedupe_window": address.Duration(&c.DedupeWindow), "max_age": address.Duration(&c.MaxAge), "publish_timeout": address.Duration(&c.PublishTimeout),
		"creds": address.Text(&c.CredentialsFile), "nkey": address.Text(&c.NKeySeedFile), "token": address.Text(&c.Token),
		"user": address.Text(&c.User), "password": address.Text(&c.Password), "allow_plaintext": address.Bool(&c.AllowPlaintext),
		"ca": address.Text(&c.CAFile), "cert": address.Text(&c.CertFile), "key": address.Text(&c.KeyFile),
	}
}

// parseURL applies the options of a URL with settings and returns the URL without options.
func parseURL(text string, settings map[string]func(v string) error) (string, error) {
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	return address.Options("nats", text, settings)
}

// check returns the error of locate.
func (c Config) check(servers string) error {
	_, err := c.locate(servers)
	return err
}

// locate reads servers and credentials of a URL. Credentials of the configuration take precedence over those of the URL. The servers
// that it returns have no credentials, so that none get into errors of the client.
func (c *Config) locate(servers string) (string, error) {
	u, err := address.Parse(servers)
	switch {
	case err != nil:
		return "", fmt.Errorf("nats: %w", err)
	case u.Scheme != "nats" && u.Scheme != "tls":
		return "", fmt.Errorf("nats: URL %s: scheme %q; use nats:// or tls://", address.Servers(servers), u.Scheme)
	}
	if c.CredentialsFile+c.NKeySeedFile+c.Token+c.User+c.Password == "" {
		if c.User, c.Password = u.User, u.Password; c.Password == "" { // as other clients of NATS read it
			c.User, c.Token = "", u.User
		}
	}
	encrypted := u.Scheme == "tls" || c.TLS != nil || c.CAFile != ""
	if !encrypted && !c.AllowPlaintext && c.Token+c.Password != "" {
		err = address.CheckPlaintext("nats", u.Hosts, "use tls://, an nkey or a credentials file")
	}
	list := make([]string, len(u.Hosts))
	for i, host := range u.Hosts {
		list[i] = u.Scheme + "://" + host
	}
	return strings.Join(list, ","), err
}
