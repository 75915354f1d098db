package rabbitmqbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

// proceeds returns nil until Close.
func (p *Publisher) proceeds() error {
	select {
	case <-p.closing:
		return p.unavailable(ErrClosed)
	default:
		return nil
	}
}

// deliver sends one message and returns its outcome.
func (p *Publisher) deliver(ctx context.Context, m *postrider.Message) error {
	if err := p.proceeds(); err != nil {
		return err
	}
	if size := m.Size(); size > p.cfg.MaxMessageBytes {
		return tooLarge(fmt.Errorf("%d bytes; the limit is %d: raise MaxMessageBytes, and the server's max_message_size if it is less",
			size, p.cfg.MaxMessageBytes))
	}
	l, err := p.keeper.line()
	if err != nil {
		return p.unavailable(err)
	}
	to := p.topology.route(m.Topic, m.Key)
	out, err := encode(m, to, l.conn.Config.FrameSize)
	if err != nil {
		return err
	}
	if l.isLost() || !p.keeper.trusts(to) {
		return p.deliverAlone(ctx, l.conn, to, out)
	}
	err = l.publish(ctx, to, out, !p.cfg.AllowUnroutable, p.cfg.PublishTimeout)
	if _, ok := l.exception(); ok && errors.Is(err, errLost) {
		return p.deliverAlone(ctx, l.conn, to, out)
	}
	return p.outcome(err, l, to)
}

// deliverAlone sends a message on its own channel, after declaring or checking its exchange. It is for messages for
// which the server might close the channel, and with it everything in flight there.
func (p *Publisher) deliverAlone(ctx context.Context, conn *connection, to route, out amqp.Publishing) error {
	select {
	case p.alone <- struct{}{}:
		defer func() { <-p.alone }()
	case <-ctx.Done():
		return fmt.Errorf("publish to RabbitMQ: %w", ctx.Err())
	}
	if err := p.proceeds(); err != nil {
		return err
	}
	if err := conn.answering(func() error { return p.topology.prepareFor(conn, to) }); err != nil {
		p.keeper.suspect(to)
		return err
	}
	l, err := openLine(conn)
	if err != nil {
		return p.unavailable(fmt.Errorf("open a channel: %w", err))
	}
	defer l.close()
	err = l.publish(ctx, to, out, !p.cfg.AllowUnroutable, p.cfg.PublishTimeout)
	if e, ok := l.exception(); ok && errors.Is(err, errLost) {
		p.keeper.suspect(to)
		return refused(e, to)
	}
	if err == nil || errors.Is(err, errUnroutable) || errors.Is(err, errNacked) { // the channel is still open
		p.keeper.trust(to)
	}
	return p.outcome(err, l, to)
}

// outcome converts the error of line.publish to the message's error.
func (p *Publisher) outcome(err error, l *line, to route) error {
	switch {
	case err == nil:
		p.answered.Store(int64(time.Since(p.began)))
		return nil
	case errors.Is(err, errUnroutable):
		p.answered.Store(int64(time.Since(p.began)))
		return fmt.Errorf("publish to RabbitMQ: %w: nothing is bound to exchange %q for routing key %q; bind a queue (rabbitmqadmin declare "+
			"binding source=… destination=QUEUE routing_key=…), or set AllowUnroutable to drop such messages", err, to.exchange, to.key)
	case errors.Is(err, errNacked):
		p.answered.Store(int64(time.Since(p.began)))
		return fmt.Errorf("publish to RabbitMQ exchange %q, routing key %q: %w; see: rabbitmq-diagnostics check_if_node_is_quorum_critical, "+
			"rabbitmqctl list_queues name messages state", to.exchange, to.key, err)
	case errors.Is(err, errLost):
		return p.unavailable(err)
	case errors.Is(err, errUnanswered):
		return p.unanswered(l, to)
	default: // the error of ctx
		return fmt.Errorf("publish to RabbitMQ: %w", err)
	}
}

// unanswered returns the error of a message that was not acknowledged in time.
func (p *Publisher) unanswered(l *line, to route) error {
	if reason := l.conn.blocked(); reason != "" {
		return p.unavailable(errBlocked(reason))
	}
	err := fmt.Errorf("publish to RabbitMQ: no acknowledgement from exchange %q, routing key %q, within %s; the queue may have the message, or "+
		"be without a majority of its servers: rabbitmq-queues quorum_status QUEUE", to.exchange, to.key, p.cfg.PublishTimeout)
	if time.Since(p.began)-time.Duration(p.answered.Load()) >= p.cfg.PublishTimeout {
		return postrider.Unavailable(err) // nothing was acknowledged in that time
	}
	return err
}

// refused returns the error of a message that made the server close a channel.
func refused(e *amqp.Error, to route) error {
	switch e.Code {
	case amqp.PreconditionFailed: // only the size of a message can cause this
		return tooLarge(fmt.Errorf("%w; raise the server's max_message_size, or lower MaxMessageBytes to it", e))
	case amqp.AccessRefused:
		return fmt.Errorf("publish to RabbitMQ: %w; let the user write to exchange %q, routing key %q: rabbitmqctl set_permissions, "+
			"set_topic_permissions", e, to.exchange, to.key)
	case amqp.NotFound:
		return fmt.Errorf("publish to RabbitMQ: %w; create the exchange, or let it be declared here (not CheckOnly)", e)
	default:
		return fmt.Errorf("publish to RabbitMQ exchange %q, routing key %q: %w", to.exchange, to.key, e)
	}
}

func errBlocked(reason string) error {
	return fmt.Errorf("RabbitMQ accepts no messages for the time being (%s); give it memory or disk space, or consume messages: "+
		"rabbitmq-diagnostics alarms", reason)
}
