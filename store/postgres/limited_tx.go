package postgres

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// limitedTx is a transaction that occupies one of the places, and a connection, until it ends. It can end without a round trip of its
// own, after a COMMIT that was sent with other statements.
type limitedTx struct {
	pgx.Tx
	conn  poolConn
	leave func()

	// A goroutine may outlive its handler. Calls hold mu for reading, and the commit with a settlement for writing: after that, the
	// connection has no transaction, and then it belongs to others.
	mu    sync.RWMutex
	ended bool
	// shared says that somebody has the connection itself, and so needs no call of this transaction.
	shared atomic.Bool
}

// enter begins a call, which ends with mu.RUnlock.
func (t *limitedTx) enter() error {
	t.mu.RLock()
	if !t.ended {
		return nil
	}
	t.mu.RUnlock()
	return pgx.ErrTxClosed
}

// Exec implements pgx.Tx.
func (t *limitedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.mu.RUnlock()
	return t.Tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx. The rows keep the connection busy, so that nothing can be committed before they are closed.
func (t *limitedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	defer t.mu.RUnlock()
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *limitedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...) // rows.Err returns the error
	return pipelinedRow{rows}
}

// SendBatch implements pgx.Tx.
func (t *limitedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.mu.RUnlock()
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom implements pgx.Tx.
func (t *limitedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.mu.RUnlock()
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Prepare implements pgx.Tx.
func (t *limitedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.mu.RUnlock()
	return t.Tx.Prepare(ctx, name, sql)
}

// Begin implements pgx.Tx: a savepoint.
func (t *limitedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.mu.RUnlock()
	t.shared.Store(true)
	return t.Tx.Begin(ctx)
}

// LargeObjects implements pgx.Tx.
func (t *limitedTx) LargeObjects() pgx.LargeObjects {
	if err := t.enter(); err != nil {
		return closedTx(err).LargeObjects()
	}
	defer t.mu.RUnlock()
	t.shared.Store(true)
	return t.Tx.LargeObjects()
}

// closedTx is a transaction whose methods fail.
func closedTx(reason error) pgx.Tx {
	never := &pgx.Batch{}
	never.BeginTx(readCommitted)
	return pgx.FailedBatchResults(never, reason).Tx()
}

// Conn implements pgx.Tx.
func (t *limitedTx) Conn() *pgx.Conn {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.shared.Store(true)
	return t.Tx.Conn()
}

// Commit implements pgx.Tx.
func (t *limitedTx) Commit(ctx context.Context) error { return t.endWith(ctx, pgx.Tx.Commit) }

// Rollback implements pgx.Tx.
func (t *limitedTx) Rollback(ctx context.Context) error { return t.endWith(ctx, pgx.Tx.Rollback) }

// endWith does not wait for calls in progress: pgx then closes the connection, which ends them.
func (t *limitedTx) endWith(ctx context.Context, how func(pgx.Tx, context.Context) error) error {
	if err := t.enter(); err != nil {
		return err
	}
	err := how(t.Tx, ctx)
	t.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	return err
}

// end returns the connection. The caller holds mu for writing.
func (t *limitedTx) end() {
	if t.ended {
		return
	}
	t.ended = true
	t.conn.Release()
	t.leave()
}
