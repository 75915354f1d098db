package shopdemo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/examples/shop"
)

// openVirtual opens the shop in a bubble of testing/synctest, in which time is virtual: on SQLite, with a broker and connections in
// memory.
func openVirtual(t *testing.T, cfg Config) *world {
	t.Helper()
	network, broker := make(pipes), &logBroker{topics: make(map[string]*topicLog), changed: make(chan struct{}), keep: cfg.Limits.Keep}
	transport := &http.Transport{DialContext: network.dial}
	w := &world{
		cfg: cfg, members: make(map[string]member), dbs: make(map[string]database), broker: transport.CloseIdleConnections,
		http: &http.Client{Transport: transport},
	}
	for _, name := range shop.Names {
		db, err := shop.OpenSQLite(t.Context(), filepath.Join(cfg.Dir, name+".db"))
		if err != nil {
			t.Fatal(err)
		}
		network[name] = &pipeListener{connections: make(chan net.Conn), closed: make(chan struct{})}
		w.dbs[name] = database{db, func() { _ = db.DB.Close() }}
		w.members[name] = &virtual{settings: Settings{Service: name, Compensate: cfg.Compensate, Limits: cfg.Limits, Seed: cfg.Seed}, db: db, broker: broker, listener: network[name]}
	}
	for _, name := range shop.Names {
		if err := w.members[name].start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.ledger = &shop.Ledger{
		Orders: w.dbs["orders"].DB, Inventory: w.dbs["inventory"].DB, Payments: w.dbs["payments"].DB, Shipping: w.dbs["shipping"].DB,
		Sagas: w.dbs["orders"],
	}
	return w
}

// virtual is a service in virtual time.
type virtual struct {
	settings Settings
	db       shop.Database
	broker   shop.Broker
	listener net.Listener
	cancel   context.CancelFunc
	ended    chan error
}

func (m *virtual) address() string { return m.settings.Service }

func (m *virtual) configure(change func(*Settings)) { change(&m.settings) }

func (m *virtual) start(ctx context.Context) error {
	c := m.settings.service(m.db, m.broker, slog.New(slog.DiscardHandler))
	c.Listener = m.listener
	s, err := shop.Open(ctx, m.settings.Service, c)
	if err != nil {
		return err
	}
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.ended = make(chan error, 1)
	go func() { m.ended <- errors.Join(s.Run(ctx), s.Close()) }()
	return nil
}

func (m *virtual) stop() error {
	m.cancel()
	return <-m.ended
}

func (m *virtual) kill() error { return errors.ErrUnsupported }

// pipes are the listeners of a network in memory, by their names.
type pipes map[string]*pipeListener

func (p pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := strings.Cut(address, ":")
	client, server := net.Pipe()
	select {
	case p[host].connections <- server:
		return client, nil
	case <-p[host].closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeListener accepts connections in memory.
type pipeListener struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }

// logBroker is a broker in memory that keeps messages for a time, and whose cost does not grow with what it had.
type logBroker struct {
	mu      sync.Mutex
	topics  map[string]*topicLog
	changed chan struct{} // closed and replaced when there is a new message
	keep    time.Duration
}

// topicLog has the messages of a topic from an offset on.
type topicLog struct {
	first    int64
	messages []*postrider.Message
	at       []time.Time
}

func (b *logBroker) Publisher(context.Context, string) (shop.Publisher, error) { return b, nil }

func (b *logBroker) Subscriber(_ context.Context, _ string, topics []string) (shop.Subscriber, error) {
	return &logSubscriber{b, topics}, nil
}

func (b *logBroker) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true}
}

func (b *logBroker) Close() error { return nil }

func (b *logBroker) Publish(_ context.Context, msgs []*postrider.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, m := range msgs {
		l := b.topic(m.Topic)
		l.messages, l.at = append(l.messages, copied(m)), append(l.at, now)
		for now.Sub(l.at[0]) > b.keep {
			l.messages, l.at, l.first = l.messages[1:], l.at[1:], l.first+1
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// topic needs b.mu.
func (b *logBroker) topic(name string) *topicLog {
	if b.topics[name] == nil {
		b.topics[name] = new(topicLog)
	}
	return b.topics[name]
}

func copied(m *postrider.Message) *postrider.Message {
	c := *m
	c.Headers, c.Payload = maps.Clone(m.Headers), slices.Clone(m.Payload)
	return &c
}

// logSubscriber reads topics as logs.
type logSubscriber struct {
	broker *logBroker
	topics []string
}

func (s *logSubscriber) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{Log: true, Ordered: true, Positions: true}
}

func (s *logSubscriber) Close() error { return nil }

func (s *logSubscriber) Subscribe(context.Context) (postrider.Subscription, error) {
	return nil, errors.ErrUnsupported
}

func (s *logSubscriber) Partitions(_ context.Context, names ...string) (found []postrider.LogPartition, err error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	for _, name := range s.topics {
		if l := s.broker.topic(name); len(names) == 0 || slices.Contains(names, name) {
			found = append(found, postrider.LogPartition{Name: name, Incarnation: "1", Topic: name, First: l.first, End: l.first + int64(len(l.messages)) - 1})
		}
	}
	return found, nil
}

func (s *logSubscriber) VerifyPosition(_ context.Context, at postrider.Position) (postrider.PositionState, error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	switch l := s.broker.topic(at.Partition); {
	case at.Offset < l.first:
		return postrider.PositionRemoved, nil
	case at.Offset < l.first+int64(len(l.messages)):
		return postrider.PositionKept, nil
	}
	return postrider.PositionReplaced, nil
}

func (s *logSubscriber) ReadLog(_ context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	return &logReader{s.broker, p.Name, after + 1}, nil
}

// logReader reads a topic.
type logReader struct {
	broker *logBroker
	topic  string
	next   int64
}

func (r *logReader) Read(ctx context.Context, limit, _ int) (found []*postrider.Delivery, _ error) {
	for {
		r.broker.mu.Lock()
		l, changed := r.broker.topic(r.topic), r.broker.changed
		r.next = max(r.next, l.first)
		for ; len(found) < limit && r.next < l.first+int64(len(l.messages)); r.next++ {
			found = append(found, &postrider.Delivery{
				Message:  copied(l.messages[r.next-l.first]),
				Position: postrider.Position{Incarnation: "1", Partition: r.topic, Offset: r.next, Mark: strconv.FormatInt(r.next, 10)},
			})
		}
		r.broker.mu.Unlock()
		if len(found) > 0 {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *logReader) Close(context.Context) error { return nil }
