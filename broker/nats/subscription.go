package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
)

// subscription is one process of a group. It requests messages only while Receive waits for them, with one pull request
// at a time. This bounds the number of messages that wait in the client while their AckWait runs.
type subscription struct {
	s       *Subscriber
	inbox   string // messages arrive at <inbox>.<request>
	answers *nats.Subscription
	drained chan struct{} // closed when answers delivers no more messages
	status  chan nats.Status
	watcher sync.WaitGroup
	wake    chan struct{} // signals changes to Receive
	done    chan struct{} // closed by Close

	mu        sync.Mutex
	consumer  groupConsumer
	stale     bool      // check the consumer before the next pull request
	looked    time.Time // when the stream was looked at last
	fault     error     // returned by Receive once
	request   uint64    // number of the last pull request
	open      int       // how many more messages it may deliver; 0 when it has ended
	asked     time.Time // lower bound of the time at which the server sent the next arrivals
	heard     time.Time // time of the last message from the server, or of the last pull request
	waiting   []arrival
	last      uint64 // consumer sequence of the last delivered message
	unsettled map[*delivery]struct{}
	delivered uint64 // number of deliveries so far
	settling  sync.WaitGroup
	renewed   int64 // how often the consumer was checked again
	closed    bool
}

// arrival is a message that Receive has not returned yet.
type arrival struct {
	msg  *nats.Msg
	at   time.Time // start of the time in which it must be settled
	meta *nats.MsgMetadata
	// session is the Session of the delivery.
	session int64
}

var _ postrider.Subscription = (*subscription)(nil)

func (s *Subscriber) newSubscription(c groupConsumer) (*subscription, error) {
	sub := &subscription{
		s: s, inbox: s.conn.NewInbox(), drained: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
		consumer: c, looked: time.Now(), unsettled: make(map[*delivery]struct{}),
	}
	var err error
	if sub.answers, err = s.conn.Subscribe(sub.inbox+".*", sub.arrive); err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("subscribe to NATS: %w", err))
	}
	sub.answers.SetClosedHandler(func(string) { close(sub.drained) })
	if err := sub.answers.SetPendingLimits(-1, -1); err != nil { // bounded by the size of the pull request
		return nil, fmt.Errorf("subscribe to NATS: %w", err)
	}
	sub.status = s.conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	sub.watcher.Go(sub.watch)
	return sub, nil
}

// watch ends the open pull request when the connection breaks.
func (s *subscription) watch() {
	for range s.status {
		s.mu.Lock()
		s.endRequest(fmt.Errorf("read from NATS: %w", errNotConnected))
		s.mu.Unlock()
	}
}

// endRequest drops the open pull request and makes Receive report err. It needs s.mu.
func (s *subscription) endRequest(err error) {
	s.open, s.stale, s.fault = 0, true, postrider.Unavailable(err)
	s.tell()
}

func (s *subscription) tell() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// arrive handles answers to pull requests: messages, which have a reply subject, and status updates of the request.
func (s *subscription) arrive(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if m.Reply == "" {
		if m.Subject == s.replyTo() {
			s.answered(m.Header.Get("Status"), m.Header.Get("Description"))
		}
		return
	}
	s.open = max(s.open-1, 0)
	meta, err := m.Metadata()
	if err != nil {
		s.s.log.Error("NATS delivered a message that does not come from JetStream", "subject", m.Subject, "reply", m.Reply, "error", err)
		return
	}
	at := s.heard
	if s.s.cfg.Ordered {
		at = s.asked // the server counts from when it sent the message, which may have been long before it arrived
	}
	s.waiting = append(s.waiting, arrival{m, at, meta, int64(s.s.conn.Stats().Reconnects) + s.renewed})
	s.tell()
}

// replyTo returns the reply subject of the last pull request. It needs s.mu.
func (s *subscription) replyTo() string { return s.inbox + "." + strconv.FormatUint(s.request, 36) }

// answered handles a status update of the open pull request.
func (s *subscription) answered(status, description string) {
	switch {
	case status == "100": // nothing yet
	case status == "404", status == "408", strings.HasPrefix(description, "Batch Completed"):
		s.open = 0
		s.tell()
	case status == "503":
		s.endRequest(fmt.Errorf("read from NATS: nobody answers for consumer %s of stream %s; it is deleted, or its server is away",
			s.s.cfg.Durable, s.s.cfg.Stream))
	default:
		s.endRequest(fmt.Errorf("read from NATS: consumer %s of stream %s: %s", s.s.cfg.Durable, s.s.cfg.Stream, description))
	}
}

// Receive implements postrider.Subscription.
func (s *subscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, err := s.take(limit)
		if len(out) > 0 || err != nil {
			return out, err
		}
		if err := s.pull(ctx, limit); err != nil {
			return nil, err
		}
		if err := s.await(ctx); err != nil {
			return nil, err
		}
	}
}

// take returns messages that have arrived.
func (s *subscription) take(limit int) ([]*postrider.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, postrider.ErrSubscriptionClosed
	}
	var out []*postrider.Delivery
	for len(s.waiting) > 0 && len(out) < limit {
		a := s.waiting[0]
		if a.meta.Sequence.Consumer <= s.last {
			s.stale = true // apparently a new consumer with the same name
			break
		}
		s.waiting, s.last = s.waiting[1:], a.meta.Sequence.Consumer
		if right := s.right() - time.Since(a.at); right > 0 { // otherwise it is redelivered
			out = append(out, s.deliver(a, right))
		}
	}
	if len(out) > 0 || s.fault == nil {
		return out, nil
	}
	err := s.fault
	s.fault = nil
	return nil, err
}

// right returns how long a message may be worked on after the server has delivered or extended it. It is less than
// AckWait to allow for network delay. With Ordered, the time is counted from before the server can have done either.
func (s *subscription) right() time.Duration { return s.s.cfg.AckWait / 10 * 9 }

// deliver creates a delivery of an arrival. It needs s.mu.
func (s *subscription) deliver(a arrival, right time.Duration) *postrider.Delivery {
	s.delivered++
	d := &delivery{sub: s, number: s.delivered, reply: a.msg.Reply, lost: make(chan struct{})}
	d.timer = time.AfterFunc(right, d.expire)
	s.unsettled[d] = struct{}{}
	m, err := s.s.decode(a.msg)
	m.Attempt = int(a.meta.NumDelivered)
	out := &postrider.Delivery{
		Message: m, Err: err,
		Position: postrider.Position{
			Incarnation: s.consumer.incarnation, Partition: a.meta.Stream, Offset: int64(a.meta.Sequence.Stream),
			Mark: markOf(a.meta.Timestamp, a.msg.Header, a.msg.Data),
		},
		Deliveries: m.Attempt, Redelivered: m.Attempt > 1,
		Session: a.session, Settler: d,
	}
	if err != nil {
		out.Raw = a.msg.Data
	}
	return out
}

// decode decodes a message. With an error, it returns what could be read.
func (s *Subscriber) decode(raw *nats.Msg) (*postrider.Message, error) {
	m, err := cloudEvents.Decode(func(yield func(string, string) bool) {
		for name, values := range raw.Header {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
	}, raw.Data)
	if topic, _, ok := s.cfg.topic(raw.Subject); ok == nil {
		m.Topic = topic
	}
	return m, err
}

// lose revokes all unsettled deliveries, from the last to the first. It needs s.mu.
func (s *subscription) lose() []*delivery {
	all := slices.SortedFunc(maps.Keys(s.unsettled), func(a, b *delivery) int { return cmp.Compare(b.number, a.number) })
	for _, d := range all {
		d.end()
		close(d.lost)
	}
	return all
}

// Close implements postrider.Subscription. It naks unsettled messages, so that the server redelivers them immediately.
func (s *subscription) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.s.cfg.PublishTimeout)
	defer cancel()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	unsettled := s.lose()
	s.mu.Unlock()

	err := s.drain(ctx)
	s.s.conn.RemoveStatusListener(s.status)
	s.watcher.Wait()
	s.settling.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range slices.Backward(unsettled) {
		err = cmp.Or(err, s.s.conn.Publish(d.reply, nak))
	}
	for _, a := range s.waiting {
		err = cmp.Or(err, s.s.conn.Publish(a.msg.Reply, nak))
	}
	s.waiting = nil
	if err = cmp.Or(err, s.s.conn.FlushWithContext(ctx)); err != nil {
		return postrider.Unavailable(fmt.Errorf("close subscription to NATS: %w; what is not settled is redelivered within %s", err, s.s.cfg.AckWait))
	}
	return nil
}

// drain ends the NATS subscription after everything that the server has sent has arrived.
func (s *subscription) drain(ctx context.Context) error {
	if err := s.answers.Drain(); err != nil {
		return errors.Join(err, s.unsubscribe())
	}
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.unsubscribe())
	}
}

func (s *subscription) unsubscribe() error {
	err := s.answers.Unsubscribe()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) {
		return nil // it is closed already
	}
	return err
}
