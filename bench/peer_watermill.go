package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/bench/internal/report"
)

// Watermill with watermill-sql, github.com/ThreeDotsLabs: topics as PostgreSQL tables, read by a cursor in transaction
// order (the default schema), or deleted when acknowledged (the queue schema).

// watermillTopic is the topic, part of the table names.
const watermillTopic = "orders"

// queueTable is the table of the queue schema, whose default name is that of the other one.
const queueTable = `"watermill_queue_` + watermillTopic + `"`

// watermillSchema is one of the two schemas.
type watermillSchema struct {
	name    string
	schema  watersql.SchemaAdapter
	offsets watersql.OffsetsAdapter
	// poll is the wait when nothing was found, 0 for the default (1 s).
	poll time.Duration
}

// watermillDefault returns the default schema. Its default batch is 100.
func watermillDefault(batch int, poll time.Duration) watermillSchema {
	return watermillSchema{
		name:    fmt.Sprintf("Watermill, default schema, batch %d", batch),
		schema:  watersql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch},
		offsets: watersql.DefaultPostgreSQLOffsetsAdapter{}, poll: poll,
	}
}

// watermillQueue returns the queue schema, with rows deleted when they are acknowledged.
func watermillQueue(batch int, poll time.Duration) watermillSchema {
	table := func(string) string { return queueTable }
	return watermillSchema{
		name:    fmt.Sprintf("Watermill, queue schema, batch %d", batch),
		schema:  watersql.PostgreSQLQueueSchema{SubscribeBatchSize: batch, GenerateMessagesTableName: table},
		offsets: watersql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true, GenerateMessagesTableName: table}, poll: poll,
	}
}

// tables are the tables of the schema.
func (s watermillSchema) tables() ([]string, error) {
	messages, err := s.schema.SchemaInitializingQueries(watersql.SchemaInitializingQueriesParams{Topic: watermillTopic})
	if err != nil {
		return nil, err
	}
	offsets, err := s.offsets.SchemaInitializingQueries(watersql.OffsetsSchemaInitializingQueriesParams{Topic: watermillTopic})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, q := range append(messages, offsets...) {
		if _, after, found := strings.Cut(strings.ToLower(q.Query), "create table if not exists "); found {
			names = append(names, strings.Fields(after)[0])
		}
	}
	return names, nil
}

// watermillPeer is one schema in a bundle's database.
type watermillPeer struct {
	b   *bundle
	db  *sql.DB
	set watermillSchema
}

func newWatermill(ctx context.Context, b *bundle, set watermillSchema) (*watermillPeer, error) {
	p := &watermillPeer{b: b, db: stdlib.OpenDBFromPool(b.pool), set: set}
	p.db.SetMaxIdleConns(poolSize)
	b.after(func() { _ = p.db.Close() })
	sub, err := p.subscriber()
	if err != nil {
		return nil, err
	}
	return p, sub.SubscribeInitialize(watermillTopic)
}

func (p *watermillPeer) subscriber() (*watersql.Subscriber, error) {
	return watersql.NewSubscriber(watersql.BeginnerFromStdSQL(p.db), watersql.SubscriberConfig{
		SchemaAdapter: p.set.schema, OffsetsAdapter: p.set.offsets, PollInterval: p.set.poll, ConsumerGroup: "",
	}, watermill.NopLogger{})
}

// publish writes messages in a transaction, with a new publisher, as in Watermill's documentation.
func (p *watermillPeer) publish(tx *sql.Tx, msgs ...*message.Message) error {
	publisher, err := watersql.NewPublisher(watersql.TxFromStdSQL(tx), watersql.PublisherConfig{SchemaAdapter: p.set.schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return publisher.Publish(watermillTopic, msgs...)
}

func watermillMessage() *message.Message { return message.NewMessage(watermill.NewUUID(), payload) }

// watermillPublish are the ways to write an order and a Watermill message.
func watermillPublish(ctx context.Context, b *bundle) ([]way, error) {
	var ways []way
	for _, w := range []struct {
		name string
		set  watermillSchema
	}{{"Watermill, queue schema", watermillQueue(100, 0)}, {"Watermill, default schema", watermillDefault(100, 0)}} {
		p, err := newWatermill(ctx, b, w.set)
		if err != nil {
			return nil, err
		}
		ways = append(ways, way{name: w.name, role: report.Peer, publish: func(ctx context.Context, i int) error {
			return p.placeOrder(ctx, i, watermillMessage())
		}})
	}
	return ways, nil
}

// placeOrder writes an order and a message in one transaction.
func (p *watermillPeer) placeOrder(ctx context.Context, i int, m *message.Message) error {
	return inSQLTx(ctx, p.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrderSQL, customer, i); err != nil {
			return err
		}
		return p.publish(tx, m)
	})
}

// fill publishes n messages, 1,000 per transaction, after removing those of earlier runs.
func (p *watermillPeer) fill(ctx context.Context, n int) error {
	tables, err := p.set.tables()
	if err != nil {
		return err
	}
	if _, err := p.db.ExecContext(ctx, "truncate "+strings.Join(tables, ", ")); err != nil {
		return err
	}
	const chunk = 1000
	for left := n; left > 0; left -= chunk {
		msgs := make([]*message.Message, min(chunk, left))
		for i := range msgs {
			msgs[i] = watermillMessage()
		}
		if err := inSQLTx(ctx, p.db, func(tx *sql.Tx) error { return p.publish(tx, msgs...) }); err != nil {
			return err
		}
	}
	_, err = p.db.ExecContext(ctx, "vacuum analyze")
	return err
}

// drain receives n messages and acknowledges each when handle has returned, one at a time, as Watermill requires.
func (p *watermillPeer) drain(ctx context.Context, n int, handle func(ctx context.Context, m *message.Message) error) error {
	sub, err := p.subscriber()
	if err != nil {
		return err
	}
	msgs, err := sub.Subscribe(ctx, watermillTopic)
	if err != nil {
		return err
	}
	for range n {
		select {
		case m := <-msgs:
			if err := handle(ctx, m); err != nil {
				return err
			}
			m.Ack()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return sub.Close() // it waits until the last acknowledgement is in the database
}
