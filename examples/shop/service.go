package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// Database is the database of one service.
type Database struct {
	Store
	DB *sql.DB
}

// Store is what a service needs of Postrider's tables in its database: store/sqlite and the SQL method of store/postgres have it.
type Store interface {
	store.Outbox[*sql.Tx]
	store.Inbox[*sql.Tx]
	saga.Store[*sql.Tx]
	saga.Records[*sql.Tx]
	admin.Store
}

// Broker connects the services. Commands and events of a topic reach every consumer of the topic.
type Broker interface {
	Publisher(ctx context.Context, service string) (Publisher, error)
	Subscriber(ctx context.Context, consumer string, topics []string) (Subscriber, error)
}

// Publisher is a connection that ends with its service.
type Publisher interface {
	postrider.Publisher
	io.Closer
}

// Subscriber is a connection that ends with its service.
type Subscriber interface {
	postrider.Subscriber
	io.Closer
}

// Config configures a service. The zero value of each other field means its default.
type Config struct {
	Database Database // required
	Broker   Broker   // required
	// Listen is the address of the HTTP server. Default: a free port of the loopback interface.
	Listen string
	// Listener, if there is one, is used instead: tests need no network.
	Listener net.Listener
	// Terms are those of the saga, Version is its version. Default: 1.
	Terms   Terms
	Version int
	// UndoAttempts is how often an undo is sent, one every UndoTimeout, before its saga is stuck. Defaults: those of saga.Config.
	UndoAttempts int
	UndoTimeout  time.Duration
	// Replenish is how often inventory orders goods that are nearly sold out. Default: 10 s.
	Replenish time.Duration
	// Keep is how long messages, their IDs and ended sagas are kept. Default: those of their packages.
	Keep time.Duration
	// LeaseTTL is the time after which another process takes over the work of one that was killed. Default: 15 s.
	LeaseTTL time.Duration
	// Seed is that of the catalog. Default: 1.
	Seed uint64
	// Faults breaks handlers on purpose, see Faults. Default: none, and no POST /faults.
	Faults *Faults
	// Logger receives the log. Default: slog.Default().
	Logger *slog.Logger
}

// Service is what the four services have in common: an outbox whose messages a relay takes to the broker, consumers, and an HTTP
// server.
type Service struct {
	Name   string
	cfg    Config
	db     Database
	outbox *outbox.Outbox[*sql.Tx]
	// participant does the service's steps of sagas.
	participant *saga.Participant[*sql.Tx]
	// batch is the largest number of messages that share a transaction of a consumer; 0 means the default.
	batch  int
	mux    *http.ServeMux
	server net.Listener
	run    []func(context.Context) error
	close  []io.Closer
}

// Names are the names of the four services, in the order of their ports. There are two more that only listen: view and loyalty.
var Names = []string{"orders", "inventory", "payments", "shipping"}

// Open opens a service by its name, creates its tables and lets it listen. Run it, then close it.
func Open(ctx context.Context, name string, c Config) (*Service, error) {
	open := map[string]func(context.Context, *Service) error{
		"orders": openOrders, "inventory": openInventory, "payments": openPayments, "shipping": openShipping,
		"view": openView, "loyalty": openLoyalty,
	}[name]
	if open == nil {
		return nil, fmt.Errorf("there is no service %q; services: %q", name, Names)
	}
	s, err := newService(name, c)
	if err == nil {
		err = open(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), s.Close())
	}
	return s, nil
}

func newService(name string, c Config) (*Service, error) {
	c.Version, c.Seed, c.Replenish = cmp.Or(c.Version, 1), cmp.Or(c.Seed, 1), cmp.Or(c.Replenish, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default()).With("service", name)
	s := &Service{Name: name, cfg: c, db: c.Database, mux: http.NewServeMux()}
	var err error
	if s.outbox, err = outbox.New(s.db.Store, outbox.Config{Source: name, Logger: c.Logger}); err != nil {
		return s, err
	}
	if s.participant, err = saga.NewParticipant(s.db.Store, s.outbox, saga.ParticipantConfig{Name: name, Logger: c.Logger}); err != nil {
		return s, err
	}
	if s.server = c.Listener; s.server == nil {
		if s.server, err = net.Listen("tcp", cmp.Or(c.Listen, "127.0.0.1:0")); err != nil {
			return s, err
		}
	}
	s.close = append(s.close, s.server)
	if c.Faults != nil {
		if addr, ok := s.server.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
			return s, errors.New("POST /faults must not be reachable from other hosts: listen on a loopback address")
		}
		s.mux.HandleFunc("POST /faults", c.Faults.handle)
	}
	return s, s.administer()
}

// URL is the address of the service's HTTP server.
func (s *Service) URL() string { return "http://" + s.server.Addr().String() }

// Run runs the service until ctx ends or part of it fails.
func (s *Service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := append(s.run, s.serve)
	ended := make(chan error)
	for _, f := range run {
		go func() { ended <- f(ctx) }()
	}
	var errs []error
	for range run {
		errs = append(errs, <-ended)
		stop()
	}
	return errors.Join(errs...)
}

// Close closes what Open has opened, except the database.
func (s *Service) Close() error {
	var errs []error
	for _, c := range s.close {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Service) serve(ctx context.Context) error {
	server := &http.Server{Handler: s.mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })()
	if err := server.Serve(s.server); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// publish lets a relay take messages of these topics to the broker; no topics are all.
func (s *Service) publish(ctx context.Context, topics ...string) error {
	publisher, err := s.cfg.Broker.Publisher(ctx, s.Name)
	if err != nil {
		return err
	}
	s.close = append(s.close, publisher)
	_, err = s.relay("to-broker", relay.Config{Publisher: publisher, Topics: topics})
	return err
}

// relay adds a relay to the service.
func (s *Service) relay(name string, c relay.Config) (*relay.Relay, error) {
	c.Name, c.LeaseTTL, c.KeepDelivered, c.Logger = name, s.cfg.LeaseTTL, s.cfg.Keep, s.cfg.Logger
	r, err := relay.New(s.db.Store, c)
	if err == nil {
		s.run = append(s.run, r.Run)
	}
	return r, err
}

// consume adds a consumer of topics to the service. A message that fails is tried five times within seconds, and then a dead letter.
func (s *Service) consume(ctx context.Context, name string, unhandled inbox.Unhandled, topics ...string) (*inbox.Consumer[*sql.Tx], error) {
	subscriber, err := s.cfg.Broker.Subscriber(ctx, name, topics)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, subscriber)
	in, err := inbox.New[*sql.Tx](s.db.Store)
	if err != nil {
		return nil, err
	}
	c := inbox.ConsumerConfig{
		Name: name, Unhandled: unhandled, Batch: s.batch, MaxAttempts: 5, BackoffMax: time.Second, LeaseTTL: s.cfg.LeaseTTL, KeepIDs: s.cfg.Keep,
		ReplayWindow: s.cfg.Keep, Logger: s.cfg.Logger,
	}
	if s.cfg.Faults != nil {
		c.Interceptors = []relay.Interceptor{s.cfg.Faults.intercept}
	}
	consumer, err := inbox.NewConsumer(in, subscriber, c)
	if err == nil {
		s.run = append(s.run, consumer.Run)
	}
	return consumer, err
}

// listen adds a consumer of events. It skips those that the service does not need.
func (s *Service) listen(ctx context.Context, topics ...string) (*inbox.Consumer[*sql.Tx], error) {
	return s.consume(ctx, s.Name+"-events", inbox.SkipUnhandled, topics...)
}

// participate lets the service do steps of sagas: it takes commands, listens to events, and publishes what it has to say. A command
// that it does not know waits for a newer version of the service.
func (s *Service) participate(ctx context.Context, commandTopic string, eventTopics ...string) (commands, events *inbox.Consumer[*sql.Tx], err error) {
	if commands, err = s.consume(ctx, s.Name, inbox.HoldUnhandled, commandTopic); err != nil {
		return nil, nil, err
	}
	if events, err = s.listen(ctx, eventTopics...); err != nil {
		return nil, nil, err
	}
	return commands, events, errors.Join(s.participant.Consume(commands), s.publish(ctx))
}

// hears adds topics to those that a service reads, if it has to find out by itself when to undo what it did.
func (s *Service) hears(topics []string, more ...string) []string {
	if s.cfg.Terms.Compensate == saga.Observe {
		topics = append(topics, more...)
	}
	return topics
}

// createTables runs statements, one after another.
func (s *Service) createTables(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.db.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the tables: %w", err)
		}
	}
	return nil
}
