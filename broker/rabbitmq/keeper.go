package rabbitmqbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/outage"
)

// keeper maintains a connection and a line on it, and replaces them when they are lost.
type keeper struct {
	dialer   *dialer
	topology topology
	life     context.Context
	end      context.CancelFunc
	done     sync.WaitGroup

	mu      sync.Mutex
	current *line
	failure error // why current is lost or could not be replaced
	// trusted are exchanges that are known to accept messages; suspects are routes for which the server closed a
	// channel. Messages to suspects and, with perTopic, to exchanges that are not trusted are sent alone.
	trusted  map[string]bool
	suspects map[route]bool
}

// maxRoutes bounds both trusted and suspects; a full map is cleared.
const maxRoutes = 10_000

// leaveTimeout bounds closing a connection.
const leaveTimeout = 3 * time.Second

// errNoConnection: there is currently no connection.
var errNoConnection = errors.New("no connection to RabbitMQ; it is made again as soon as a server can be reached")

// keep connects, prepares the topology and opens the first line.
func keep(ctx context.Context, d *dialer, t topology) (*keeper, error) {
	k := &keeper{dialer: d, topology: t, trusted: make(map[string]bool), suspects: make(map[route]bool)}
	k.life, k.end = context.WithCancel(context.Background())
	l, err := k.open(ctx)
	if err != nil {
		k.close()
		return nil, err
	}
	k.use(l)
	k.done.Go(func() { k.run(l) })
	return k, nil
}

// open connects and opens a line. It retries until it succeeds, ctx ends, or a server rejects the connection.
func (k *keeper) open(ctx context.Context) (*line, error) {
	var start outage.Start
	for attempts := 1; ; attempts++ {
		conn, err := k.dialer.attempt(ctx)
		var l *line
		if err == nil {
			l, err = k.openOn(conn)
		}
		if err == nil || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			return l, err
		}
		start.Failed(k.dialer.cfg.Logger, "RabbitMQ", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rabbitmq: stopped after %d attempts: %w, the last: %w", attempts, ctx.Err(), err)
		case <-time.After(reconnectDelay(attempts)):
		}
	}
}

// openOn prepares the topology on a new connection and opens a line. It closes the connection after an error.
func (k *keeper) openOn(conn *connection) (*line, error) {
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	k.done.Go(func() { conn.watchAlarm(blocks, k.dialer.cfg.Logger) })
	l, err := k.openLine(conn)
	if err != nil {
		conn.close(leaveTimeout)
	}
	return l, err
}

// openLine prepares the topology and opens a line.
func (k *keeper) openLine(conn *connection) (*line, error) {
	var l *line
	err := conn.answering(func() (err error) {
		if err = k.topology.prepare(conn); err != nil {
			return err
		}
		if l, err = openLine(conn); err != nil {
			return postrider.Unavailable(fmt.Errorf("rabbitmq: open a channel: %w", err))
		}
		return nil
	})
	return l, err
}

// run replaces the line whenever it is lost.
func (k *keeper) run(l *line) {
	for l != nil {
		select {
		case <-k.life.Done():
			l.conn.close(leaveTimeout)
			l.watcher.Wait()
			return
		case <-l.lost:
			l = k.renew(l)
		}
	}
}

// renew opens another line, on the same connection if it is still open. It returns nil when the keeper is closed.
func (k *keeper) renew(old *line) *line {
	log := k.dialer.cfg.Logger
	old.watcher.Wait()
	log.Warn("RabbitMQ connection or channel lost", "error", old.cause)
	k.setFailure(old.cause)
	for failures := 1; ; failures++ {
		l, err := k.reopen(old.conn)
		if err == nil {
			k.use(l)
			log.Info("RabbitMQ connection or channel made again", "server", l.conn.raw.RemoteAddr())
			return l
		}
		k.setFailure(err)
		if failures == 1 {
			log.Warn("RabbitMQ cannot be used and is tried again", "error", err)
		}
		select {
		case <-k.life.Done():
			return nil
		case <-time.After(reconnectDelay(failures)):
		}
	}
}

// reopen opens a line on a connection, or on a new one if it is closed.
func (k *keeper) reopen(conn *connection) (*line, error) {
	if !conn.IsClosed() {
		l, err := k.openLine(conn)
		if err != nil {
			conn.close(leaveTimeout)
		}
		return l, err
	}
	conn, err := k.dialer.attempt(k.life)
	if err != nil {
		return nil, err
	}
	return k.openOn(conn)
}

func (k *keeper) use(l *line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.failure = l, nil
}

func (k *keeper) setFailure(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

// line returns the line to publish on. The line may be lost, but its connection is not known to be closed. The error
// says why there is none.
func (k *keeper) line() (*line, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.current.conn.IsClosed():
		return nil, fmt.Errorf("%w; it was lost, or could not be made, because: %w", errNoConnection, cmp.Or(k.failure, error(amqp.ErrClosed)))
	case k.current.conn.blocked() != "":
		return nil, errBlocked(k.current.conn.blocked())
	}
	return k.current, nil
}

// trusts reports whether messages of a route may be sent together with others.
func (k *keeper) trusts(to route) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return (!k.topology.perTopic || k.trusted[to.exchange]) && !k.suspects[to]
}

// trust records that a message of a route was accepted.
func (k *keeper) trust(to route) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.suspects, to)
	if len(k.trusted) >= maxRoutes {
		clear(k.trusted)
	}
	k.trusted[to.exchange] = true
}

// suspect records that the server closed a channel because of a message.
func (k *keeper) suspect(to route) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.trusted, to.exchange)
	if len(k.suspects) >= maxRoutes {
		clear(k.suspects)
	}
	k.suspects[to] = true
}

// close closes the connection and waits until all goroutines have ended.
func (k *keeper) close() {
	k.end()
	k.done.Wait()
}
