package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// SQLTxStore is an SQLStore whose transactions can commit together with a settlement, for relay.HandleTx, engines of sagas and
// consumers of logs. Its transactions end by Commit, Rollback or CommitSettled, as Postrider ends them: one that its caller begins and
// ends otherwise keeps its connection.
type SQLTxStore struct {
	*SQLStore
	conns sync.Map // of *sql.Tx to the *sqlConn on which it runs
}

var (
	_ store.TxSettler[*sql.Tx] = (*SQLTxStore)(nil)
	_ store.TxLimiter[*sql.Tx] = (*SQLTxStore)(nil)
)

// SQLTx is SQL for a db with pgx's driver. Errors: ErrDriver; those of connecting.
func (s *Store) SQLTx(ctx context.Context, db *sql.DB) (*SQLTxStore, error) {
	c, err := sqlPool{db}.take(ctx)
	if err != nil {
		return nil, translate("connect", err)
	}
	c.Release()
	return &SQLTxStore{SQLStore: s.SQL(db)}, nil
}

// Begin implements store.TxSettler. The transaction is READ COMMITTED.
func (s *SQLTxStore) Begin(ctx context.Context) (*sql.Tx, error) { return s.BeginLimited(ctx, 0) }

// BeginLimited implements store.TxLimiter.
func (s *SQLTxStore) BeginLimited(ctx context.Context, atMost time.Duration) (*sql.Tx, error) {
	c, err := sqlPool{s.db}.take(ctx)
	if err != nil {
		return nil, translate("begin", err)
	}
	tx, err := c.held.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		c.Release()
		return nil, translate("begin", err)
	}
	s.conns.Store(tx, c)
	if limit := s.idleSQL(atMost); limit != "" {
		if _, err := tx.ExecContext(ctx, limit); err != nil {
			return nil, errors.Join(translate("begin", err), s.Rollback(ctx, tx))
		}
	}
	return tx, nil
}

// Commit implements store.Outbox and store.Transactor. Errors: store.ErrNoTransaction.
func (s *SQLTxStore) Commit(ctx context.Context, tx *sql.Tx) error {
	defer s.release(tx)
	return s.SQLStore.Commit(ctx, tx)
}

// Rollback implements store.TxSettler.
func (s *SQLTxStore) Rollback(ctx context.Context, tx *sql.Tx) error {
	defer s.release(tx)
	return s.SQLStore.Rollback(ctx, tx)
}

// release returns the connection of a transaction that has ended.
func (s *SQLTxStore) release(tx *sql.Tx) {
	if c, ok := s.conns.LoadAndDelete(tx); ok {
		c.(*sqlConn).Release()
	}
}

// CommitSettled implements store.TxSettler, as the Store does.
func (s *SQLTxStore) CommitSettled(ctx context.Context, tx *sql.Tx, name string, st store.Settlement) (released []string, err error) {
	c, ok := s.conns.Load(tx)
	if tx == nil || !ok {
		return nil, store.ErrNoTransaction
	}
	defer func() { _ = s.Rollback(context.WithoutCancel(ctx), tx) }() // in every case, as in Store.CommitSettled
	var settleErr error
	err = c.(*sqlConn).held.Raw(func(any) error {
		released, settleErr = s.settleIn(ctx, c.(*sqlConn).conn, name, st, commitAndBegin...)
		return nil // the connection stays in use
	})
	return released, errors.Join(settleErr, translate("commit with a settlement for relay "+name, err))
}

// batcher sends statements in one round trip.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}
