package postgres

import (
	"context"
	"time"
)

// ownConn is a connection outside the pool, for heartbeats: they must not wait until a handler returns a connection. It is opened
// on demand, and closed after it has been idle for a while. On a *sql.DB, it is one of the db's.
type ownConn struct {
	pool pool
	turn chan struct{} // has space while nobody uses the connection
	conn poolConn      // nil while there is none
	idle *time.Timer
}

func newOwnConn(pool pool) *ownConn {
	return &ownConn{pool: pool, turn: make(chan struct{}, 1)}
}

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
		reused := a.conn != nil && !a.conn.Conn().IsClosed()
		if !reused && a.open(ctx) != nil {
			return f(a.pool)
		}
		err := f(a.conn.Conn())
		if err == nil || !reused || !a.conn.Conn().IsClosed() || ctx.Err() != nil {
			return err
		} // it was broken, or the server closed it
	}
}

func (a *ownConn) open(ctx context.Context) (err error) {
	if a.conn != nil {
		a.conn.Release()
	}
	a.conn, err = a.pool.reserve(ctx)
	return err
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
	a.conn.Release()
	a.conn = nil
}
