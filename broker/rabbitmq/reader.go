package rabbitmqbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

var (
	// errEnded: a reader's channel has ended; the reason is not known yet.
	errEnded = errors.New("the channel has ended")
	// errCancelled: the server has canceled the consumer.
	errCancelled = errors.New("the queue was deleted, or has another leader")
	// errAgain: a message of an ordered queue is redelivered, with all after it.
	errAgain = errors.New("a message was returned to the queue, and all after it with it")
	// errNoExtension is the error of Extend.
	errNoExtension = errors.New("RabbitMQ gives no more time for a settlement; raise its consumer_timeout, and AckWait with it")
)

// reader is an AMQP consumer on its own channel. When the reader is lost, all its unsettled deliveries are lost at the
// same moment.
type reader struct {
	cfg        SubscriberConfig
	conn       *connection
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	watcher    sync.WaitGroup
	// end closes the channel of a lost reader, so that the server requeues unsettled messages in order. It returns an
	// error if the server did not confirm that it has processed all settlements.
	end func() error

	settled  atomic.Bool   // at least one delivery was settled
	settling sync.RWMutex  // read-locked for a settlement, locked to lose the reader
	lost     chan struct{} // closed when everything is lost
	cause    error         // why it was lost; may be read after lost is closed
}

func newReader(conn *connection, cfg SubscriberConfig) (*reader, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("read RabbitMQ queue %s: open a channel: %w", cfg.Queue, err))
	}
	r := &reader{cfg: cfg, conn: conn, ch: ch, lost: make(chan struct{})}
	r.end = sync.OnceValue(r.closeChannel)
	closed, cancelled := ch.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyCancel(make(chan string, 1))
	r.watcher.Go(func() { r.watch(closed, cancelled) })
	if err = ch.Qos(cfg.Prefetch, 0, false); err == nil {
		r.deliveries, err = ch.Consume(cfg.Queue, cfg.Name, false, false, false, false, nil)
	}
	if err != nil {
		r.lose(errEnded)
		_ = r.end() // nothing was settled
		return nil, describe(err, "read queue "+cfg.Queue, map[int]string{
			amqp.AccessRefused: "let the user read the queue (rabbitmqctl set_permissions), and see that nobody has it exclusively",
			amqp.NotFound:      "create the queue, or let it be declared here (not CheckOnly)",
		})
	}
	return r, nil
}

// watch loses the reader when the channel ends or the server cancels the consumer.
func (r *reader) watch(closed <-chan *amqp.Error, cancelled <-chan string) {
	for {
		select {
		case e := <-closed:
			if e != nil {
				r.lose(e)
			} else {
				r.lose(errEnded)
			}
			return
		case _, ok := <-cancelled:
			if ok {
				r.lose(errCancelled)
			}
			cancelled = nil
		}
	}
}

// lose revokes all unsettled deliveries. Settlements that have begun complete first.
func (r *reader) lose(cause error) {
	r.settling.Lock()
	defer r.settling.Unlock()
	if !r.isLost() {
		r.cause = cause
		close(r.lost)
	}
}

func (r *reader) isLost() bool {
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

func (r *reader) closeChannel() error {
	var err error
	if !r.ch.IsClosed() {
		err = r.conn.answering(func() error { return cmp.Or(r.flush(), r.ch.Close()) })
	}
	r.watcher.Wait()
	return err
}

// flush makes the queue process all settlements. While 32 of them are in flight to a quorum queue, RabbitMQ holds back
// further ones, and discards those if the channel ends. RabbitMQ answers a change of the queue's consumers only after
// the queue has processed everything before it, and then sends the settlements that it held back.
func (r *reader) flush() error {
	if r.cfg.QueueType != QuorumQueue || !r.settled.Load() || errors.Is(r.cause, errCancelled) {
		return nil
	}
	if !r.cfg.Ordered {
		return r.ch.Cancel(r.cfg.Name, false)
	}
	// Canceling the active consumer would let the next one read past the messages unsettled here. This one gets nothing.
	if _, err := r.ch.Consume(r.cfg.Queue, waitingConsumer, false, false, false, false, nil); err != nil {
		return err
	}
	return r.ch.Cancel(waitingConsumer, false)
}

// waitingConsumer is the tag of a consumer whose only purpose is to make the queue answer.
const waitingConsumer = "postrider-flush"

// gather returns a delivery and those that have arrived after it, up to limit in total.
func (r *reader) gather(first amqp.Delivery, limit int) []*postrider.Delivery {
	out := []*postrider.Delivery{r.delivery(first)}
	for len(out) < limit {
		select {
		case next, ok := <-r.deliveries:
			if !ok {
				return out
			}
			out = append(out, r.delivery(next))
		default:
			return out
		}
	}
	return out
}

func (r *reader) delivery(d amqp.Delivery) *postrider.Delivery {
	out := &postrider.Delivery{Redelivered: d.Redelivered, Settler: &delivery{reader: r, tag: d.DeliveryTag}}
	if r.cfg.QueueType == QuorumQueue {
		before, _ := d.Headers["x-delivery-count"].(int64) // absent at the first delivery
		out.Deliveries = int(before) + 1
		out.Redelivered = out.Redelivered || before > 0
	}
	var err error
	if out.Message, err = Decode(d); err != nil {
		legible(d, out.Message)
		out.Err, out.Raw = fmt.Errorf("RabbitMQ queue %s: %w", r.cfg.Queue, err), d.Body
	}
	out.Message.Attempt = out.Deliveries
	return out
}

// legible adds the AMQP properties of a delivery that is not a CloudEvent to what could be read of it, and its other headers
// as text.
func legible(d amqp.Delivery, m *postrider.Message) {
	m.ID, m.Type, m.Topic = cmp.Or(m.ID, d.MessageId), cmp.Or(m.Type, d.Type), cmp.Or(m.Topic, d.RoutingKey)
	m.ContentType, m.CorrelationID = cmp.Or(m.ContentType, d.ContentType), cmp.Or(m.CorrelationID, d.CorrelationId)
	if m.Time.IsZero() {
		m.Time = d.Timestamp
	}
	for name, value := range d.Headers {
		if _, isText := textOf(value); isText {
			continue
		}
		if m.Headers == nil {
			m.Headers = make(map[string]string, len(d.Headers))
		}
		m.Headers[name] = fmt.Sprint(value)
	}
}

// delivery settles one message.
type delivery struct {
	reader  *reader
	tag     uint64
	settled atomic.Bool
}

var _ postrider.Settler = (*delivery)(nil)

// settle calls verb unless the delivery is settled or lost. It takes no context: a settlement waits for no answer, and a message
// that is not settled stays with this process as long as the channel lives.
func (d *delivery) settle(verb func() error) error {
	d.reader.settling.RLock()
	defer d.reader.settling.RUnlock()
	if d.reader.isLost() || d.settled.Swap(true) {
		return nil
	}
	d.reader.settled.Store(true)
	if err := verb(); err != nil {
		return postrider.Unavailable(fmt.Errorf("settle with RabbitMQ: %w", err))
	}
	return nil
}

// Ack implements postrider.Settler. It returns when the settlement is sent; RabbitMQ does not confirm settlements.
func (d *delivery) Ack(context.Context) error {
	return d.settle(func() error { return d.reader.ch.Ack(d.tag, false) })
}

// Nack implements postrider.Settler. The message is redelivered immediately, after others. From an ordered queue all
// unsettled messages are redelivered, in order.
func (d *delivery) Nack(_ context.Context, _ time.Duration) error {
	if !d.reader.cfg.Ordered {
		return d.settle(func() error { return d.reader.ch.Nack(d.tag, false, true) })
	}
	open := false
	if err := d.settle(func() error { open = true; return nil }); err != nil || !open {
		return err
	}
	d.reader.lose(errAgain)
	if err := d.reader.end(); err != nil {
		return postrider.Unavailable(fmt.Errorf("settle with RabbitMQ: %w", err))
	}
	return nil
}

// Reject implements postrider.Settler. The queue's dead letter exchange receives the message, if there is one, without
// the reason.
func (d *delivery) Reject(context.Context, string) error {
	return d.settle(func() error { return d.reader.ch.Reject(d.tag, false) })
}

// Extend implements postrider.Settler. It fails, unless the server has no timeout.
func (d *delivery) Extend(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("settle with RabbitMQ: %w", err)
	}
	if d.reader.cfg.AckWait > 0 && !d.settled.Load() && !d.reader.isLost() {
		return errNoExtension
	}
	return nil
}

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.reader.lost }
