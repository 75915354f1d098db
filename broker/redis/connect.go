package redisbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/postrider/postrider"
)

const (
	// The wait before connecting is tried again doubles from the first to the last of these, with full jitter.
	reconnectFirst, reconnectLast = 100 * time.Millisecond, 5 * time.Second
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 3 * time.Second
)

// Open connects to a server, or to one of several separated by commas (of a cluster, or sentinels), and returns a Publisher
// that closes the connections with itself. The URL may carry options behind a question mark, which go before those of cfg:
//
//	redis://user:password@host:6379/0?prefix=shop:&partitions=16&replicas=1
//
// They are prefix, partitions, maxlen, max_message_bytes, publish_timeout, replicas, fsync, name, user, password, db, cluster,
// master, sentinel_user, sentinel_password, ca, cert and key. The scheme rediss:// asks for encryption.
//
// A server that cannot be reached is tried until ctx ends; one that refuses the credentials or is too old fails Open at once.
// Settings of the server by which it may lose messages are logged as warnings.
func Open(ctx context.Context, address string, cfg Config) (*Publisher, error) {
	servers, cfg, err := ParseURL(address, cfg)
	if err != nil {
		return nil, err
	}
	client, err := dial(ctx, servers, cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	p, err := New(client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.ownsClient = true
	p.warn(ctx)
	return p, nil
}

// dial returns a client that a server has answered. Its configuration has defaults.
func dial(ctx context.Context, servers string, cfg Config) (redis.UniversalClient, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	options, err := clientOptions(servers, cfg)
	if err != nil {
		return nil, err
	}
	client := redis.NewUniversalClient(options)
	for attempt := 1; ; attempt++ {
		err := checkServer(ctx, client)
		switch {
		case err == nil:
			return client, nil
		case final(err):
			return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w", redacted(servers), err), client.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w after %d attempts, the last: %w; check that the server runs and "+
				"the address is right", redacted(servers), ctx.Err(), attempt, err), client.Close())
		case <-time.After(rand.N(min(reconnectFirst<<min(attempt-1, 6), reconnectLast)) + 1):
		}
	}
}

// final says whether connecting again is of no use before somebody has changed something. Refused credentials are Unavailable in the
// middle of the work, because they concern every message alike, but whoever connects with them has to be told.
func final(err error) bool {
	return redis.IsAuthError(err) || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable
}

// clientOptions are the client's. It does not repeat commands by itself: what may be repeated is known here.
func clientOptions(servers string, cfg Config) (*redis.UniversalOptions, error) {
	options := &redis.UniversalOptions{
		ClientName: cfg.Name, Username: cfg.User, Password: cfg.Password, DB: cfg.DB,
		MasterName: cfg.Master, SentinelUsername: cfg.SentinelUser, SentinelPassword: cfg.SentinelPassword,
		DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: cfg.PublishTimeout, WriteTimeout: cfg.PublishTimeout, PoolTimeout: cfg.PublishTimeout,
		ContextTimeoutEnabled: true, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for server := range strings.SplitSeq(servers, ",") {
		if err := addServer(options, server); err != nil {
			return nil, fmt.Errorf("redis: URL %s: %w", redacted(servers), err)
		}
	}
	options.IsClusterMode = cfg.Cluster
	if cfg.TLS != nil {
		options.TLSConfig = cfg.TLS.Clone()
	}
	return options, addFiles(options, cfg)
}

// addServer takes in one of the URLs. What the configuration says about who connects goes before it.
func addServer(options *redis.UniversalOptions, server string) error {
	if !strings.Contains(server, "://") {
		server = "redis://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return errors.New("cannot be read; write redis://user:password@host:6379/0, with special characters percent-encoded")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	options.Addrs = append(options.Addrs, u.Hostname()+":"+port)
	if strings.Contains(u.Hostname(), ":") {
		options.Addrs[len(options.Addrs)-1] = "[" + u.Hostname() + "]:" + port
	}
	if u.User != nil && options.Username == "" && options.Password == "" {
		options.Username = u.User.Username()
		options.Password, _ = u.User.Password()
	}
	if path := strings.Trim(u.Path, "/"); path != "" && options.DB == 0 {
		if options.DB, err = strconv.Atoi(path); err != nil {
			return fmt.Errorf("database %q is not a number", path)
		}
	}
	if u.Scheme == "rediss" && options.TLSConfig == nil {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	}
	return nil
}

// addFiles reads the PEM files of a configuration.
func addFiles(options *redis.UniversalOptions, cfg Config) error {
	if cfg.CAFile == "" && cfg.CertFile == "" {
		return nil
	}
	if options.TLSConfig == nil {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return fmt.Errorf("redis: read certificates: %w", err)
		}
		options.TLSConfig.RootCAs = x509.NewCertPool()
		if !options.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("redis: %s has no certificate in PEM", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return fmt.Errorf("redis: read the client's certificate: %w", err)
		}
		options.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// oldest is the oldest version of Redis that has all commands used here.
var oldest = [2]int{6, 2}

// checkServer makes sure that a server answers and is new enough.
func checkServer(ctx context.Context, client redis.UniversalClient) error {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return outcome(ctx, err)
	}
	version := infoField(info, "redis_version")
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return nil // something that speaks the protocol and does not say
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	if slices.Compare([]int{major, minor}, oldest[:]) < 0 {
		return fmt.Errorf("the server is Redis %s; %d.%d or newer is needed", version, oldest[0], oldest[1])
	}
	return nil
}

// infoField returns a field of the answer to INFO.
func infoField(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
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
		"prefix": text(&c.Prefix), "partitions": number(&c.Partitions), "maxlen": number(&c.MaxLen),
		"max_message_bytes": number(&c.MaxMessageBytes), "publish_timeout": duration(&c.PublishTimeout), "replicas": number(&c.Replicas),
		"fsync": boolean(&c.Fsync), "name": text(&c.Name), "user": text(&c.User), "password": text(&c.Password), "db": number(&c.DB),
		"cluster": boolean(&c.Cluster), "master": text(&c.Master), "sentinel_user": text(&c.SentinelUser),
		"sentinel_password": text(&c.SentinelPassword), "ca": text(&c.CAFile), "cert": text(&c.CertFile), "key": text(&c.KeyFile),
	}
}

// parseURL applies settings to the options of a URL and returns the URL without them.
func parseURL(address string, settings map[string]func(v string) error) (string, error) {
	servers, query, _ := strings.Cut(address, "?")
	for server := range strings.SplitSeq(servers, ",") {
		if scheme, _, ok := strings.Cut(server, "://"); ok && scheme != "redis" && scheme != "rediss" {
			return "", fmt.Errorf("redis: URL %s: scheme %q; use redis:// or rediss://", redacted(servers), scheme)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("redis: URL %s: options: %w", redacted(servers), err)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := settings[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
			faults = append(faults, fmt.Errorf("redis: unknown URL option %q; known are %s", name, known))
			continue
		}
		if err := set(values.Get(name)); err != nil {
			faults = append(faults, fmt.Errorf("redis: URL option %s: %w", name, err))
		}
	}
	return servers, errors.Join(faults...)
}

func text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

func list(to *[]string) func(string) error {
	return func(v string) error { *to = strings.Split(v, ","); return nil }
}

func boolean(to *bool) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

func number[N int | int64](to *N) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*to = N(n)
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

// redacted takes user and password out of server URLs, for errors.
func redacted(servers string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		scheme, rest, ok := strings.Cut(server, "://")
		if !ok {
			scheme, rest = "redis", server
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = rest[at+1:]
		}
		list[i] = scheme + "://" + rest
	}
	return strings.Join(list, ",")
}
