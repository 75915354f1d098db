package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The waits of a listener.
const (
	reconnectAfter    = 100 * time.Millisecond // doubles up to reconnectAfterMax
	reconnectAfterMax = 10 * time.Second
	aliveEvery        = 30 * time.Second // how long a connection is trusted that has received nothing
	aliveWithin       = 5 * time.Second
)

// lastSequenceSQL reads one row, which the server keeps in memory. A sequence is drawn before the commit of its transaction: if the first
// fetch comes too early, the next ones find the message.
const lastSequenceSQL = `select l.last_value + l.is_called::int4 from {log_seq_seq} l`

// Listen implements store.Listener: it receives notifications on a connection of its own, unless that leads to a pooler, and looks for
// sequences that were drawn without a notification.
func (s *Store) Listen(ctx context.Context) error {
	s.wake.Alone(ctx, func() {
		var receiving sync.WaitGroup
		defer receiving.Wait()
		if s.listens() {
			receiving.Go(func() { s.receiveAll(ctx) })
		}
		s.wake.Watch(ctx, func(ctx context.Context) (last int64, err error) {
			err = s.pool.QueryRow(ctx, s.sql.lastSequence).Scan(&last)
			return last, err
		})
	})
	return nil
}

// listens reports whether there is an address to listen to. A connection of a *sql.DB cannot be kept for that.
func (s *Store) listens() bool {
	_, own := s.pool.(pgxPool)
	return s.listenTo != nil || own && s.config.NotifyEvery > 0
}

// session opens a connection to listen on. It reports whether it leads to the server itself: behind a pooler, another process of the
// server answers than the one that the connection began with, and notifications would reach nobody.
func (s *Store) session(ctx context.Context) (conn poolConn, direct bool, err error) {
	if s.listenTo == nil {
		conn, err = s.pool.reserve(ctx)
	} else {
		var own *pgx.Conn
		own, err = pgx.ConnectConfig(ctx, s.listenTo.Copy())
		conn = ownPgxConn{own}
	}
	if err != nil {
		return nil, false, err
	}
	var pid uint32
	if err := conn.Conn().QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		conn.Release()
		return nil, false, err
	}
	return conn, pid == conn.Conn().PgConn().PID(), nil
}

var errPooler = errors.New("the connection leads to a pooler")

// receiveAll receives notifications until ctx ends, or a pooler is in the way.
func (s *Store) receiveAll(ctx context.Context) {
	failing, pause := false, reconnectAfter
	for ctx.Err() == nil {
		received, err := s.receive(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPooler):
			s.config.Logger.Warn("postrider: notifications of other processes do not pass through a pooler; polling finds their messages. Set " +
				"listen_url (ListenDSN) to the server itself, or turn notifications off")
			return
		case received:
			failing, pause = false, reconnectAfter
		}
		if !failing {
			s.config.Logger.Warn("postrider: listening for notifications failed and is tried again; polling goes on", "error", err)
		}
		failing = true
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectAfterMax)
	}
}

// receive receives notifications until the connection breaks, and reports whether it began to listen.
func (s *Store) receive(ctx context.Context) (listened bool, err error) {
	conn, direct, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	if !direct {
		return false, errPooler
	}
	on := conn.Conn()
	class, object := s.names.listening()
	if _, err := on.Exec(ctx, fmt.Sprintf("listen %s; select pg_catalog.pg_try_advisory_lock_shared(%d, %d)",
		pgx.Identifier{s.names.channel()}.Sanitize(), int32(class), int32(object))); err != nil {
		return false, err
	}
	s.listener.Store(on.PgConn().PID())
	defer s.listener.Store(0)
	// Find what was committed while nobody listened.
	s.wake.Wake()
	for {
		n, err := awaitNotification(ctx, on)
		if err != nil {
			return true, err
		}
		if s.notifier == nil || n.Payload != s.notifier.process {
			s.wake.Wake()
		}
	}
}

// awaitNotification makes sure from time to time that the server still answers: a connection to one that has gone can stay open for
// hours.
func awaitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, aliveEvery)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		if err == nil || !pgconn.Timeout(err) || ctx.Err() != nil {
			return n, err
		}
		answering, cancel := context.WithTimeout(ctx, aliveWithin)
		err = conn.Ping(answering)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("the server does not answer: %w", err)
		}
	}
}
