package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/bench/internal/report"
)

// Watermill with watermill-sql, github.com/ThreeDotsLabs: topics as PostgreSQL tables, read by a cursor in transaction
// order (the default schema), or deleted when acknowledged (the queue schema).

// watermillTopic is the topic, part of the table names.
const watermillTopic = "orders"

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

// watermillQueue returns the queue schema.
func watermillQueue(batch int, poll time.Duration) watermillSchema {
	q := &queueAdapter{batch: batch}
	return watermillSchema{name: fmt.Sprintf("Watermill, queue schema, batch %d", batch), schema: q, offsets: q, poll: poll}
}

// queueAdapter is the queue schema with deletion on acknowledgement. It was added in version 4 of watermill-sql, which
// the module proxy does not have; this makes version 3 run the same statements: select the oldest rows for update, and
// delete them by number when the last of them has been acknowledged.
type queueAdapter struct {
	batch int
	read  []int64 // numbers of the rows read since the last acknowledgement
}

const queueTable = `"watermill_queue_` + watermillTopic + `"`

// SchemaInitializingQueries implements both adapters.
func (*queueAdapter) SchemaInitializingQueries(string) []watersql.Query {
	return []watersql.Query{{Query: `create table if not exists ` + queueTable + ` (
		"offset" serial primary key,
		"uuid" varchar(36) not null,
		"payload" json default null,
		"metadata" json default null,
		"acked" boolean not null default false,
		"created_at" timestamp with time zone not null default current_timestamp)`}}
}

// InsertQuery implements watersql.SchemaAdapter.
func (*queueAdapter) InsertQuery(_ string, msgs message.Messages) (watersql.Query, error) {
	var args []any
	var rows []string
	for _, m := range msgs {
		metadata, err := json.Marshal(m.Metadata)
		if err != nil {
			return watersql.Query{}, err
		}
		n := len(args)
		rows = append(rows, fmt.Sprintf("($%d,$%d,$%d)", n+1, n+2, n+3))
		args = append(args, m.UUID, []byte(m.Payload), metadata)
	}
	return watersql.Query{Query: "insert into " + queueTable + " (uuid, payload, metadata) values " + strings.Join(rows, ","), Args: args}, nil
}

// SelectQuery implements watersql.SchemaAdapter.
func (q *queueAdapter) SelectQuery(string, string, watersql.OffsetsAdapter) watersql.Query {
	q.read = q.read[:0]
	return watersql.Query{Query: fmt.Sprintf(`select "offset", uuid, payload, metadata from %s where acked = false order by "offset" limit %d for update`,
		queueTable, q.batch)}
}

// UnmarshalMessage implements watersql.SchemaAdapter.
func (q *queueAdapter) UnmarshalMessage(row watersql.Scanner) (r watersql.Row, err error) {
	if err := row.Scan(&r.Offset, &r.UUID, &r.Payload, &r.Metadata); err != nil {
		return r, err
	}
	r.Msg = message.NewMessage(string(r.UUID), r.Payload)
	if r.Metadata != nil {
		err = json.Unmarshal(r.Metadata, &r.Msg.Metadata)
	}
	q.read = append(q.read, r.Offset)
	return r, err
}

// SubscribeIsolationLevel implements watersql.SchemaAdapter.
func (*queueAdapter) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelRepeatableRead }

// AckMessageQuery implements watersql.OffsetsAdapter.
func (q *queueAdapter) AckMessageQuery(_ string, last watersql.Row, _ string) watersql.Query {
	acked := q.read[:0:0]
	for _, offset := range q.read {
		if offset <= last.Offset {
			acked = append(acked, offset)
		}
	}
	return watersql.Query{Query: `delete from ` + queueTable + ` where "offset" = any($1)`, Args: []any{acked}}
}

// ConsumedMessageQuery, NextOffsetQuery and BeforeSubscribingQueries implement watersql.OffsetsAdapter.
func (*queueAdapter) ConsumedMessageQuery(string, watersql.Row, string, []byte) watersql.Query {
	return watersql.Query{}
}

// NextOffsetQuery implements watersql.OffsetsAdapter.
func (*queueAdapter) NextOffsetQuery(string, string) watersql.Query { return watersql.Query{} }

// BeforeSubscribingQueries implements watersql.OffsetsAdapter.
func (*queueAdapter) BeforeSubscribingQueries(string, string) []watersql.Query { return nil }

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
	return watersql.NewSubscriber(p.db, watersql.SubscriberConfig{
		SchemaAdapter: p.set.schema, OffsetsAdapter: p.set.offsets, PollInterval: p.set.poll, ConsumerGroup: "",
	}, watermill.NopLogger{})
}

// publish writes messages in a transaction, with a new publisher, as in Watermill's documentation.
func (p *watermillPeer) publish(tx *sql.Tx, msgs ...*message.Message) error {
	publisher, err := watersql.NewPublisher(tx, watersql.PublisherConfig{SchemaAdapter: p.set.schema}, watermill.NopLogger{})
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
	for _, q := range append(p.set.schema.SchemaInitializingQueries(watermillTopic), p.set.offsets.SchemaInitializingQueries(watermillTopic)...) {
		table := strings.Fields(q.Query[strings.Index(strings.ToLower(q.Query), "exists ")+len("exists "):])[0]
		if _, err := p.db.ExecContext(ctx, "truncate "+table); err != nil {
			return err
		}
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
	_, err := p.db.ExecContext(ctx, "vacuum analyze")
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
