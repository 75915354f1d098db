// Package inboxes has ways to process messages with one row each as their effect: hand-written loops, consumers, and a relay with
// transactions. docs/inbox.md explains their figures.
package inboxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

const (
	batch    = 100
	parallel = 16
	keys     = 1_000
)

// Way is a way to process messages.
type Way struct {
	Name string
	// Hand and Other name the ways that this one, Postrider's, is compared with: the same by hand, and another one.
	Hand, Other string
	// Single: each message is committed by itself.
	Single bool
	run    func(ctx context.Context, b *bench, n int) (time.Duration, error)
}

// ByIDParallel is compared with HandParallel.
const (
	ByIDParallel = "consumer by ID, 16 at once"
	HandParallel = "by hand, 16 at once"
)

const (
	handSingle     = "by hand: claim, effect, commit"
	handBatch      = "by hand, 100 in a transaction"
	handSavepoints = "by hand, 100 with savepoints"
	handLogSingle  = "by hand: read the outbox, effect, position"
	handLog        = "by hand, 100 from the outbox"
	byIDBatch      = "consumer by ID, batches of 100"
)

// Ways are all ways. A hand-written one reads the same source as Postrider's, and acknowledges to it: for consumers an in-memory broker,
// for relays an outbox.
var Ways = []Way{
	{Name: HandParallel, run: byHand(parallel, 1, one)},
	{Name: ByIDParallel, Hand: HandParallel, run: consume(inbox.ConsumerConfig{Concurrency: parallel})},
	{Name: handSingle, Single: true, run: byHand(1, 1, one)},
	{Name: "consumer by ID", Hand: handSingle, Single: true, run: consume(inbox.ConsumerConfig{Concurrency: 1})},
	{Name: handLogSingle, Single: true, run: byHandFromLog(1)},
	{Name: "relay.HandleTx, transactions of one", Hand: handLogSingle, Single: true, run: relayTx(1)},
	{Name: handBatch, run: byHand(1, batch, many(false))},
	{Name: handSavepoints, run: byHand(1, batch, many(true))},
	{Name: byIDBatch, Hand: handBatch, Other: handSavepoints, run: consume(inbox.ConsumerConfig{Concurrency: 1, Batch: batch})},
	{Name: handLog, run: byHandFromLog(batch)},
	{Name: "relay.HandleTx, transactions of 100", Hand: handLog, Other: byIDBatch, run: relayTx(batch)},
}

// Run processes n messages in new tables, and returns messages per second.
func (w *Way) Run(ctx context.Context, pool *pgxpool.Pool, n int) (rate float64, err error) {
	b, err := newBench(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.drop(ctx)) }()
	took, err := w.run(ctx, b, n)
	if err == nil {
		err = b.check(ctx, n)
	}
	return float64(n) / took.Seconds(), err
}

// bench holds the tables of one run.
type bench struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	prefix string
	effect string // the statement of an effect
}

func newBench(ctx context.Context, pool *pgxpool.Pool) (*bench, error) {
	const prefix = "inbox_bench_"
	cfg := postgres.Config{Prefix: prefix, Partitions: 1}
	if _, err := postgres.Migrate(ctx, pool, cfg, postgres.Latest); err != nil {
		return nil, err
	}
	_, err := pool.Exec(ctx, fmt.Sprintf(`
create table %[1]seffect (id text not null, at timestamptz not null default now());
create table %[1]sseen (consumer text, id text, at timestamptz not null default now(), primary key (consumer, id));
create index on %[1]sseen (consumer, at);
create table %[1]smark (consumer text primary key, position bigint);
create table %[1]soutbox (seq bigint generated always as identity primary key, id text not null, type text not null,
	topic text not null, key text not null, payload bytea not null);
insert into %[1]smark values ('view', 0)`, prefix))
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, cfg)
	return &bench{pool: pool, store: store, prefix: prefix, effect: "insert into " + prefix + "effect (id) values ($1)"}, err
}

// check verifies that every message has had its effect once.
func (b *bench) check(ctx context.Context, n int) error {
	var all, distinct int
	err := b.pool.QueryRow(ctx, "select count(*), count(distinct id) from "+b.prefix+"effect").Scan(&all, &distinct)
	if err == nil && (all != n || distinct != n) {
		err = fmt.Errorf("%d effects of %d messages, want %d of each", all, distinct, n)
	}
	return err
}

func (b *bench) drop(ctx context.Context) error {
	_, dropErr := b.pool.Exec(ctx, fmt.Sprintf("drop table %[1]seffect, %[1]sseen, %[1]smark, %[1]soutbox", b.prefix))
	_, err := postgres.Migrate(ctx, b.pool, postgres.Config{Prefix: b.prefix}, 0)
	return errors.Join(dropErr, err)
}

// message returns a complete message: a consumer changes those that break a rule, as messages of other senders may.
func message(i int) *postrider.Message {
	m := &postrider.Message{ID: strconv.Itoa(i), Type: "t", Topic: "t", Key: strconv.Itoa(i % keys), Payload: []byte("{}")}
	m.FillDefaults("bench", time.Now())
	return m
}

// source returns an in-memory broker's subscriber with n messages.
func source(ctx context.Context, n int) (*memorybroker.Subscriber, error) {
	broker, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		return nil, err
	}
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = message(i + 1)
	}
	if err := errors.Join(broker.Publish(ctx, msgs)...); err != nil {
		return nil, err
	}
	return broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
}

// consume processes the messages of an in-memory broker with a consumer.
func consume(cfg inbox.ConsumerConfig) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		subscriber, err := source(ctx, n)
		if err != nil {
			return 0, err
		}
		in, err := inbox.New(b.store)
		if err != nil {
			return 0, err
		}
		cfg.Name, cfg.Logger = "view", slog.New(slog.DiscardHandler)
		c, err := inbox.NewConsumer(in, subscriber, cfg)
		if err != nil {
			return 0, err
		}
		handle, done := b.counted(n)
		if err := c.HandleFunc("t", handle); err != nil {
			return 0, err
		}
		return until(ctx, done, c.Run)
	}
}

// relayTx processes the messages of an outbox with a relay with transactions.
func relayTx(batch int) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		out, err := outbox.New(b.store, outbox.Config{Source: "bench"})
		if err != nil {
			return 0, err
		}
		if _, err := out.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := out.PublishSeq(ctx, tx, func(yield func(*postrider.Message, error) bool) {
				for i := range n {
					if !yield(message(i+1), nil) {
						return
					}
				}
			})
			return err
		}); err != nil {
			return 0, err
		}
		r, err := relay.New(b.store, relay.Config{Name: "view", Concurrency: 1, TxBatch: batch, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return 0, err
		}
		handle, done := b.counted(n)
		if err := relay.HandleTxFunc(r, "t", handle); err != nil {
			return 0, err
		}
		return until(ctx, done, r.Run)
	}
}

// counted returns a handler that applies the effect, and its progress.
func (b *bench) counted(n int) (handle func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error, done *progress) {
	done = &progress{all: make(chan struct{})}
	done.left.Store(int64(n))
	return func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
		done.first.Do(func() { done.began = time.Now() })
		_, err := tx.Exec(ctx, b.effect, m.ID)
		if done.left.Add(-1) == 0 {
			done.ended = time.Now()
			close(done.all)
		}
		return err
	}, done
}

// progress is the progress of a handler.
type progress struct {
	left         atomic.Int64
	first        sync.Once
	all          chan struct{} // closed with the last message
	began, ended time.Time
}

// until runs something until its work is done, and returns the time from the first message to the last, excluding the
// acquisition of leases, which happens once for any number of messages.
func until(ctx context.Context, done *progress, run func(ctx context.Context) error) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-done.all:
			stop()
		case <-ctx.Done():
		}
	}()
	err := run(ctx)
	return done.ended.Sub(done.began), err
}
