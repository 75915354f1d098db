package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/cmd/postrider/internal/cleanup"
)

// natsBroker is a JetStream server.
type natsBroker struct {
	url     string
	options *server.Options // nil for an existing server
	server  *server.Server
	stream  string
	gate    gate
}

// startNATS starts a server in this process with its stream under dir.
func startNATS(dir, stream string) (*natsBroker, error) {
	b := &natsBroker{stream: stream, options: &server.Options{
		ServerName: "postrider-demo", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	}}
	if err := b.run(); err != nil {
		return nil, err
	}
	b.options.Port = b.server.Addr().(*net.TCPAddr).Port // the same port after the outage
	b.url = b.server.ClientURL()
	return b, nil
}

func (b *natsBroker) run() error {
	s, err := server.NewServer(b.options)
	if err != nil {
		return fmt.Errorf("start the JetStream server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return fmt.Errorf("start the JetStream server: no answer within %s", startTimeout)
	}
	b.server = s
	return nil
}

func (b *natsBroker) away() string {
	if b.options == nil {
		b.gate.close()
		return cutOff
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return "the JetStream server is shut down"
}

func (b *natsBroker) back() error {
	if b.options == nil {
		b.gate.open()
		return nil
	}
	return b.run()
}

// config returns the connection settings from the URL, for the demo's own stream. It reconnects fast enough for the demo.
func (b *natsBroker) config(who string) (servers string, cfg natsbroker.Config, err error) {
	servers, cfg, err = natsbroker.ParseURL(b.url, natsbroker.Config{})
	cfg.Stream, cfg.Prefix, cfg.Subjects, cfg.CheckOnly = b.stream, "", nil, false
	cfg.Name, cfg.PublishTimeout, cfg.Logger = "postrider demo "+who, 2*time.Second, slog.New(slog.DiscardHandler)
	cfg.Options = []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 100 * time.Millisecond })}
	return servers, cfg, err
}

func (b *natsBroker) publisher(ctx context.Context) (publisher, error) {
	servers, cfg, err := b.config("relay")
	if err != nil {
		return nil, err
	}
	cfg.Options = append(cfg.Options, nats.SetCustomDialer(&b.gate))
	return natsbroker.Open(ctx, servers, cfg)
}

func (b *natsBroker) consume(ctx context.Context, take func(*postrider.Message) error) error {
	servers, cfg, err := b.config("consumer")
	if err != nil {
		return err
	}
	s, err := natsbroker.OpenSubscriber(ctx, servers, natsbroker.SubscriberConfig{
		Config: cfg, Durable: "postrider-demo", Ordered: true, AckWait: time.Second,
	})
	if err != nil {
		return ending(ctx, err)
	}
	defer s.Close()
	return consumeFrom(ctx, s, take)
}

// end stops the server, or removes the stream from an existing one.
func (b *natsBroker) end(ctx context.Context) error {
	if b.options != nil {
		b.away()
		return nil
	}
	return cleanup.Stream(ctx, b.url, b.stream)
}
