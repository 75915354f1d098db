package rabbitmqbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/postrider/postrider"
)

// subscription is one process that reads a queue. It has a connection and a reader on it. If either is lost, the next
// Receive replaces it.
type subscription struct {
	s      *Subscriber
	dialer dialer
	life   context.Context // ends with Close
	end    context.CancelFunc

	mu      sync.Mutex // held while the following are created or closed
	conn    *connection
	current *reader
}

var _ postrider.Subscription = (*subscription)(nil)

func newSubscription(s *Subscriber) *subscription {
	sub := &subscription{s: s, dialer: *s.dialer}
	sub.life, sub.end = context.WithCancel(context.Background())
	return sub
}

// Receive implements postrider.Subscription.
func (s *subscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	for {
		r, err := s.reader(ctx)
		switch {
		case s.life.Err() != nil:
			return nil, postrider.ErrSubscriptionClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable:
			return nil, postrider.Unavailable(err) // it worked before, and may work again
		case err != nil:
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-s.life.Done():
		case <-r.lost:
		case first, ok := <-r.deliveries:
			if !ok {
				r.lose(errEnded)
				continue
			}
			return r.gather(first, limit), nil
		}
	}
}

// reader returns the reader, and creates it if there is none or it is lost.
func (s *subscription) reader(ctx context.Context) (*reader, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.current != nil {
		if !s.current.isLost() {
			return s.current, nil
		}
		s.s.cfg.Logger.Warn("RabbitMQ queue is read again", "queue", s.s.cfg.Queue, "reason", s.current.cause)
		_ = s.current.end() // whatever the reason
		s.current = nil
	}
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := s.dialer.attempt(ctx)
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	return s.read(ctx)
}

// read prepares the topology and creates the reader. It needs s.mu. If ctx ends, it closes the connection.
func (s *subscription) read(ctx context.Context) (*reader, error) {
	defer context.AfterFunc(ctx, s.conn.abandon)()
	err := s.conn.answering(func() error {
		if err := s.s.cfg.topology().prepare(s.conn); err != nil {
			return err
		}
		r, err := newReader(s.conn, s.s.cfg)
		if err == nil {
			s.current = r
		}
		return err
	})
	return s.current, err
}

// Close implements postrider.Subscription. The server requeues unsettled messages immediately.
func (s *subscription) Close(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	defer context.AfterFunc(ctx, s.conn.abandon)()
	var err error
	if s.current != nil {
		s.current.lose(postrider.ErrSubscriptionClosed)
		err = s.current.end()
	}
	s.conn.close(leaveTimeout)
	s.conn, s.current = nil, nil
	if err != nil {
		return postrider.Unavailable(fmt.Errorf("leave RabbitMQ queue %s: %w; what is not settled is redelivered once the server notices",
			s.s.cfg.Queue, errors.Join(ctx.Err(), err)))
	}
	return nil
}
