package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// limitedTx is a transaction that occupies one of the places, and a connection, until it ends. It can end without a round trip of its
// own, after a COMMIT that was sent with other statements.
type limitedTx struct {
	pgx.Tx
	conn  poolConn
	leave func()

	// A goroutine may outlive its handler. The commit with a settlement holds mu: after that, the connection has no transaction, and then
	// it belongs to others.
	mu    sync.Mutex
	calls int // in progress
	ended bool
	// shared says that somebody has the connection itself, and so needs no call of this transaction.
	shared bool
}

// enter begins a call.
func (t *limitedTx) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.calls++
	return nil
}

// exit ends a call. The last one returns the connection of a transaction that has ended.
func (t *limitedTx) exit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	if t.ended && t.calls == 0 {
		t.release()
	}
}

func (t *limitedTx) release() {
	t.conn.Release()
	t.leave()
}

// Exec implements pgx.Tx.
func (t *limitedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.exit()
	return t.Tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx. The rows keep the connection busy, so that nothing can be committed before they are closed.
func (t *limitedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	defer t.exit()
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
	defer t.exit()
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom implements pgx.Tx.
func (t *limitedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.exit()
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Prepare implements pgx.Tx.
func (t *limitedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.exit()
	return t.Tx.Prepare(ctx, name, sql)
}

// Begin implements pgx.Tx: a savepoint.
func (t *limitedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.exit()
	t.share()
	return t.Tx.Begin(ctx)
}

// LargeObjects implements pgx.Tx.
func (t *limitedTx) LargeObjects() pgx.LargeObjects {
	if err := t.enter(); err != nil {
		return closedTx(err).LargeObjects()
	}
	defer t.exit()
	t.share()
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
	t.share()
	return t.Tx.Conn()
}

func (t *limitedTx) share() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shared = true
}

// Commit implements pgx.Tx.
func (t *limitedTx) Commit(ctx context.Context) error { return t.endWith(ctx, pgx.Tx.Commit) }

// Rollback implements pgx.Tx.
func (t *limitedTx) Rollback(ctx context.Context) error { return t.endWith(ctx, pgx.Tx.Rollback) }

var errInUse = errors.New("a call of this transaction is still in progress; its connection was closed")

// endWith does not wait for calls in progress, which may wait for something else than the server, and pgx allows nothing beside them: closing
// the network connection ends them, and the transaction. The last one returns the connection to the pool, which drops it.
func (t *limitedTx) endWith(ctx context.Context, how func(pgx.Tx, context.Context) error) error {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return pgx.ErrTxClosed
	}
	t.ended = true
	inUse := t.calls > 0
	t.calls++
	t.mu.Unlock()
	defer t.exit()
	if inUse {
		return errors.Join(errInUse, t.conn.Conn().PgConn().Conn().Close())
	}
	return how(t.Tx, ctx)
}

// endAlone is endWith for a COMMIT that leaves nothing for pgx to end. It reports false, and does nothing, while others use the connection.
func (t *limitedTx) endAlone(commit func(pgx.Tx) error) (alone bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return true, pgx.ErrTxClosed
	case t.shared || t.calls > 0:
		return false, nil
	}
	if err = commit(t.Tx); err == nil {
		t.ended = true
		t.release()
	}
	return true, err
}
