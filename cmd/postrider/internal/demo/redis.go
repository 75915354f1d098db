package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/cmd/postrider/internal/cleanup"
)

// redisBroker is an existing Redis server, with streams under a prefix for the demo.
type redisBroker struct {
	url    string
	server *url.URL // without options
	cfg    redisbroker.Config
	proxy  *proxy
}

func newRedis(address, name string) (*redisBroker, error) {
	base, cfg, err := redisbroker.ParseURL(address, redisbroker.Config{})
	if err != nil {
		return nil, err
	}
	if strings.Contains(base, ",") || cfg.Cluster || cfg.Master != "" {
		return nil, errors.New("the demo takes a single Redis server away from the relay: the nodes of a cluster and sentinels tell addresses " +
			"of their own; give the URL of one server")
	}
	server, err := cleanup.FirstServer(base)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	b := &redisBroker{url: address, server: server, cfg: redisbroker.Config{
		Prefix: name + ":", Partitions: 4, PublishTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), Name: "postrider-demo",
		User: cfg.User, Password: cfg.Password, DB: cfg.DB,
	}}
	if server.Scheme == "rediss" {
		if b.cfg.TLS, err = cleanup.TLSConfig(server.Hostname(), cfg.CAFile, cfg.CertFile, cfg.KeyFile); err != nil {
			return nil, err
		}
	}
	b.proxy, err = startProxy(b.address())
	return b, err
}

func (b *redisBroker) address() string {
	return net.JoinHostPort(b.server.Hostname(), cmp.Or(b.server.Port(), "6379"))
}

func (b *redisBroker) away() string {
	b.proxy.gate.close()
	return cutOff
}

func (b *redisBroker) back() error {
	b.proxy.gate.open()
	return nil
}

func (b *redisBroker) publisher(ctx context.Context) (publisher, error) {
	through := *b.server
	through.Host = b.proxy.address()
	return redisbroker.Open(ctx, through.String(), b.cfg)
}

func (b *redisBroker) consume(ctx context.Context, take func(*postrider.Message) error) error {
	s, err := redisbroker.OpenSubscriber(ctx, b.server.String(), redisbroker.SubscriberConfig{
		Config: b.cfg, Group: "postrider-demo", Topics: []string{topic},
	})
	if err != nil {
		return ending(ctx, err)
	}
	defer s.Close()
	return consumeFrom(ctx, s, take)
}

// end removes all keys under the prefix.
func (b *redisBroker) end(ctx context.Context) error {
	b.proxy.end()
	return cleanup.Keys(ctx, b.url, b.cfg.Prefix)
}
