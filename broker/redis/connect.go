package redisbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/address"
	"github.com/postrider/postrider/internal/outage"
)

const (
	// The reconnect delay doubles from reconnectFirst to reconnectLast, with full jitter.
	reconnectFirst, reconnectLast = 100 * time.Millisecond, 5 * time.Second
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 3 * time.Second
)

// Open connects to a server, or to several (comma-separated: nodes of a cluster, or sentinels), and returns a Publisher
// whose Close closes the connections. The URL may have options after a question mark, which take precedence over cfg:
//
//	redis://user:password@host:6379/0?prefix=shop:&partitions=16&replicas=1
//
// The options are prefix, partitions, maxlen, max_message_bytes, publish_timeout, replicas, fsync, name, user, password,
// db, cluster, master, sentinel_user, sentinel_password, allow_plaintext, ca, cert and key. The scheme rediss:// requires
// encryption.
//
// Open retries an unreachable server until ctx ends. It fails immediately if the server rejects the credentials, its
// certificate is not trusted, or it is too old. It logs warnings about server settings that may lose messages.
func Open(ctx context.Context, url string, cfg Config) (*Publisher, error) {
	servers, cfg, err := ParseURL(url, cfg)
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

// dial returns a client after the server has answered. cfg has its defaults set.
func dial(ctx context.Context, servers string, cfg Config) (redis.UniversalClient, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	options, err := clientOptions(servers, cfg)
	if err != nil {
		return nil, err
	}
	client := redis.NewUniversalClient(options)
	var start outage.Start
	for attempts := 1; ; attempts++ {
		err := checkServer(ctx, client)
		switch {
		case err == nil:
			return client, nil
		case refusesCertificate(err):
			return nil, errors.Join(fmt.Errorf("connect to Redis at %s: check the CA file (ca), and that the certificate names this host: %w",
				address.Servers(servers), err), client.Close())
		case final(err):
			return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w", address.Servers(servers), err), client.Close())
		}
		start.Failed(cfg.Logger, "Redis", err)
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("connect to Redis at %s: %w after %d attempts, the last: %w; check that the server runs and "+
				"the address is right", address.Servers(servers), ctx.Err(), attempts, err), client.Close())
		case <-time.After(rand.N(min(reconnectFirst<<min(attempts-1, 6), reconnectLast)) + 1):
		}
	}
}

// final reports whether retrying is useless until somebody fixes something. While publishing, rejected credentials are
// Unavailable, because they affect every message; when connecting, they must be reported.
func final(err error) bool {
	return redis.IsAuthError(err) || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable
}

// refusesCertificate reports whether this program does not trust the server's certificate, or the server not that of this program.
func refusesCertificate(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return bad || alert
}

// clientOptions returns the client's options. The client does not retry commands: this package knows which ones may be
// repeated.
func clientOptions(servers string, cfg Config) (*redis.UniversalOptions, error) {
	options := &redis.UniversalOptions{
		ClientName: cfg.Name, Username: cfg.User, Password: cfg.Password, DB: cfg.DB,
		MasterName: cfg.Master, SentinelUsername: cfg.SentinelUser, SentinelPassword: cfg.SentinelPassword,
		DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: cfg.PublishTimeout, WriteTimeout: cfg.PublishTimeout, PoolTimeout: cfg.PublishTimeout,
		ContextTimeoutEnabled: true, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if err := addServers(options, servers); err != nil {
		return nil, fmt.Errorf("redis: URL %s: %w", address.Servers(servers), err)
	}
	options.IsClusterMode = cfg.Cluster
	if cfg.TLS != nil {
		options.TLSConfig = cfg.TLS.Clone()
	}
	return options, addFiles(options, cfg)
}

// addServers adds the servers of a URL. Credentials and database of the configuration take precedence over the URL.
func addServers(options *redis.UniversalOptions, servers string) error {
	u, err := address.Parse(servers)
	if err != nil {
		return err
	}
	for _, host := range u.Hosts {
		if _, _, err := net.SplitHostPort(host); err != nil { // without a port
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		options.Addrs = append(options.Addrs, host)
	}
	if u.Named && options.Username == "" && options.Password == "" {
		options.Username, options.Password = u.User, u.Password
	}
	if path := strings.Trim(u.Rest, "/"); path != "" && options.DB == 0 {
		if options.DB, err = strconv.Atoi(path); err != nil {
			return fmt.Errorf("database %q is not a number", path)
		}
	}
	if u.Scheme == "rediss" && options.TLSConfig == nil {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // without a name, each server is verified by its own
	}
	return nil
}

// addFiles loads the PEM files of a configuration.
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

// oldest is the oldest Redis version that has all commands used by this package.
var oldest = [2]int{6, 2}

// checkServer checks that a server answers and is new enough.
func checkServer(ctx context.Context, client redis.UniversalClient) error {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return outcome(ctx, err)
	}
	version := infoField(info, "redis_version")
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return nil // a compatible server that does not report its version
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

// ParseURL reads the options in the URL for Open into cfg and returns the URL without options. The error lists every
// option that is unknown or invalid.
func ParseURL(url string, cfg Config) (string, Config, error) {
	servers, err := cfg.parseURL(url, cfg.settings())
	return servers, cfg, err
}

// settings returns the setter of each URL option.
func (c *Config) settings() map[string]func(v string) error {
	return map[string]func(v string) error{
		"prefix": address.Text(&c.Prefix), "partitions": address.Number(&c.Partitions), "maxlen": address.Number(&c.MaxLen),
		"max_message_bytes": address.Number(&c.MaxMessageBytes), "publish_timeout": address.Duration(&c.PublishTimeout), "replicas": address.Number(&c.Replicas),
		"fsync": address.Bool(&c.Fsync), "name": address.Text(&c.Name), "user": address.Text(&c.User), "password": address.Text(&c.Password), "db": address.Number(&c.DB), "allow_plaintext": address.Bool(&c.AllowPlaintext),
		"cluster": address.Bool(&c.Cluster), "master": address.Text(&c.Master), "sentinel_user": address.Text(&c.SentinelUser),
		"sentinel_password": address.Text(&c.SentinelPassword), "ca": address.Text(&c.CAFile), "cert": address.Text(&c.CertFile), "key": address.Text(&c.KeyFile),
	}
}

// parseURL applies the options of a URL with settings and returns the URL without options.
func (c *Config) parseURL(text string, settings map[string]func(v string) error) (string, error) {
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	servers, err := address.Options("redis", text, settings)
	if err != nil {
		return servers, err
	}
	u, err := address.Parse(servers)
	if err == nil && u.Scheme != "redis" && u.Scheme != "rediss" {
		err = fmt.Errorf("scheme %q; use redis:// or rediss://", u.Scheme)
	}
	if err != nil {
		return servers, fmt.Errorf("redis: URL %s: %w", address.Servers(servers), err)
	}
	encrypted := u.Scheme == "rediss" || c.TLS != nil || c.CAFile != "" || c.CertFile != ""
	if !encrypted && !c.AllowPlaintext && c.Password+u.Password+c.SentinelPassword != "" {
		err = address.CheckPlaintext("redis", u.Hosts, "use rediss://")
	}
	return servers, err
}
