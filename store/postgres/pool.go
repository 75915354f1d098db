package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pool is where a Store gets its connections: a pgxpool.Pool, or a *sql.DB.
type pool interface {
	querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	acquire(ctx context.Context) (poolConn, error)
	// reserve returns a connection for heartbeats, which must not wait until a handler returns one.
	reserve(ctx context.Context) (poolConn, error)
	// handlers is how many connections the transactions of handlers may take, so that one is left for everything else; 0: any number.
	handlers() int
}

// poolConn is a connection that was taken from a pool.
type poolConn interface {
	Conn() *pgx.Conn
	Release()
}

// pgxPool is a pgxpool.Pool.
type pgxPool struct{ *pgxpool.Pool }

func (p pgxPool) acquire(ctx context.Context) (poolConn, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p pgxPool) handlers() int { return int(max(p.Config().MaxConns-1, 1)) }

// reserve opens a connection outside the pool, as the pool does.
func (p pgxPool) reserve(ctx context.Context) (poolConn, error) {
	config := p.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx) // err is the cause
			return nil, err
		}
	}
	return ownPgxConn{conn}, nil
}

// ownPgxConn is a connection that belongs to no pool.
type ownPgxConn struct{ conn *pgx.Conn }

func (c ownPgxConn) Conn() *pgx.Conn { return c.conn }

// closeWithin limits how long closing the connection takes.
const closeWithin = time.Second

func (c ownPgxConn) Release() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = c.conn.Close(ctx) // the server notices by itself
}
