package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

const (
	handInOrder   = "loop by hand, 100 in a transaction"
	handOneByOne  = "loop by hand, one in a transaction"
	handPipelined = "loop by hand, 100 in a transaction, pipelined"
	fromLog       = "Postrider, from the log"
	fromLogOneKey = "Postrider, from the log, one key"
	fromLogSingle = "Postrider, from the log, one in a transaction"
	fromLogBatch  = "Postrider, from the log, batches, pipelined"
	fromLogSlow   = "Postrider, from the log, handler of 20 ms"
	fromQueue     = "Postrider, from a queue, in order"

	// figureOfMost is the rate, relative to what 16 handlers of 20 ms can do at most.
	figureOfMost = "of_most"

	slowHandler = 20 * time.Millisecond
	consumers   = 16
	effectSQL   = "insert into effects (id) values ($1)"
)

// consumeSuite reads a stream in order, with an effect of one row for each message. The rate counts from the first effect to the last,
// without the time in which a consumer starts.
var consumeSuite = suite{
	name: "consume", title: "Consume a stream in order, with an effect of one row", figure: figureRate, unit: "msg/s", share: 0.6,
	also: append([]report.Column{{Figure: figureBroker, Title: "broker µs/msg"}}, usual...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		c, err := newConsumption(ctx, b)
		if err != nil {
			return nil, err
		}
		return []entry{
			c.byHand(handInOrder, 100, b.n, c.apply),
			c.byHand(handPipelined, 100, b.n, c.applyPipelined),
			c.byHand(handOneByOne, 1, b.n/5, c.apply),
			c.consume(fromLog, handInOrder, c.keyed, inbox.ConsumerConfig{}, b.n, oneByOne(0)),
			c.consume(fromLogOneKey, handInOrder, c.oneKey, inbox.ConsumerConfig{}, b.n, oneByOne(0)),
			c.consume(fromLogBatch, handPipelined, c.keyed, inbox.ConsumerConfig{}, b.n, inBatches),
			c.consume(fromLogSingle, handOneByOne, c.keyed, inbox.ConsumerConfig{Batch: 1}, b.n/5, oneByOne(0)),
			c.consume(fromLogSlow, "", c.keyed, inbox.ConsumerConfig{}, min(b.n, 3200), oneByOne(slowHandler)),
			c.consume(fromQueue, handOneByOne, c.keyed, inbox.ConsumerConfig{}, b.n/10, oneByOne(0)),
		}, nil
	},
}

// consumption holds the streams and the inbox of the suite.
type consumption struct {
	b             *bundle
	url           string
	js            jetstream.JetStream
	keyed, oneKey string // streams
	store         *postgres.Store
	runs          atomic.Int64
}

func newConsumption(ctx context.Context, b *bundle) (*consumption, error) {
	if err := b.database(ctx); err != nil {
		return nil, err
	}
	j, err := newJetStream(ctx, b)
	if err != nil {
		return nil, err
	}
	c := &consumption{b: b, url: j.url, js: j.js}
	for _, s := range []struct {
		name *string
		keys keys
	}{{&c.keyed, manyKeys}, {&c.oneKey, 1}} {
		if *s.name, err = c.fill(ctx, s.keys); err != nil {
			return nil, err
		}
	}
	if c.store, err = b.store(ctx, "consume_"); err != nil {
		return nil, err
	}
	_, err = b.pool.Exec(ctx, "create table effects (id text not null, at timestamptz not null default now()); "+
		"create table hand_position (stream text primary key, position bigint not null)")
	return c, err
}

// fill publishes the suite's messages to a new stream.
func (c *consumption) fill(ctx context.Context, k keys) (name string, err error) {
	name = fmt.Sprintf("BENCH%d", streams.Add(1))
	p, err := natsbroker.Open(ctx, c.url, natsbroker.Config{Stream: name})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	c.b.after(func() {
		if err := c.js.DeleteStream(context.WithoutCancel(ctx), name); err != nil {
			fmt.Fprintln(c.b.progress, "delete the stream:", err)
		}
	})
	msgs := make([]*postrider.Message, c.b.n)
	for i := range msgs {
		msgs[i] = k.message(i)
		msgs[i].FillDefaults(source, time.Now())
	}
	for batch := range slices.Chunk(msgs, 1000) {
		if err := errors.Join(p.Publish(ctx, batch)...); err != nil {
			return "", err
		}
	}
	return name, nil
}

// effects counts what handlers have done.
type effects struct {
	left         atomic.Int64
	first        sync.Once
	began, ended time.Time
	all          chan struct{} // closed with the last one
}

func expectEffects(n int) *effects {
	e := &effects{all: make(chan struct{})}
	e.left.Store(int64(n))
	return e
}

func (e *effects) begin() { e.first.Do(func() { e.began = time.Now() }) }

func (e *effects) end() {
	if e.left.Add(-1) == 0 {
		e.ended = time.Now()
		close(e.all)
	}
}

// rate returns messages per second, and checks that no message had its effect twice and at least n had one.
func (c *consumption) rate(ctx context.Context, e *effects, n int) (report.Figures, error) {
	var all, distinct int
	if err := c.b.pool.QueryRow(ctx, "select count(*), count(distinct id) from effects").Scan(&all, &distinct); err != nil {
		return nil, err
	}
	if all != distinct || all < n {
		return nil, fmt.Errorf("%d effects of %d messages, want %d", all, distinct, n)
	}
	rate := float64(n) / e.ended.Sub(e.began).Seconds()
	return report.Figures{figureRate: rate, figureOfMost: rate / (consumers * float64(time.Second/slowHandler))}, nil
}

func (c *consumption) empty(ctx context.Context) error {
	_, err := c.b.pool.Exec(ctx, "truncate effects, hand_position")
	return err
}

// register adds a handler to a consumer, which has the effects of n messages.
type register func(consumer *inbox.Consumer[pgx.Tx], done *effects) error

// oneByOne handles each message by itself, which takes some time.
func oneByOne(takes time.Duration) register {
	return func(consumer *inbox.Consumer[pgx.Tx], done *effects) error {
		return consumer.HandleFunc(messageType, func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
			done.begin()
			if takes > 0 {
				time.Sleep(takes)
			}
			_, err := tx.Exec(ctx, effectSQL, m.ID)
			done.end()
			return err
		})
	}
}

// inBatches handles all messages of a transaction in one round trip.
func inBatches(consumer *inbox.Consumer[pgx.Tx], done *effects) error {
	return consumer.HandleBatch([]string{messageType}, func(_ context.Context, tx pgx.Tx, _ []*postrider.Message) (relay.Batch, error) {
		return &pipelined{tx: tx, done: done}, nil
	})
}

// pipelined is a relay.Batch of inserts.
type pipelined struct {
	tx    pgx.Tx
	done  *effects
	batch pgx.Batch
}

func (p *pipelined) Handle(_ context.Context, m *postrider.Message) error {
	p.done.begin()
	p.batch.Queue(effectSQL, m.ID)
	return nil
}

func (p *pipelined) End(ctx context.Context) error {
	err := p.tx.SendBatch(ctx, &p.batch).Close()
	for range p.batch.Len() {
		p.done.end()
	}
	return err
}

// consume handles n messages of a stream with a consumer. From a queue, one message of the stream is out at a time.
func (c *consumption) consume(name, limit, stream string, cfg inbox.ConsumerConfig, n int, handle register) entry {
	e := entry{name: name, role: report.Ours, limit: limit, prepare: c.empty, messages: n}
	e.run = func(ctx context.Context) (_ report.Figures, err error) {
		cfg := cfg
		cfg.Name = fmt.Sprintf("consumer-%d", c.runs.Add(1))
		from := natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: stream}, LagConsumer: natsbroker.NoLagConsumer}
		if name == fromQueue {
			from.Durable, from.Ordered, from.LagConsumer = cfg.Name, true, ""
		}
		subscriber, err := natsbroker.OpenSubscriber(ctx, c.url, from)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, subscriber.Close()) }()
		return c.consumeFrom(ctx, subscriber, cfg, n, handle)
	}
	return e
}

// consumeFrom handles the first n messages of a new subscriber.
func (c *consumption) consumeFrom(ctx context.Context, subscriber postrider.Subscriber, cfg inbox.ConsumerConfig, n int, handle register) (
	report.Figures, error,
) {
	in, err := inbox.New(c.store)
	if err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("consumer-%d", c.runs.Add(1))
	}
	cfg.Logger, cfg.Concurrency = slog.New(slog.DiscardHandler), cmp.Or(cfg.Concurrency, consumers)
	consumer, err := inbox.NewConsumer(in, subscriber, cfg)
	if err != nil {
		return nil, err
	}
	done := expectEffects(n)
	if err := handle(consumer, done); err != nil {
		return nil, err
	}
	if err := c.until(ctx, consumer, done.all); err != nil {
		return nil, err
	}
	return c.rate(ctx, done, n)
}

// until runs a consumer until its work is done.
func (c *consumption) until(ctx context.Context, consumer *inbox.Consumer[pgx.Tx], done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	select {
	case <-done:
		if err := consumer.Stop(ctx); err != nil {
			return err
		}
		return <-ended
	case err := <-ended:
		return fmt.Errorf("the consumer ended before all was handled: %w", errors.Join(err, context.Cause(ctx)))
	}
}

// byHand reads a stream in order, and commits the effects of up to size messages together with the position. It knows nothing of
// retries, other processes, or a log that was lost.
func (c *consumption) byHand(name string, size, n int, apply func(context.Context, *pgxpool.Conn, jetstream.MessagesContext, *effects, int) error) entry {
	return entry{name: name, role: report.Limit, prepare: c.empty, messages: n, run: func(ctx context.Context) (report.Figures, error) {
		reader, err := c.js.OrderedConsumer(ctx, c.keyed, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return nil, err
		}
		messages, err := reader.Messages()
		if err != nil {
			return nil, err
		}
		defer messages.Stop()
		if _, err := c.b.pool.Exec(ctx, "insert into hand_position values ($1, 0)", c.keyed); err != nil {
			return nil, err
		}
		conn, err := c.b.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Release()
		done := expectEffects(n)
		for left := n; left > 0; left -= size {
			if err := apply(ctx, conn, messages, done, min(size, left)); err != nil {
				return nil, err
			}
		}
		return c.rate(ctx, done, n)
	}}
}

// positionSQL moves the position of the loop by hand.
const positionSQL = "update hand_position set position = $2 where stream = $1"

// applyPipelined commits the effects of the next messages in one round trip.
func (c *consumption) applyPipelined(ctx context.Context, conn *pgxpool.Conn, messages jetstream.MessagesContext, done *effects, size int) error {
	var batch pgx.Batch
	batch.Queue("begin")
	var position uint64
	for range size {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		done.begin()
		at, err := m.Metadata()
		if err != nil {
			return err
		}
		position = at.Sequence.Stream
		batch.Queue(effectSQL, m.Headers().Get(jetstream.MsgIDHeader))
	}
	batch.Queue(positionSQL, c.keyed, int64(position))
	batch.Queue("commit")
	err := conn.SendBatch(ctx, &batch).Close()
	for range size {
		done.end()
	}
	return err
}

// apply commits the effects of the next messages, a statement each.
func (c *consumption) apply(ctx context.Context, conn *pgxpool.Conn, messages jetstream.MessagesContext, done *effects, size int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var position uint64
		for range size {
			m, err := messages.Next()
			if err != nil {
				return err
			}
			done.begin()
			at, err := m.Metadata()
			if err != nil {
				return err
			}
			position = at.Sequence.Stream
			if _, err := tx.Exec(ctx, effectSQL, m.Headers().Get(jetstream.MsgIDHeader)); err != nil {
				return err
			}
			done.end()
		}
		_, err := tx.Exec(ctx, positionSQL, c.keyed, int64(position))
		return err
	})
}
