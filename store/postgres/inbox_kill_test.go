package postgres_test

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/store"
)

// killable is a bundle whose transactions can be rolled back from outside while they are in use, as if their process had died. A
// pgx.Tx alone is for one goroutine at a time.
type killable struct{ *bundle }

func (k killable) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := k.bundle.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lockedTx{Tx: tx}, nil
}

func (k killable) BeginClaim(ctx context.Context, consumer string, msgs []store.ClaimRequest) (pgx.Tx, []store.ClaimResult, error) {
	tx, out, err := k.bundle.BeginClaim(ctx, consumer, msgs)
	if err != nil {
		return nil, nil, err
	}
	return &lockedTx{Tx: tx}, out, nil
}

type lockedTx struct {
	pgx.Tx
	mu sync.Mutex
}

func (tx *lockedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx *lockedTx) Commit(ctx context.Context) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.Tx.Commit(ctx)
}

func (tx *lockedTx) Rollback(ctx context.Context) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.Tx.Rollback(ctx)
}

func (tx *lockedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx.mu.Lock()
	rows, err := tx.Tx.Query(ctx, sql, args...)
	if err != nil {
		tx.mu.Unlock()
		return rows, err
	}
	return &lockedRows{Rows: rows, unlock: sync.OnceFunc(tx.mu.Unlock)}, nil
}

func (tx *lockedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx.mu.Lock()
	return &lockedResults{BatchResults: tx.Tx.SendBatch(ctx, b), unlock: sync.OnceFunc(tx.mu.Unlock)}
}

type lockedRows struct {
	pgx.Rows
	unlock func()
}

func (r *lockedRows) Close() {
	defer r.unlock()
	r.Rows.Close()
}

type lockedResults struct {
	pgx.BatchResults
	unlock func()
}

func (r *lockedResults) Close() error {
	defer r.unlock()
	return r.BatchResults.Close()
}
