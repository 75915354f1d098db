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

// line is a channel in confirm mode. What goes wrong with one message, in the server's eyes, ends the channel, with all that
// it has under way.
type line struct {
	conn *connection
	ch   *amqp.Channel
	lost chan struct{} // closed at the end of the channel
	// cause is why the channel ended. It may be read once lost is closed.
	cause   *amqp.Error
	watcher sync.WaitGroup

	returns  atomic.Int64 // in returned
	mu       sync.Mutex
	returned map[returnedMessage]int
}

// returnedMessage is what identifies a message that the server gave back: it repeats no delivery tag.
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
	// The client hands a return to one listener after the other, and only then reads the acknowledgement behind it. So when
	// the second listener has it, what the watcher did about the first is done.
	returns, noted := ch.NotifyReturn(make(chan amqp.Return)), ch.NotifyReturn(make(chan amqp.Return))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	l.watcher.Go(func() { l.watch(returns, noted, closed) })
	if err := ch.Confirm(false); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// watch takes note of returned messages until the channel ends.
func (l *line) watch(returns, noted <-chan amqp.Return, closed <-chan *amqp.Error) {
	defer close(l.lost)
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil // closed is about to be
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

// wasReturned says whether the server gave back a message that it has acknowledged since.
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

// isLost says whether the channel has ended.
func (l *line) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// exception is what the server ended the channel for, if it was because of one of the messages on it.
func (l *line) exception() (*amqp.Error, bool) {
	if !l.isLost() || !l.cause.Server || l.conn.IsClosed() {
		return nil, false
	}
	return l.cause, true
}

// close ends the channel.
func (l *line) close() {
	_ = l.ch.Close() // fails if the connection is gone, and the channel with it
	l.watcher.Wait()
}

// errUnanswered: no acknowledgement in time.
var errUnanswered = errors.New("no acknowledgement")

// errLost: the channel ended before the acknowledgement.
var errLost = errors.New("the connection broke before the acknowledgement; the queue may have the message")

// errNacked: the server did not take the message.
var errNacked = errors.New("RabbitMQ does not take the message: a queue is full (x-overflow reject-publish), or without its leader")

// errUnroutable: no queue takes the message.
var errUnroutable = errors.New("no queue takes the message")

// publish sends a message and waits for the acknowledgement. Its errors are the four above and that of ctx.
func (l *line) publish(ctx context.Context, to route, out amqp.Publishing, mandatory bool, wait time.Duration) error {
	confirmation, err := l.ch.PublishWithDeferredConfirm(to.exchange, to.key, mandatory, false, out)
	if err != nil { // the channel is closed, or the connection cannot be written to and is about to be
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
	case l.ch.IsClosed(): // then the client itself has said no for the server
		<-l.lost
		return errLost
	default:
		return errNacked
	}
}

// disregard takes a message that nobody waits for any more out of returned once it is acknowledged, or a later attempt would find
// it there and take it for its own. Should it be the later one's indeed, then a queue has this one. It ends with the channel at the
// latest.
func (l *line) disregard(m returnedMessage, confirmation *amqp.DeferredConfirmation) {
	<-confirmation.Done()
	if confirmation.Acked() {
		l.wasReturned(m)
	}
}
