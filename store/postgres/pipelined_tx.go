package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Exec implements pgx.Tx.
func (t *pipelinedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results, tx, err := t.piped(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if results == nil {
		return tx.Exec(ctx, sql, args...)
	}
	tag, err := results.Exec()
	return tag, t.done(cmp.Or(err, results.Close()))
}

// Query implements pgx.Tx.
func (t *pipelinedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, tx, err := t.piped(ctx, sql, args)
	if err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	if results == nil {
		return tx.Query(ctx, sql, args...)
	}
	answer, err := results.Query()
	rows := &pipelinedRows{Rows: answer, tx: t, results: results}
	if err != nil {
		rows.Close()
	}
	return rows, err
}

// QueryRow implements pgx.Tx.
func (t *pipelinedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...) // rows.Err returns the error
	return pipelinedRow{rows}
}

// CopyFrom implements pgx.Tx.
func (t *pipelinedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	tx, err := t.flushed(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, rows)
}

// SendBatch implements pgx.Tx.
func (t *pipelinedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	batch := t.leadToCommit() // b may contain it
	if batch.Len() == 0 {
		return t.tx.SendBatch(ctx, b)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, b.QueuedQueries...)
	results, err := t.send(ctx, batch)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &pipelinedResults{BatchResults: results, tx: t}
}

// pipelinedResults are the last results of a pipeline.
type pipelinedResults struct {
	pgx.BatchResults
	tx     *pipelinedTx
	closed bool
}

// Close implements pgx.BatchResults.
func (r *pipelinedResults) Close() error {
	err := r.BatchResults.Close()
	if r.closed {
		return err
	}
	r.closed = true
	return r.tx.done(err)
}

// Tx implements pgx.BatchResults: the batch that they are of began no transaction.
func (r *pipelinedResults) Tx() pgx.Tx { return nil }

// Prepare implements pgx.Tx.
func (t *pipelinedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.flushed(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Prepare(ctx, name, sql)
}

// stopWaiting sends everything at once from now on, since others get hold of the connection.
func (t *pipelinedTx) stopWaiting(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.flushed(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.direct = t.direct || err == nil
	return tx, err
}

// Begin implements pgx.Tx: a savepoint.
func (t *pipelinedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.stopWaiting(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Begin(ctx)
}

// LargeObjects implements pgx.Tx.
func (t *pipelinedTx) LargeObjects() pgx.LargeObjects {
	tx, err := t.stopWaiting(t.context)
	if err != nil {
		tx = closedTx(err)
	}
	return tx.LargeObjects()
}

// Conn implements pgx.Tx. If what waits cannot be sent, the transaction is aborted; if it was not even begun, Conn closes the
// connection, so that nothing is executed outside it.
func (t *pipelinedTx) Conn() *pgx.Conn {
	_, err := t.stopWaiting(t.context)
	if err == nil || errors.Is(err, pgx.ErrTxClosed) {
		return t.conn
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted = true
	if c := t.conn.PgConn(); c.TxStatus() == 'I' && !c.IsBusy() {
		_ = t.conn.Close(t.context) // err is the cause
	}
	return t.conn
}

// Commit implements pgx.Tx.
func (t *pipelinedTx) Commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return pgx.ErrTxClosed
	}
	err := t.commit(ctx)
	if err != nil {
		_ = t.rollback(context.WithoutCancel(ctx)) // err is the cause
	}
	t.end()
	return err
}

func (t *pipelinedTx) commit(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.aborted:
		return pgx.ErrTxCommitRollback
	case len(t.waiting) == 0 && t.tx == nil:
		return nil
	case len(t.waiting) == 0:
		return t.tx.Commit(ctx)
	}
	batch := t.leadToCommit()
	batch.Queue("commit")
	results, err := t.send(ctx, batch)
	if err != nil {
		return err
	}
	tag, err := results.Exec()
	if err = cmp.Or(err, results.Close()); err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback implements pgx.Tx.
func (t *pipelinedTx) Rollback(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return pgx.ErrTxClosed
	}
	err := t.rollback(ctx)
	t.end()
	return err
}

// rollbackTimeout limits a rollback whose caller's context has ended.
const rollbackTimeout = 10 * time.Second

// rollback does nothing if the server has no transaction, and closes a connection whose state is unknown. Savepoints and large objects go
// through pgx's transaction, so that one has to end, too: otherwise, a late statement would be executed on the connection of others.
func (t *pipelinedTx) rollback(ctx context.Context) error {
	if t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' && !t.direct {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	if t.direct {
		if err := t.tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) { // it has ended if its commit failed
			return err
		}
		return nil
	}
	_, err := t.conn.Exec(ctx, "rollback")
	if err != nil {
		_ = t.conn.Close(ctx) // err is the cause
	}
	return err
}

func (t *pipelinedTx) end() {
	t.closed, t.waiting = true, nil
	t.pooled.Release()
}

// close lets t be used no more, while its transaction goes on.
func (t *pipelinedTx) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.waiting = true, nil
}

// pipelinedRows are the last result of a pipeline.
type pipelinedRows struct {
	pgx.Rows
	tx      *pipelinedTx
	results pgx.BatchResults // nil if they are closed
	err     error
}

// Next implements pgx.Rows.
func (r *pipelinedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *pipelinedRows) Close() {
	if r.results == nil {
		return
	}
	r.Rows.Close()
	closed := r.results.Close()
	if r.err = cmp.Or(r.Rows.Err(), closed); !r.tx.intact() { // a failed Scan does not concern the server
		r.err = r.tx.done(r.err)
	}
	r.results = nil
}

// Err implements pgx.Rows.
func (r *pipelinedRows) Err() error { return cmp.Or(r.Rows.Err(), r.err) }

// pipelinedRow is the first of some rows.
type pipelinedRow struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r pipelinedRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
