package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// childCommands as the first argument make this program another process of a suite. The other argument is a child as JSON.
var childCommands = map[string]func(ctx context.Context, c *child, out io.Writer) error{
	relayCommand: runRelay, handlerCommand: runHandler, consumerCommand: runConsumer,
}

const (
	relayCommand    = "relay-process"    // a relay whose publisher does nothing
	handlerCommand  = "handler-process"  // a relay with a handler, which records when it was called
	consumerCommand = "consumer-process" // a consumer of a JetStream stream, with effects of one row
)

// child says what another process does. It runs until it is stopped.
type child struct {
	Postgres, Prefix, Name string
	NATS, Stream           string
	// LeaseTTL is a consumer's, 0 for the default.
	LeaseTTL time.Duration
	// Times is the file for the times of Count messages, "" for none.
	Times string
	Count int
}

// childReady is printed once a child holds its leases.
const childReady = "the process is ready"

// runChild runs a child.
func runChild(ctx context.Context, run func(context.Context, *child, io.Writer) error, args []string, out io.Writer) error {
	var c child
	if len(args) != 1 {
		return errors.New("a process of a suite has one argument")
	}
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	return run(ctx, &c, out)
}

// startChild runs this program as another process, and waits until it is ready.
func (b *bundle) startChild(ctx context.Context, command string, c *child) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return process.Start(ctx, process.Command{
		Name: command, Path: self, Args: []string{command, string(arg)}, Log: filepath.Join(b.dir, c.Name+".log"), Ready: childReady,
	})
}

// open opens the child's store.
func (c *child) open(ctx context.Context) (*pgxpool.Pool, *postgres.Store, error) {
	pool, err := pgxpool.New(ctx, c.Postgres)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.New(pool, postgres.Config{Prefix: c.Prefix})
	if err != nil {
		pool.Close()
	}
	return pool, s, err
}

// runRelay runs a relay that delivers to nowhere.
func runRelay(ctx context.Context, c *child, out io.Writer) error {
	sink := &counter{}
	sink.expect(1)
	return c.relay(ctx, &relay.Config{Publisher: sink}, out)
}

// runHandler runs a relay that records when its handler was called.
func runHandler(ctx context.Context, c *child, out io.Writer) error {
	t := newTimes(c)
	return c.relay(ctx, &relay.Config{Start: relay.FromNow}, out, func(_ context.Context, m *postrider.Message) error {
		return t.record(int(m.AggregateVersion) - 1)
	})
}

func (c *child) relay(ctx context.Context, cfg *relay.Config, out io.Writer, handlers ...postrider.Handler) error {
	pool, s, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	defer s.Close()
	cfg.Name, cfg.Logger = c.Name, slog.New(slog.NewTextHandler(out, nil))
	r, err := relay.New(s, *cfg)
	for _, h := range handlers {
		if err == nil {
			err = r.HandleFunc(messageType, h)
		}
	}
	if err != nil {
		return err
	}
	go ready(ctx, r.Ready, out)
	return r.Run(ctx)
}

// ready prints childReady once a relay or consumer is.
func ready(ctx context.Context, check func() error, out io.Writer) {
	for ctx.Err() == nil && check() != nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(out, childReady)
}

// runConsumer runs a consumer of a stream. The effect of a message is a row, with the process that wrote it.
func runConsumer(ctx context.Context, c *child, out io.Writer) (err error) {
	pool, s, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	defer s.Close()
	subscriber, err := natsbroker.OpenSubscriber(ctx, c.NATS, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: c.Stream}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subscriber.Close()) }()
	in, err := inbox.New(s)
	if err != nil {
		return err
	}
	cfg := inbox.ConsumerConfig{Name: c.Name, LeaseTTL: c.LeaseTTL, Logger: slog.New(slog.NewTextHandler(out, nil))}
	if c.Times != "" {
		t := newTimes(c)
		cfg.Observer = &observe.Consumer{Processed: func(_ context.Context, p observe.Processed) {
			for _, r := range p.Results {
				if err := t.record(int(r.Message.AggregateVersion) - 1); err != nil {
					fmt.Fprintln(out, err)
				}
			}
		}}
	}
	consumer, err := inbox.NewConsumer(in, subscriber, cfg)
	if err != nil {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	if err := consumer.HandleFunc(messageType, func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
		_, err := tx.Exec(ctx, "insert into "+c.Prefix+"done (id, key, number, process) values ($1, $2, $3, $4)", m.ID, m.Key, m.AggregateVersion, pid)
		return err
	}); err != nil {
		return err
	}
	go ready(ctx, consumer.Ready, out)
	return consumer.Run(ctx)
}

// createDone creates the table of the effects of runConsumer.
func (b *bundle) createDone(ctx context.Context, prefix string) error {
	_, err := b.pool.Exec(ctx, "create table "+prefix+"done (n bigint generated always as identity primary key, id text not null, "+
		"key text not null, number bigint not null, process text not null, at timestamptz not null default clock_timestamp())")
	return err
}

// times records when messages had their effect, by their numbers, and writes a file once each has had it.
type times struct {
	file string
	mu   sync.Mutex
	at   []int64 // nanoseconds since 1970
	left int
}

func newTimes(c *child) *times {
	return &times{file: c.Times, at: make([]int64, c.Count), left: c.Count}
}

// record records a message. A duplicate does not count.
func (t *times) record(number int) error {
	now := time.Now().UnixNano()
	t.mu.Lock()
	defer t.mu.Unlock()
	if number < 0 || number >= len(t.at) || t.at[number] != 0 {
		return nil
	}
	t.at[number] = now
	if t.left--; t.left > 0 {
		return nil
	}
	text, err := json.Marshal(t.at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(t.file+".new", t.file)
}

// adopt takes the times of another process, once it has written them.
func (p *paced) adopt(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if err == nil {
			return p.take(text)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the other process did not have all messages: %w", ctx.Err())
		}
	}
}

func (p *paced) take(text []byte) error {
	var at []int64
	if err := json.Unmarshal(text, &at); err != nil {
		return err
	}
	for i, ns := range at {
		p.handled[i].Store(ns - p.began.UnixNano())
	}
	close(p.done)
	return nil
}
