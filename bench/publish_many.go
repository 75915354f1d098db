package main

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
)

const (
	manyPerTx   = 100
	handArrays  = "by hand, one insert from arrays"
	figureBytes = "bytes" // the log's size on disk with its indexes, per message
)

// publishManySuite writes messages a hundred at a time, like an import or a bulk change.
var publishManySuite = suite{
	name: "publish-many", title: "Publish 100 messages in a transaction, 1 writer", figure: figureRate, unit: "msg/s",
	also: append([]report.Column{{Figure: figureBytes, Title: "stored B/msg"}}, usual...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if err := b.handOutbox(ctx); err != nil {
			return nil, err
		}
		store, err := b.store(ctx, "ours_")
		if err != nil {
			return nil, err
		}
		o, err := newOutbox(store)
		if err != nil {
			return nil, err
		}
		entries := []entry{
			b.manyEntry(handArrays, report.Limit, "hand_log", b.insertArrays),
			b.manyEntry("by hand, an insert for each in a pgx.Batch", report.Limit, "hand_log", b.insertEach),
			b.manyEntry("by hand, COPY", report.Limit, "hand_log", b.copyRows),
			b.manyEntry("Postrider", report.Ours, "ours_log", func(ctx context.Context, from int) error {
				return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
					_, err := o.Publish(ctx, tx, manyMessages(from)...)
					return err
				})
			}),
		}
		entries[3].limit, entries[3].peer = handArrays, riverMany
		peers, err := b.manyPeers(ctx)
		return append(entries, peers...), err
	},
}

const riverMany = "River, InsertManyFastTx"

// manyEntry runs a way to write manyPerTx messages, starting with a number, and reads the resulting table size.
func (b *bundle) manyEntry(name string, role report.Role, table string, publish func(ctx context.Context, from int) error) entry {
	return entry{
		name: name, role: role,
		prepare: func(ctx context.Context) error {
			_, err := b.pool.Exec(ctx, "truncate "+table)
			return err
		},
		run: func(ctx context.Context) (report.Figures, error) {
			if err := parallel(ctx, 1, b.n/manyPerTx, func(ctx context.Context, i int) error { return publish(ctx, i*manyPerTx) }); err != nil {
				return nil, err
			}
			var bytes int64
			err := b.pool.QueryRow(ctx, `select coalesce(sum(pg_total_relation_size(relid)), pg_total_relation_size($1::text::regclass))::int8
				from pg_partition_tree($1::text::regclass) where isleaf`, table).Scan(&bytes)
			return report.Figures{figureBytes: float64(bytes) / float64(b.n)}, err
		},
	}
}

func manyMessages(from int) []*postrider.Message {
	msgs := make([]*postrider.Message, manyPerTx)
	for i := range msgs {
		msgs[i] = keys(manyKeys).message(from + i)
	}
	return msgs
}

func (b *bundle) insertArrays(ctx context.Context, from int) error {
	columns := make([][]any, 9)
	for _, m := range manyMessages(from) {
		for i, v := range handColumns(m) {
			columns[i] = append(columns[i], v)
		}
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		args := make([]any, len(columns))
		for i := range columns {
			args[i] = columns[i]
		}
		_, err := tx.Exec(ctx, `insert into hand_log (partition, id, topic, key, type, source, message_time, content_type, payload)
			select * from unnest($1::int2[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::text[], $9::bytea[])`, args...)
		return err
	})
}

func (b *bundle) insertEach(ctx context.Context, from int) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		all := &pgx.Batch{}
		for _, m := range manyMessages(from) {
			all.Queue(handInsertSQL, handColumns(m)...)
		}
		return tx.SendBatch(ctx, all).Close()
	})
}

func (b *bundle) copyRows(ctx context.Context, from int) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		var rows [][]any
		for _, m := range manyMessages(from) {
			rows = append(rows, handColumns(m))
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"hand_log"},
			[]string{"partition", "id", "topic", "key", "type", "source", "message_time", "content_type", "payload"}, pgx.CopyFromRows(rows))
		return err
	})
}

// manyPeers are River's and Watermill's ways to write many messages.
func (b *bundle) manyPeers(ctx context.Context) ([]entry, error) {
	r, err := newRiver(ctx, b)
	if err != nil {
		return nil, err
	}
	w, err := newWatermill(ctx, b, watermillQueue(100, 0))
	if err != nil {
		return nil, err
	}
	return []entry{
		b.manyEntry(riverMany, report.Peer, "river_job", func(ctx context.Context, from int) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				jobs := make([]river.InsertManyParams, manyPerTx)
				for i := range jobs {
					jobs[i].Args = riverJob{number: from + i}
				}
				_, err := r.insert.InsertManyFastTx(ctx, tx, jobs)
				return err
			})
		}),
		b.manyEntry("Watermill, queue schema", report.Peer, queueTable, func(ctx context.Context, _ int) error {
			msgs := make([]*message.Message, manyPerTx)
			for i := range msgs {
				msgs[i] = watermillMessage()
			}
			return inSQLTx(ctx, w.db, func(tx *sql.Tx) error { return w.publish(tx, msgs...) })
		}),
	}, nil
}
