package rabbitmqbroker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// line is a channel in confirm mode. If the server rejects one message with a channel error, the channel ends, with all
// messages in flight on it.
type line struct {
	conn *connection
	ch   *amqp.Channel
	lost chan struct{} // closed when the channel ends
	// cause is why the channel ended. It may be read after lost is closed.
	cause   *amqp.Error
	watcher sync.WaitGroup

	returns  atomic.Int64 // number of entries in returned
	mu       sync.Mutex
	returned map[returnedMessage]int
}

// returnedMessage identifies a returned message: returns do not contain the delivery tag.
type returnedMessage struct {
	id string
	to route
}

func openLine(conn *connection) (*line, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	l := &line{conn: conn, ch: ch, lost: make(chan struct{}), returned: make(map[returnedMessage]int)}
	// The client passes a return to each listener in turn before it reads the acknowledgement that follows. So when the
	// second listener receives the return, the watcher has recorded it.
	returns, noted := ch.NotifyReturn(make(chan amqp.Return)), ch.NotifyReturn(make(chan amqp.Return))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	l.watcher.Go(func() { l.watch(returns, noted, closed) })
	if err := ch.Confirm(false); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// watch records returned messages until the channel ends.
func (l *line) watch(returns, noted <-chan amqp.Return, closed <-chan *amqp.Error) {
	defer close(l.lost)
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil // closed follows
				continue
			}
			l.mu.Lock()
			l.returned[returnedMessage{r.MessageId, route{r.Exchange, r.RoutingKey}}]++
			l.mu.Unlock()
			l.returns.Add(1)
			<-noted
		case cause := <-closed:
			l.cause = cmp.Or(cause, amqp.ErrClosed)
			return
		}
	}
}

// wasReturned reports whether the server returned an acknowledged message, and removes the record.
func (l *line) wasReturned(m returnedMessage) bool {
	if l.returns.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.returned[m]
	if n == 0 {
		return false
	}
	if n--; n == 0 {
		delete(l.returned, m)
	} else {
		l.returned[m] = n
	}
	l.returns.Add(-1)
	return true
}

// isLost reports whether the channel has ended.
func (l *line) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// exception returns the server's channel error, if one of the messages on the channel caused it.
func (l *line) exception() (*amqp.Error, bool) {
	if !l.isLost() || !l.cause.Server || l.conn.IsClosed() {
		return nil, false
	}
	return l.cause, true
}

// close closes the channel.
func (l *line) close() {
	_ = l.ch.Close() // fails if the connection is gone
	l.watcher.Wait()
}

// errUnanswered: no acknowledgement in time.
var errUnanswered = errors.New("no acknowledgement")

// errLost: the channel ended before the acknowledgement.
var errLost = errors.New("the connection broke before the acknowledgement; the queue may have the message")

// errNacked: the server rejected the message.
var errNacked = errors.New("RabbitMQ does not take the message: a queue is full (x-overflow reject-publish), or without its leader")

// errUnroutable: no queue takes the message.
var errUnroutable = errors.New("no queue takes the message")

// publish sends a message and waits for the acknowledgement. It returns one of the four errors above or the error of
// ctx.
func (l *line) publish(ctx context.Context, to route, out amqp.Publishing, mandatory bool, wait time.Duration) error {
	confirmation, err := l.ch.PublishWithDeferredConfirm(to.exchange, to.key, mandatory, false, out)
	if err != nil { // the channel is closed, or the connection cannot be written to and will be closed
		<-l.lost
		return errLost
	}
	sent := returnedMessage{out.MessageId, to}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-confirmation.Done():
	case <-ctx.Done():
		go l.disregard(sent, confirmation)
		return ctx.Err()
	case <-timer.C:
		go l.disregard(sent, confirmation)
		return errUnanswered
	}
	switch {
	case confirmation.Acked():
		if l.wasReturned(sent) {
			return errUnroutable
		}
		return nil
	case l.ch.IsClosed(): // the client itself has nacked it
		<-l.lost
		return errLost
	default:
		return errNacked
	}
}

// disregard waits for the acknowledgement of an abandoned message and removes the message from returned. Otherwise a
// later attempt would take the return for its own. If the return did belong to the later attempt, then a queue has this
// one. disregard returns when the channel ends, at the latest.
func (l *line) disregard(m returnedMessage, confirmation *amqp.DeferredConfirmation) {
	<-confirmation.Done()
	if confirmation.Acked() {
		l.wasReturned(m)
	}
}
