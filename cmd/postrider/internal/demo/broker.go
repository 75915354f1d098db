package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

// broker is the JetStream that the demo publishes to and reads from: a server of its own in this process, which it stops
// and starts, or one that exists, from which it cuts the relay's connections.
type broker struct {
	url     string
	options *server.Options // nil: the server is somebody else's
	server  *server.Server
	stream  string
	gate    gate
}

// startTimeout is how long the server in the process may take to answer.
const startTimeout = 10 * time.Second

// startBroker starts a server in this process with its stream under dir.
func startBroker(dir, stream string) (*broker, error) {
	b := &broker{stream: stream, options: &server.Options{
		ServerName: "postrider-demo", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	}}
	if err := b.run(); err != nil {
		return nil, err
	}
	b.options.Port = b.server.Addr().(*net.TCPAddr).Port // the same again after the outage
	b.url = b.server.ClientURL()
	return b, nil
}

func (b *broker) run() error {
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

// away takes the broker away, back brings it back.
func (b *broker) away() {
	if b.options == nil {
		b.gate.close()
		return
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *broker) back() error {
	if b.options == nil {
		b.gate.open()
		return nil
	}
	return b.run()
}

// connectOptions make a connection try again soon enough for a show.
func connectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.CustomReconnectDelay(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

// publisher connects the relay's publisher. All that it sends passes the gate. Of the options in the URL those that say
// how to connect count; the stream is the demo's own.
func (b *broker) publisher(ctx context.Context) (*natsbroker.Publisher, error) {
	servers, cfg, err := natsbroker.ParseURL(b.url, natsbroker.Config{})
	if err != nil {
		return nil, err
	}
	cfg.Stream, cfg.Prefix, cfg.Subjects, cfg.CheckOnly = b.stream, "", nil, false
	cfg.Name, cfg.AckWait, cfg.Logger = "postrider demo relay", 2*time.Second, slog.New(slog.DiscardHandler)
	cfg.Options = append(connectOptions(), nats.SetCustomDialer(&b.gate))
	return natsbroker.Open(ctx, servers, cfg)
}

// consumer connects the consumer, which the gate does not concern.
func (b *broker) consumer() (*nats.Conn, error) {
	servers, cfg, err := natsbroker.ParseURL(b.url, natsbroker.Config{})
	if err != nil {
		return nil, err
	}
	options := append(connectOptions(), nats.Name("postrider demo consumer"))
	switch {
	case cfg.CredentialsFile != "":
		options = append(options, nats.UserCredentials(cfg.CredentialsFile))
	case cfg.NKeySeedFile != "":
		nkey, err := nats.NkeyOptionFromSeed(cfg.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("read the nkey seed: %w", err)
		}
		options = append(options, nkey)
	case cfg.Token != "":
		options = append(options, nats.Token(cfg.Token))
	case cfg.User != "":
		options = append(options, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	conn, err := nats.Connect(servers, options...)
	if err != nil {
		return nil, fmt.Errorf("connect the consumer: %w", err)
	}
	return conn, nil
}

// end stops the server, or removes the stream from somebody else's.
func (b *broker) end(ctx context.Context, consumer *nats.Conn) error {
	if b.options != nil {
		b.away()
		return nil
	}
	if consumer == nil {
		return nil
	}
	js, err := jetstream.New(consumer)
	if err == nil {
		err = js.DeleteStream(ctx, b.stream)
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove the stream %s: %w; remove it by hand: nats stream rm %s", b.stream, err, b.stream)
	}
	return nil
}

// consume reads the stream from its beginning until ctx ends and hands each message to the checker. It reads on behind the
// last message that it has seen, whatever happens to the connection.
func consume(ctx context.Context, conn *nats.Conn, stream string, c *checker) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	next := uint64(1)
	for ctx.Err() == nil {
		if err := consumeSome(ctx, js, stream, c, &next); err != nil {
			return err
		}
		select { // the broker is away, or was
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// consumeSome reads until the broker fails. Its error is a message that is not the shop's.
func consumeSome(ctx context.Context, js jetstream.JetStream, stream string, c *checker, next *uint64) error {
	attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	consumer, err := js.OrderedConsumer(attempt, stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next,
	})
	if err != nil {
		return nil
	}
	messages, err := consumer.Messages(jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(2*time.Second))
	if err != nil {
		return nil
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			return nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		var d detail
		if err := json.Unmarshal(m.Data(), &d); err != nil {
			return fmt.Errorf("consume message %d: %w", meta.Sequence.Stream, err)
		}
		c.receive(fact{ID: m.Headers().Get(nats.MsgIdHdr), Key: d.Customer, N: d.Number})
		*next = meta.Sequence.Stream + 1
	}
}

// gate is a dialer that can be closed: open connections break and new ones fail.
type gate struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

var errGate = errors.New("the broker is away")

// Dial implements nats.CustomDialer.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	if g.isClosed() {
		return nil, errGate
	}
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return nil, errGate
	}
	if g.conns == nil {
		g.conns = map[net.Conn]struct{}{}
	}
	g.conns[conn] = struct{}{}
	return conn, nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}
