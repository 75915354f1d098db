package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// BatchStore publishes in a pgx.Batch, so that the business change and its messages go to the database in one round trip:
//
//	o, err := outbox.New(store.Batch(), outbox.Config{Source: "orders"})
//	...
//	batch := &pgx.Batch{}
//	batch.Queue("insert into orders ...")
//	_, err = o.Publish(ctx, batch, message)
//	err = pool.SendBatch(ctx, batch).Close()
//	o.Wake()
//
// A batch sent on a pool or connection is a transaction of its own; one sent on a pgx.Tx is part of that transaction. Publish
// only queues: database errors are returned with the results of the batch, and after an error nothing is written. A batch has no
// begin and commit of its own, so InTx fails.
type BatchStore struct{ *Store }

var _ store.Outbox[*pgx.Batch] = (*BatchStore)(nil)

// Batch returns an outbox for batches.
func (s *Store) Batch() *BatchStore { return &BatchStore{s} }

// Insert implements store.Outbox: it queues the inserts.
func (s *BatchStore) Insert(_ context.Context, batch *pgx.Batch, msgs []*postrider.Message) error {
	if batch == nil {
		return store.ErrNoTransaction
	}
	// Nothing is read from the database here, so the number may be a guess: if it is wrong, the statements compute the partition
	// themselves.
	inserts := s.insertsFor(int(cmp.Or(s.publishing.Load(), s.partitions.Load(), DefaultPartitions)))
	for chunk := range chunks(msgs) {
		sql, args, err := inserts.typed(chunk)
		if err != nil {
			return err
		}
		batch.Queue(sql, args...)
	}
	return nil
}

var errBatchInTx = errors.New("a batch has no beginning and end of its own: call Publish, send the batch, then Wake; " +
	"for InTx use an outbox on the Store itself")

// Begin implements store.Outbox; it fails.
func (*BatchStore) Begin(context.Context) (*pgx.Batch, error) { return nil, errBatchInTx }

// Commit implements store.Outbox; it fails.
func (*BatchStore) Commit(context.Context, *pgx.Batch) error { return errBatchInTx }

// Rollback implements store.Outbox; there is nothing to undo.
func (*BatchStore) Rollback(context.Context, *pgx.Batch) error { return nil }

// Published implements store.Outbox; it fails.
func (*BatchStore) Published(context.Context, *pgx.Batch) ([]*postrider.Message, error) {
	return nil, errBatchInTx
}

// Written implements store.Outbox; it fails.
func (*BatchStore) Written(context.Context, *pgx.Batch, []string) ([]string, error) {
	return nil, errBatchInTx
}
