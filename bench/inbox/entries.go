package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// The hand-written variants read the same source as the variants that they are compared with, and acknowledge to it: for
// consumers an in-memory broker, for relays an outbox.
var (
	handSingle     = way{"by hand: claim, effect, commit", byHand(1, 1, one)}
	handParallel   = way{"by hand, 16 at once", byHand(parallel, 1, one)}
	handBatch      = way{"by hand, 100 in a transaction", byHand(1, batch, many(false))}
	handSavepoints = way{"by hand, 100 with savepoints", byHand(1, batch, many(true))}
	handMarkSingle = way{"by hand: watermark, effect, commit", byHand(1, 1, mark)}
	handMark       = way{"by hand, watermark of 100", byHand(1, batch, mark)}
	handLogSingle  = way{"by hand: read the outbox, effect, position", byHandFromLog(1)}
	handLog        = way{"by hand, 100 from the outbox", byHandFromLog(batch)}

	byID              = way{"consumer by ID", consume(inbox.ConsumerConfig{Concurrency: 1})}
	byIDParallel      = way{"consumer by ID, 16 at once", consume(inbox.ConsumerConfig{Concurrency: parallel})}
	byIDBatch         = way{"consumer by ID, batches of 100", consume(inbox.ConsumerConfig{Concurrency: 1, Batch: batch})}
	byWatermarkSingle = way{"consumer by watermark, one by one", consume(inbox.ConsumerConfig{Concurrency: 1, Dedup: inbox.ByPosition, Batch: 1})}
	byWatermark       = way{"consumer by watermark, batches of 100", consume(inbox.ConsumerConfig{Concurrency: 1, Dedup: inbox.ByPosition, Batch: batch})}
	handleTx          = way{"relay.HandleTx, transactions of one", relayTx(1)}
	handleTxBatch     = way{"relay.HandleTx, transactions of 100", relayTx(batch)}
)

// Variants that commit each message separately get a fifth of the messages.
var pairs = []pair{
	{byID, handSingle, 0.2},
	{byWatermarkSingle, handMarkSingle, 0.2},
	{handleTx, handLogSingle, 0.2},
	{byIDParallel, handParallel, 1},
	{byIDBatch, handBatch, 1},
	{byIDBatch, handSavepoints, 1},
	{byWatermark, handMark, 1},
	{byWatermark, byIDBatch, 1},
	{handleTxBatch, handLog, 1},
	{handleTxBatch, byIDBatch, 1},
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

// work applies the effects of the new messages of a batch in a transaction.
type work func(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error

// byHand processes the messages of an in-memory broker in a hand-written loop, in several goroutines, with size messages
// per transaction.
func byHand(goroutines, size int, do work) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		subscriber, err := source(ctx, n)
		if err != nil {
			return 0, err
		}
		subscription, err := subscriber.Subscribe(ctx)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		batches := make(chan []*postrider.Delivery, 2*goroutines)
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for batch := range batches {
					if errs[g] == nil {
						errs[g] = b.consumed(ctx, do, batch)
					}
				}
			})
		}
		for left := n; left > 0 && err == nil; {
			var received []*postrider.Delivery
			received, err = subscription.Receive(ctx, 500)
			left -= len(received)
			for batch := range slices.Chunk(received, size) {
				batches <- batch
			}
		}
		close(batches)
		wg.Wait()
		return time.Since(start), errors.Join(append(errs, err, subscription.Close(ctx))...)
	}
}

// consumed processes messages in one transaction, and acknowledges them.
func (b *bench) consumed(ctx context.Context, do work, batch []*postrider.Delivery) error {
	if err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return do(ctx, b, tx, batch) }); err != nil {
		return err
	}
	for _, d := range batch {
		if err := d.Ack(ctx); err != nil {
			return err
		}
	}
	return nil
}

// one records a message and, if it is new, applies its effect.
func one(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error {
	id := batch[0].Message.ID
	tag, err := tx.Exec(ctx, "insert into "+b.prefix+"seen (consumer, id) values ('view', $1) on conflict do nothing", id)
	if err == nil && tag.RowsAffected() > 0 {
		_, err = tx.Exec(ctx, b.effect, id)
	}
	return err
}

// many records a batch of messages and applies the effects of the new ones, optionally each within a savepoint.
func many(savepoints bool) work {
	return func(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error {
		ids := make([]string, len(batch))
		for i, d := range batch {
			ids[i] = d.Message.ID
		}
		rows, err := tx.Query(ctx, "insert into "+b.prefix+"seen (consumer, id) select 'view', unnest($1::text[]) on conflict do nothing returning id", ids)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, id := range fresh {
			apply := func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, b.effect, id)
				return err
			}
			if savepoints {
				err = pgx.BeginFunc(ctx, tx, apply)
			} else {
				err = apply(tx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// mark moves a watermark and applies the effects of the messages after it.
func mark(ctx context.Context, b *bench, tx pgx.Tx, batch []*postrider.Delivery) error {
	var before int64
	if err := tx.QueryRow(ctx, "select position from "+b.prefix+"mark where consumer = 'view' for update").Scan(&before); err != nil {
		return err
	}
	for _, d := range batch {
		if d.Position.Offset < before {
			continue
		}
		if _, err := tx.Exec(ctx, b.effect, d.Message.ID); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "update "+b.prefix+"mark set position = $1 where consumer = 'view'", batch[len(batch)-1].Position.Offset+1)
	return err
}

// byHandFromLog processes the messages of a plain outbox table: it reads the messages after a position, applies the
// effects and moves the position, in one transaction. (It would lose messages that commit late under a lower number.)
func byHandFromLog(size int) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		_, err := b.pool.Exec(ctx, "insert into "+b.prefix+"outbox (id, type, topic, key, payload) "+
			"select i::text, 't', 't', (i % 1000)::text, '{}' from generate_series(1, $1::int4) as i", n)
		start := time.Now()
		for done := 0; done < n && err == nil; {
			err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				read, err := b.readLog(ctx, tx, size)
				done += read
				return err
			})
		}
		return time.Since(start), err
	}
}

func (b *bench) readLog(ctx context.Context, tx pgx.Tx, size int) (int, error) {
	var position int64
	if err := tx.QueryRow(ctx, "select position from "+b.prefix+"mark where consumer = 'view' for update").Scan(&position); err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, "select seq, id, type, topic, key, payload from "+b.prefix+"outbox where seq > $1 order by seq limit $2", position, size)
	if err != nil {
		return 0, err
	}
	msgs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*postrider.Message, error) {
		var m postrider.Message
		return &m, row.Scan(&m.Sequence, &m.ID, &m.Type, &m.Topic, &m.Key, &m.Payload)
	})
	for _, m := range msgs {
		position = m.Sequence
		if _, err := tx.Exec(ctx, b.effect, m.ID); err != nil {
			return 0, err
		}
	}
	if err == nil {
		_, err = tx.Exec(ctx, "update "+b.prefix+"mark set position = $1 where consumer = 'view'", position)
	}
	return len(msgs), err
}

func message(i int) *postrider.Message {
	return &postrider.Message{ID: strconv.Itoa(i), Type: "t", Topic: "t", Key: strconv.Itoa(i % keys), Payload: []byte("{}")}
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
