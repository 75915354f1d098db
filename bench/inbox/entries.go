package main

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

var (
	handSingle     = way{"by hand: claim, effect, commit", byHand(1, one)}
	handParallel   = way{"by hand, 16 at once", byHand(parallel, one)}
	handBatch      = way{"by hand, 100 in a transaction", byHand(1, many(false))}
	handSavepoints = way{"by hand, 100 with savepoints", byHand(1, many(true))}
	handMark       = way{"by hand, watermark of 100", byHand(1, mark)}

	byID          = way{"consumer by ID", consume(inbox.ConsumerConfig{Concurrency: 1})}
	byIDParallel  = way{"consumer by ID, 16 at once", consume(inbox.ConsumerConfig{Concurrency: parallel})}
	byIDBatch     = way{"consumer by ID, batches of 100", consume(inbox.ConsumerConfig{Concurrency: 1, Batch: batch})}
	byWatermark   = way{"consumer by watermark, batches of 100", consume(inbox.ConsumerConfig{Concurrency: 1, Remember: inbox.ByWatermark, Batch: batch})}
	handleTx      = way{"relay.HandleTx, transactions of one", relayTx(1)}
	handleTxBatch = way{"relay.HandleTx, transactions of 100", relayTx(batch)}
)

// Those that commit each message by itself get a tenth of the messages.
var pairs = []pair{
	{byID, handSingle, 0.1},
	{handleTx, handSingle, 0.1},
	{byIDParallel, handParallel, 1},
	{byIDBatch, handBatch, 1},
	{byIDBatch, handSavepoints, 1},
	{byWatermark, handMark, 1},
	{byWatermark, byIDBatch, 1},
	{handleTxBatch, handMark, 1},
	{handleTxBatch, byIDBatch, 1},
}

// bench is the tables of one run.
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
insert into %[1]smark values ('view', 0)`, prefix))
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, cfg)
	return &bench{pool: pool, store: store, prefix: prefix, effect: "insert into " + prefix + "effect (id) values ($1)"}, err
}

// check says whether every message has had its effect once.
func (b *bench) check(ctx context.Context, n int) error {
	var all, distinct int
	err := b.pool.QueryRow(ctx, "select count(*), count(distinct id) from "+b.prefix+"effect").Scan(&all, &distinct)
	if err == nil && (all != n || distinct != n) {
		err = fmt.Errorf("%d effects of %d messages, want %d of each", all, distinct, n)
	}
	return err
}

func (b *bench) drop(ctx context.Context) error {
	_, dropErr := b.pool.Exec(ctx, fmt.Sprintf("drop table %[1]seffect, %[1]sseen, %[1]smark", b.prefix))
	_, err := postgres.Migrate(ctx, b.pool, postgres.Config{Prefix: b.prefix}, 0)
	return errors.Join(dropErr, err)
}

// byHand works on the messages by a loop written by hand, in several goroutines.
func byHand(goroutines int, work func(ctx context.Context, b *bench, tx pgx.Tx, ids []string) (done int, err error)) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		start := time.Now()
		for g := range goroutines {
			wg.Go(func() {
				var ids []string
				for i := g; i < n; i += goroutines {
					ids = append(ids, strconv.Itoa(i+1))
				}
				for len(ids) > 0 && errs[g] == nil {
					errs[g] = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
						done, err := work(ctx, b, tx, ids)
						ids = ids[done:]
						return err
					})
				}
			})
		}
		wg.Wait()
		return time.Since(start), errors.Join(errs...)
	}
}

// one notes a message and, if it is new, applies its effect.
func one(ctx context.Context, b *bench, tx pgx.Tx, ids []string) (int, error) {
	tag, err := tx.Exec(ctx, "insert into "+b.prefix+"seen (consumer, id) values ('view', $1) on conflict do nothing", ids[0])
	if err == nil && tag.RowsAffected() > 0 {
		_, err = tx.Exec(ctx, b.effect, ids[0])
	}
	return 1, err
}

// many notes a batch of messages and applies the effects of those that are new, each within a savepoint if asked for.
func many(savepoints bool) func(ctx context.Context, b *bench, tx pgx.Tx, ids []string) (int, error) {
	return func(ctx context.Context, b *bench, tx pgx.Tx, ids []string) (int, error) {
		ids = ids[:min(batch, len(ids))]
		rows, err := tx.Query(ctx, "insert into "+b.prefix+"seen (consumer, id) select 'view', unnest($1::text[]) on conflict do nothing returning id", ids)
		if err != nil {
			return 0, err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return 0, err
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
				return 0, err
			}
		}
		return len(ids), nil
	}
}

// mark moves a watermark and applies the effects behind it.
func mark(ctx context.Context, b *bench, tx pgx.Tx, ids []string) (int, error) {
	ids = ids[:min(batch, len(ids))]
	last, err := strconv.Atoi(ids[len(ids)-1])
	if err != nil {
		return 0, err
	}
	var before int
	if err := tx.QueryRow(ctx, "select position from "+b.prefix+"mark where consumer = 'view' for update").Scan(&before); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if at, err := strconv.Atoi(id); err != nil || at <= before {
			continue
		}
		if _, err := tx.Exec(ctx, b.effect, id); err != nil {
			return 0, err
		}
	}
	_, err = tx.Exec(ctx, "update "+b.prefix+"mark set position = $1 where consumer = 'view'", last)
	return len(ids), err
}

func message(i int) *postrider.Message {
	return &postrider.Message{ID: strconv.Itoa(i), Type: "t", Topic: "t", Key: strconv.Itoa(i % keys), Payload: []byte("{}")}
}

// consume works on the messages of a broker in memory by a consumer.
func consume(cfg inbox.ConsumerConfig) func(context.Context, *bench, int) (time.Duration, error) {
	return func(ctx context.Context, b *bench, n int) (time.Duration, error) {
		broker, err := memorybroker.New(memorybroker.Config{})
		if err != nil {
			return 0, err
		}
		msgs := make([]*postrider.Message, n)
		for i := range msgs {
			msgs[i] = message(i + 1)
		}
		if err := errors.Join(broker.Publish(ctx, msgs)...); err != nil {
			return 0, err
		}
		subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
		if err != nil {
			return 0, err
		}
		in, err := inbox.New(b.store, inbox.Config{})
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

// relayTx works on the messages of an outbox by a relay with transactions.
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

// counted returns a handler that applies the effect, and the count of what it has done.
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

// progress is how far a handler has come.
type progress struct {
	left         atomic.Int64
	first        sync.Once
	all          chan struct{} // closed with the last message
	began, ended time.Time
}

// until runs something until its work is done, and returns the time from the first message to the last: leases are taken
// once, however many messages come.
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
