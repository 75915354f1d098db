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
	// errEnded: a reader's channel has ended, for a reason that is about to come.
	errEnded = errors.New("the channel has ended")
	// errCancelled: the server sends a reader nothing more.
	errCancelled = errors.New("the queue was deleted, or has another leader")
	// errAgain: a message of an ordered queue is to come again, and all behind it.
	errAgain = errors.New("a message was given back, and all behind it with it")
	// errNoExtension is why Extend fails.
	errNoExtension = errors.New("RabbitMQ gives no more time for a settlement; raise its consumer_timeout, and AckWait with it")
)

// reader is a consumer, as RabbitMQ calls it, on a channel of its own. Everything that came by it and is not settled is lost
// with it, at the same moment.
type reader struct {
	cfg        SubscriberConfig
	conn       *connection
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	watcher    sync.WaitGroup
	// end closes the channel of a lost reader, so that the server takes back, in order, what is not settled. Its error says
	// that the server did not confirm that it has taken note of every settlement.
	end func() error

	settled  atomic.Bool   // something was
	settling sync.RWMutex  // read-locked for a settlement, locked to lose the reader
	lost     chan struct{} // closed when everything is lost
	cause    error         // of the loss; may be read once lost is closed
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
		_ = r.end() // there is nothing settled
		return nil, describe(err, "read queue "+cfg.Queue, map[int]string{
			amqp.AccessRefused: "let the user read the queue (rabbitmqctl set_permissions), and see that nobody has it exclusively",
			amqp.NotFound:      "create the queue, or let it be declared here (not CheckOnly)",
		})
	}
	return r, nil
}

// watch finds out when the channel ends, or brings nothing more.
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

// lose takes away the right to work on everything unsettled. Settlements that have begun come through before.
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

// flush has the queue take note of all settlements. While 32 of them are on their way to a quorum queue, RabbitMQ holds back
// the next ones, and it forgets those if the channel ends. What changes the queue's consumers it answers when the queue has
// noted everything before it, and then it lets go of what it holds back.
func (r *reader) flush() error {
	if r.cfg.QueueType != QuorumQueue || !r.settled.Load() || errors.Is(r.cause, errCancelled) {
		return nil
	}
	if !r.cfg.Ordered {
		return r.ch.Cancel(r.cfg.Name, false)
	}
	// To cancel the active consumer would let the next one read past what is unsettled here. This one gets nothing.
	if _, err := r.ch.Consume(r.cfg.Queue, waitingConsumer, false, false, false, false, nil); err != nil {
		return err
	}
	return r.ch.Cancel(waitingConsumer, false)
}

// waitingConsumer is the tag of a consumer that is no more than a way to make the queue answer.
const waitingConsumer = "postrider-flush"

// gather returns a delivery and what has come behind it, up to a limit.
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
		before, _ := d.Headers["x-delivery-count"].(int64) // not there at first
		out.Deliveries = int(before) + 1
		out.Redelivered = out.Redelivered || before > 0
	}
	var err error
	if out.Message, err = Decode(d); err != nil {
		out.Message = legible(d)
		out.Err, out.Raw = fmt.Errorf("RabbitMQ queue %s: %w", r.cfg.Queue, err), d.Body
	}
	out.Message.Attempt = out.Deliveries
	return out
}

// legible is what AMQP itself says about what is no CloudEvent.
func legible(d amqp.Delivery) *postrider.Message {
	return &postrider.Message{
		ID: d.MessageId, Type: d.Type, Topic: d.RoutingKey, ContentType: d.ContentType, CorrelationID: d.CorrelationId,
		Time: d.Timestamp, Payload: d.Body,
	}
}

// delivery settles one message.
type delivery struct {
	reader  *reader
	tag     uint64
	settled atomic.Bool
}

var _ postrider.Settler = (*delivery)(nil)

// settle tells the server, unless the delivery is settled or lost.
func (d *delivery) settle(ctx context.Context, verb func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("settle with RabbitMQ: %w", err)
	}
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

// Ack implements postrider.Settler. It returns when the settlement is on its way; RabbitMQ confirms none.
func (d *delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, func() error { return d.reader.ch.Ack(d.tag, false) })
}

// Nack implements postrider.Settler. The message comes again at once, behind others; from an ordered queue everything that
// is unsettled comes again, in order.
func (d *delivery) Nack(ctx context.Context, _ time.Duration) error {
	if !d.reader.cfg.Ordered {
		return d.settle(ctx, func() error { return d.reader.ch.Nack(d.tag, false, true) })
	}
	open := false
	if err := d.settle(ctx, func() error { open = true; return nil }); err != nil || !open {
		return err
	}
	d.reader.lose(errAgain)
	if err := d.reader.end(); err != nil {
		return postrider.Unavailable(fmt.Errorf("settle with RabbitMQ: %w", err))
	}
	return nil
}

// Reject implements postrider.Settler. The queue's dead letter exchange gets the message, if there is one; the reason does
// not travel.
func (d *delivery) Reject(ctx context.Context, _ string) error {
	return d.settle(ctx, func() error { return d.reader.ch.Reject(d.tag, false) })
}

// Extend implements postrider.Settler. It fails, unless the server waits without limit.
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
