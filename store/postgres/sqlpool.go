package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDriver: the connections of a *sql.DB are not pgx's, so that no relay, consumer or operator can work on it. Publishing and
// inbox.Inbox.Process work with every driver.
var ErrDriver = errors.New("the *sql.DB must use pgx's driver (sql.Open with \"pgx\", or stdlib.OpenDB) for relays, consumers and operators; " +
	"with another driver, give the Store a pool of its own: postgres.New, then Store.SQL")

// sqlPool is a *sql.DB with pgx's driver. Its connections are pgx's, taken one at a time.
type sqlPool struct{ db *sql.DB }

// sqlConn is a connection taken from a *sql.DB.
type sqlConn struct {
	held *sql.Conn
	conn *pgx.Conn
	end  sync.Once
}

func (p sqlPool) acquire(ctx context.Context) (poolConn, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p sqlPool) take(ctx context.Context) (*sqlConn, error) {
	held, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &sqlConn{held: held}
	err = held.Raw(func(own any) error {
		if wrapped, ok := own.(interface{ Raw() driver.Conn }); ok { // by a tracing driver
			own = wrapped.Raw()
		}
		of, ok := own.(interface{ Conn() *pgx.Conn })
		if !ok {
			return fmt.Errorf("%w (this one's connections are %T)", ErrDriver, own)
		}
		c.conn = of.Conn()
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return c, nil
}

// reserve takes a connection of the db, because a new one could lack what the application does to its connections.
func (p sqlPool) reserve(ctx context.Context) (poolConn, error) { return p.acquire(ctx) }

func (p sqlPool) handlers() int {
	n := p.db.Stats().MaxOpenConnections
	if n == 0 {
		return 0
	}
	return max(n-2, 1) // one for heartbeats, one for the rest
}

// Conn implements poolConn.
func (c *sqlConn) Conn() *pgx.Conn { return c.conn }

// Release implements poolConn. A connection whose state is unknown is closed.
func (c *sqlConn) Release() {
	c.end.Do(func() {
		_ = c.held.Raw(func(any) error { // under the lock of the db, which may still roll back a transaction whose context has ended
			if own := c.conn.PgConn(); c.conn.IsClosed() || own.IsBusy() || own.TxStatus() != 'I' {
				return driver.ErrBadConn // the db closes it
			}
			return nil
		})
		_ = c.held.Close() // it has been closed, or is free again
	})
}

// Exec implements pool.
func (p sqlPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := p.take(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer c.Release()
	return c.conn.Exec(ctx, sql, args...)
}

// Query implements pool.
func (p sqlPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c, err := p.take(ctx)
	if err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	rows, err := c.conn.Query(ctx, sql, args...)
	if err != nil {
		c.Release()
		return rows, err
	}
	return &sqlRows{rows, c}, nil
}

// QueryRow implements pool.
func (p sqlPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := p.Query(ctx, sql, args...) // rows.Err returns the error
	return pipelinedRow{rows}
}

// SendBatch implements pool.
func (p sqlPool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c, err := p.take(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	results := c.conn.SendBatch(ctx, b)
	out := &sqlResults{BatchResults: results, conn: c}
	if tx := results.Tx(); tx != nil {
		out.tx = &sqlPoolTx{tx, c}
	}
	return out
}

// Begin implements pool.
func (p sqlPool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx implements pool.
func (p sqlPool) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.conn.BeginTx(ctx, options)
	if err != nil {
		c.Release()
		return nil, err
	}
	return &sqlPoolTx{tx, c}, nil
}

// sqlRows returns its connection at its end.
type sqlRows struct {
	pgx.Rows
	conn *sqlConn
}

// Next implements pgx.Rows.
func (r *sqlRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *sqlRows) Close() {
	r.Rows.Close()
	r.conn.Release()
}

// sqlResults returns its connection at its end, unless it has begun a transaction.
type sqlResults struct {
	pgx.BatchResults
	conn *sqlConn
	tx   *sqlPoolTx
}

// Tx implements pgx.BatchResults.
func (r *sqlResults) Tx() pgx.Tx {
	if r.tx == nil {
		return nil
	}
	return r.tx
}

// Close implements pgx.BatchResults.
func (r *sqlResults) Close() error {
	err := r.BatchResults.Close()
	if r.tx == nil {
		r.conn.Release()
	}
	return err
}

// sqlPoolTx returns its connection at its end.
type sqlPoolTx struct {
	pgx.Tx
	conn *sqlConn
}

// Commit implements pgx.Tx.
func (t *sqlPoolTx) Commit(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *sqlPoolTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Rollback(ctx)
}
