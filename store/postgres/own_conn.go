package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// apart is a connection outside the pool, for heartbeats: they must not wait until a handler returns a connection. It is opened
// on demand, with the pool's configuration, and closed after it has been idle for a while.
type ownConn struct {
	pool *pgxpool.Pool
	turn chan struct{} // has space while nobody uses the connection
	conn *pgx.Conn     // nil while there is none
	idle *time.Timer
}

func newOwnConn(pool *pgxpool.Pool) *ownConn {
	return &ownConn{pool: pool, turn: make(chan struct{}, 1)}
}

// closeWithin limits how long closing the connection takes.
const closeWithin = time.Second

// turnWithin is how long a heartbeat waits for that of another relay, which may be waiting for a lock.
const turnWithin = time.Second

// run runs f, which may be repeated, on the connection. If the connection is in use, or cannot be opened, e.g. because the role
// has reached its limit, f runs on the pool. The connection stays open for keep afterwards.
func (a *ownConn) run(ctx context.Context, keep time.Duration, f func(on querier) error) error {
	timer := time.NewTimer(turnWithin)
	defer timer.Stop()
	select {
	case a.turn <- struct{}{}:
	case <-timer.C:
		return f(a.pool)
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.turn }()
	if a.idle != nil {
		a.idle.Stop()
	}
	defer func() { a.idle = time.AfterFunc(keep, a.closeIdle) }()
	for {
		reused := a.conn != nil && !a.conn.IsClosed()
		if !reused && a.open(ctx) != nil {
			return f(a.pool)
		}
		err := f(a.conn)
		if err == nil || !reused || !a.conn.IsClosed() || ctx.Err() != nil {
			return err
		} // it was broken, or the server closed it
	}
}

// open opens the connection as the pool does.
func (a *ownConn) open(ctx context.Context) error {
	config := a.pool.Config()
	a.conn = nil
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx) // err is the cause
			return err
		}
	}
	a.conn = conn
	return nil
}

// closeIdle closes the connection unless it is being used; run opens it again.
func (a *ownConn) closeIdle() {
	select {
	case a.turn <- struct{}{}:
		a.end()
	default:
	}
}

func (a *ownConn) close() {
	a.turn <- struct{}{}
	a.end()
}

func (a *ownConn) end() {
	defer func() { <-a.turn }()
	if a.idle != nil {
		a.idle.Stop()
	}
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = a.conn.Close(ctx) // the server notices by itself
	a.conn = nil
}
