package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
)

// By hand on SQLite, as on PostgreSQL.

const (
	sqliteOrderSQL  = "insert into orders (customer, total) values (?, ?)"
	sqliteInsertSQL = `insert into postrider_log (partition, id, topic, key, type, source, message_time, content_type, payload, created_at)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// sqliteColumns are the columns of a message, with times in microseconds as in the log.
func sqliteColumns(m *postrider.Message) []any {
	c := handColumns(m)
	now := time.Now().UnixMicro()
	c[6] = now
	return append(c, now)
}

// sqliteLoop is the bare loop on SQLite: it reads the same columns by cursor and stores the position in a row.
func sqliteLoop(ctx context.Context, db *sql.DB, n int) error {
	if _, err := db.ExecContext(ctx, "create table if not exists bare_position (partition integer primary key, seq integer not null)"); err != nil {
		return err
	}
	total := 0
	for partition := range handPartitions {
		for position, more := int64(0), true; more; {
			msgs, err := sqlitePage(ctx, db, partition, position)
			if err != nil {
				return err
			}
			if more = len(msgs) > 0; !more {
				break
			}
			total += len(msgs)
			position = msgs[len(msgs)-1].Sequence
			if _, err := db.ExecContext(ctx, "replace into bare_position (partition, seq) values (?, ?)", partition, position); err != nil {
				return err
			}
		}
	}
	if total != n {
		return fmt.Errorf("the bare loop read %d messages, not %d", total, n)
	}
	return nil
}

const sqliteSelectSQL = `select seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
	content_type, headers, correlation_id, causation_id, payload, created_at
	from postrider_log where partition = ? and seq > ? order by seq limit ?`

func sqlitePage(ctx context.Context, db *sql.DB, partition int, position int64) (_ []postrider.Message, err error) {
	rows, err := db.QueryContext(ctx, sqliteSelectSQL, partition, position, bareBatch)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	msgs := make([]postrider.Message, 0, bareBatch)
	for rows.Next() {
		msgs = append(msgs, postrider.Message{})
		m := &msgs[len(msgs)-1]
		var headers []byte
		var sent, created int64
		if err := rows.Scan(&m.Sequence, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant, &sent, &m.SchemaVersion,
			&m.AggregateVersion, &m.ContentType, &headers, &m.CorrelationID, &m.CausationID, &m.Payload, &created); err != nil {
			return nil, err
		}
		m.Time, m.CreatedAt = time.UnixMicro(sent), time.UnixMicro(created)
	}
	return msgs, rows.Err()
}
