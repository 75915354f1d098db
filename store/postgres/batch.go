package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

// BatchStore publishes in a pgx.Batch, so that the business change and its messages travel to the database together, in
// one round trip:
//
//	o, err := outbox.New(store.Batch(), outbox.Config{Source: "orders"})
//	...
//	batch := &pgx.Batch{}
//	batch.Queue("insert into orders ...")
//	_, err = o.Publish(ctx, batch, message)
//	err = pool.SendBatch(ctx, batch).Close()
//	o.Wake()
//
// A batch sent on a pool or connection is a transaction by itself; one sent on a pgx.Tx belongs to that. Publish only
// queues: what the database has to say comes with the results of the batch, and after an error there nothing is written.
// A batch has no beginning and end of its own, so InTx fails.
type BatchStore struct{ *Store }

var _ outbox.Store[*pgx.Batch] = (*BatchStore)(nil)

// Batch returns an outbox for batches.
func (s *Store) Batch() *BatchStore { return &BatchStore{s} }

// Nobody can look at the answer of an insert before the transaction ends with the batch, so when the number of partitions is
// not the one that the partition was computed for, these statements compute it by themselves.
const (
	queueManySQL = insertColumnsSQL + `
select case when {partitions}() = $19::int4 then partition
	else (('x' || substr(md5(convert_to(coalesce(nullif(key, ''), id), 'UTF8')), 1, 8))::bit(32)::int8 % {partitions}())::int2 end, ` +
		fromArraysSQL + arraysSQL + `) as m (` + arrayNamesSQL + `)`

	// queueOneSQL is queueManySQL for one message, queuePlainSQL for a plain one, the common case.
	queueOneSQL = insertColumnsSQL + `
select case when {partitions}() = $19::int4` + onePartitionSQL + oneSQL
	queuePlainSQL = plainColumnsSQL + `
select case when {partitions}() = $11::int4` + onePartitionSQL + plainSQL
	onePartitionSQL = ` then $1::int2
	else (('x' || substr(md5(convert_to(coalesce(nullif($4::text, ''), $2::text), 'UTF8')), 1, 8))::bit(32)::int8 % {partitions}())::int2 end, `
)

// Insert implements outbox.Store: it queues the inserts.
func (s *BatchStore) Insert(_ context.Context, batch *pgx.Batch, msgs []*postrider.Message) error {
	if batch == nil {
		return outbox.ErrNoTransaction
	}
	partitions := cmp.Or(s.publishing.Load(), s.partitions.Load(), DefaultPartitions)
	for chunk := range chunks(msgs) {
		c, err := newColumns(chunk, int(partitions))
		if err != nil {
			return err
		}
		switch {
		case c.plain:
			batch.Queue(s.sql.queuePlain, append(c.firstPlain(), partitions)...)
		case len(chunk) == 1:
			batch.Queue(s.sql.queueOne, append(c.first(), partitions)...)
		default:
			batch.Queue(s.sql.queueMany, append(c.arrays(), partitions)...)
		}
	}
	return nil
}

var errBatchInTx = errors.New("a batch has no beginning and end of its own: call Publish, send the batch, then Wake; " +
	"for InTx use an outbox on the Store itself")

// Begin implements outbox.Store; it fails.
func (*BatchStore) Begin(context.Context) (*pgx.Batch, error) { return nil, errBatchInTx }

// Commit implements outbox.Store; it fails.
func (*BatchStore) Commit(context.Context, *pgx.Batch) error { return errBatchInTx }

// Rollback implements outbox.Store; there is nothing to undo.
func (*BatchStore) Rollback(context.Context, *pgx.Batch) error { return nil }

// Written implements outbox.Store; it fails.
func (*BatchStore) Written(context.Context, *pgx.Batch, []string) ([]string, error) {
	return nil, errBatchInTx
}
