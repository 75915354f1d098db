package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
)

// By hand: one goroutine that reads the log by a cursor and stores its position. It is about as fast as reading in order
// can be without a library, but gives no guarantees: it loses messages that commit late, cannot retry, and can run only
// once.

const (
	bareLoop  = "bare loop by cursor"
	bareBatch = 1000

	// bareSelectSQL reads all columns of a message. %s is the outbox's prefix.
	bareSelectSQL = `select seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
		content_type, headers, correlation_id, causation_id, payload, created_at
		from %slog where partition = $1 and seq > $2 order by seq limit $3`
	barePositionSQL = `update bare_position set seq = $2 where partition = $1`
)

// bareConn is a connection that stores positions without waiting for the disk, as a relay does.
func (b *bundle) bareConn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return nil, err
	}
	for _, st := range []string{
		"set synchronous_commit = off",
		"create table if not exists bare_position (partition int primary key, seq bigint not null)",
		"truncate bare_position",
		"insert into bare_position select p, 0 from generate_series(0, 7) as p",
	} {
		if _, err := conn.Exec(ctx, st); err != nil {
			return nil, err
		}
	}
	return conn, nil
}

// bareLoop passes on n messages, up to 1,000 at a time.
func (b *bundle) bareLoop(ctx context.Context, prefix string, n int, handle func([]postrider.Message) error) error {
	conn, err := b.bareConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	total := 0
	for partition := range handPartitions {
		position := int64(0)
		for {
			rows, err := conn.Query(ctx, fmt.Sprintf(bareSelectSQL, prefix), partition, position, bareBatch)
			if err != nil {
				return err
			}
			msgs := make([]postrider.Message, 0, bareBatch)
			var headers []byte
			for rows.Next() {
				msgs = append(msgs, postrider.Message{})
				m := &msgs[len(msgs)-1]
				if err := rows.Scan(&m.Sequence, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant, &m.Time, &m.SchemaVersion,
					&m.AggregateVersion, &m.ContentType, &headers, &m.CorrelationID, &m.CausationID, &m.Payload, &m.CreatedAt); err != nil {
					return err
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
			if len(msgs) == 0 {
				break
			}
			if err := handle(msgs); err != nil {
				return err
			}
			total += len(msgs)
			position = msgs[len(msgs)-1].Sequence
			if _, err := conn.Exec(ctx, barePositionSQL, partition, position); err != nil {
				return err
			}
		}
	}
	if total != n {
		return fmt.Errorf("the bare loop read %d messages, not %d", total, n)
	}
	return nil
}

// bareRead is bareLoop without decoding: the maximum of database and driver.
func (b *bundle) bareRead(ctx context.Context, prefix string, n int) error {
	conn, err := b.bareConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	total := 0
	for partition := range handPartitions {
		for position, last := int64(0), -1; total != last; {
			last = total
			rows, err := conn.Query(ctx, fmt.Sprintf(bareSelectSQL, prefix), partition, position, bareBatch)
			if err != nil {
				return err
			}
			for rows.Next() {
				total++
				position = bigEndian(rows.RawValues()[0])
			}
			if err := rows.Err(); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, barePositionSQL, partition, position); err != nil {
				return err
			}
		}
	}
	if total != n {
		return fmt.Errorf("the bare loop read %d messages, not %d", total, n)
	}
	return nil
}

// bigEndian reads a bigint in PostgreSQL's binary format.
func bigEndian(b []byte) (v int64) {
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	return v
}
