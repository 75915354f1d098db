package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
)

// By hand: the statements that one writes without a library, into a table with the columns and indexes of the outbox's
// log, including an ID and a partition, since readers of the table need both.

const (
	handStatements = "by hand, separate statements"
	handBatch      = "by hand, one pgx.Batch"

	handPrefix    = "hand_"
	handInsertSQL = `insert into hand_log (partition, id, topic, key, type, source, message_time, content_type, payload)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	handPartitions = 8
)

// handOutbox creates the table.
func (b *bundle) handOutbox(ctx context.Context) error {
	_, err := b.store(ctx, handPrefix)
	return err
}

func handColumns(m *postrider.Message) []any {
	id := postrider.NewID()
	return []any{postrider.PartitionOf(m.Key, id, handPartitions), id, m.Type, m.Key, m.Type, source, time.Now(), "application/json", m.Payload}
}

// orderAlone writes no message: the cost of the business change alone.
func (b *bundle) orderAlone(ctx context.Context, i int) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertOrderSQL, customer, i)
		return err
	})
}

// inStatements takes four round trips: begin, order, message, commit.
func (b *bundle) inStatements(ctx context.Context, i int) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrderSQL, customer, i); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, handInsertSQL, handColumns(keys(manyKeys).message(i))...)
		return err
	})
}

// inBatch takes one round trip.
func (b *bundle) inBatch(ctx context.Context, i int) error {
	all := &pgx.Batch{}
	all.Queue(insertOrderSQL, customer, i)
	all.Queue(handInsertSQL, handColumns(keys(manyKeys).message(i))...)
	return b.pool.SendBatch(ctx, all).Close()
}
