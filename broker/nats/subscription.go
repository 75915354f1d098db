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

const (
	// pullExpires is how long a pull request stays open at the server.
	pullExpires = 30 * time.Second
	// A server that has nothing for a pull request says so in this interval; one that is silent for longer than pullSilence
	// has forgotten the request, or is gone.
	pullHeartbeat, pullSilence = 5 * time.Second, 12 * time.Second
)

// subscription is one process of a group. It asks for messages only when Receive is called, with one pull request at a
// time, so that what waits here unseen, while the server counts the time to its settlement, is bounded by what was asked
// for.
type subscription struct {
	s       *Subscriber
	inbox   string // messages come to <inbox>.<request>
	answers *nats.Subscription
	drained chan struct{} // closed when answers brings nothing any more
	status  chan nats.Status
	watcher sync.WaitGroup
	wake    chan struct{} // something changed that Receive may wait for
	done    chan struct{} // closed by Close

	mu        sync.Mutex
	consumer  groupConsumer
	stale     bool      // the consumer must be looked at before the next pull request
	fault     error     // for Receive to report, once
	request   uint64    // number of the last pull request
	open      int       // how many messages it may still bring; 0 when it has ended
	asked     time.Time // what comes now was not sent before
	heard     time.Time // when the server was heard of last, after a pull request
	waiting   []arrival
	last      uint64 // the consumer's own sequence of the message that was delivered last
	unsettled map[*delivery]struct{}
	delivered uint64 // number of deliveries so far
	settling  sync.WaitGroup
	renewed   int64 // how often the consumer was looked at again
	closed    bool
}

// arrival is a message that waits for Receive.
type arrival struct {
	msg  *nats.Msg
	at   time.Time // from which the right to it counts
	meta *nats.MsgMetadata
	// session is that of the delivery.
	session int64
}

var _ postrider.Subscription = (*subscription)(nil)

func (s *Subscriber) newSubscription(c groupConsumer) (*subscription, error) {
	sub := &subscription{
		s: s, inbox: s.conn.NewInbox(), drained: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
		consumer: c, unsettled: make(map[*delivery]struct{}),
	}
	var err error
	if sub.answers, err = s.conn.Subscribe(sub.inbox+".*", sub.arrive); err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("subscribe to NATS: %w", err))
	}
	sub.answers.SetClosedHandler(func(string) { close(sub.drained) })
	if err := sub.answers.SetPendingLimits(-1, -1); err != nil { // bounded by what is asked for
		return nil, fmt.Errorf("subscribe to NATS: %w", err)
	}
	sub.status = s.conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	sub.watcher.Go(sub.watch)
	return sub, nil
}

// watch takes note of broken connections: an open pull request is gone with its connection.
func (s *subscription) watch() {
	for range s.status {
		s.mu.Lock()
		s.endRequest(fmt.Errorf("read from NATS: %w", errNotConnected))
		s.mu.Unlock()
	}
}

// endRequest forgets the open pull request because of err. It needs s.mu.
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

// arrive takes in what comes in answer to pull requests: messages, which have a subject to settle them by, and news of the
// request.
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
		s.s.log.Error("NATS delivers what is no message of JetStream", "subject", m.Subject, "reply", m.Reply, "error", err)
		return
	}
	at := s.heard
	if s.s.cfg.Ordered {
		at = s.asked // it may have been on its way for long, and the server counts from when it sent it
	}
	s.waiting = append(s.waiting, arrival{m, at, meta, int64(s.s.conn.Stats().Reconnects) + s.renewed})
	s.tell()
}

// replyTo is where the server sends what it has for the last pull request. It needs s.mu.
func (s *subscription) replyTo() string { return s.inbox + "." + strconv.FormatUint(s.request, 36) }

// answered takes in the server's word on the open pull request.
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

// take returns what has arrived.
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
			s.stale = true // another consumer under the same name, by the look of it
			break
		}
		s.waiting, s.last = s.waiting[1:], a.meta.Sequence.Consumer
		if right := s.right() - time.Since(a.at); right > 0 { // otherwise it comes again
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

// right is how long a message may be worked on after the server has delivered it or heard of it: less than the server waits,
// because the way from there takes time. Where order counts, it is counted from before the server can have done either.
func (s *subscription) right() time.Duration { return s.s.cfg.AckWait / 10 * 9 }

// expires is how long a pull request stays open at the server. Where order counts, the time until a message is there is taken
// from the right to it.
func (s *subscription) expires() time.Duration {
	if s.s.cfg.Ordered {
		return min(pullExpires, s.s.cfg.AckWait/4)
	}
	return pullExpires
}

// pull opens a pull request unless one is open.
func (s *subscription) pull(ctx context.Context, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// From before renew, which waits for an answer: what was sent until now, for a request that was given up, comes before it.
	began := time.Now()
	if !s.s.conn.IsConnected() {
		s.open, s.stale = 0, true
		return postrider.Unavailable(fmt.Errorf("read from NATS: %w", errNotConnected))
	}
	if s.stale {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	if s.open > 0 || len(s.waiting) > 0 || s.closed {
		return nil
	}
	s.request++
	s.open, s.asked, s.heard = min(limit, s.s.cfg.MaxAckPending), began, time.Now()
	expires := s.expires()
	request := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, s.open, expires, min(pullHeartbeat, expires/3))
	subject := "$JS.API.CONSUMER.MSG.NEXT." + s.s.cfg.Stream + "." + s.s.cfg.Durable
	if err := s.s.conn.PublishRequest(subject, s.replyTo(), request); err != nil {
		s.open, s.stale = 0, true
		return postrider.Unavailable(fmt.Errorf("read from NATS: %w", err))
	}
	return nil
}

// renew looks at stream and consumer again. If they are others under the same name, everything of the old ones is lost. It
// needs s.mu, which it gives up meanwhile.
func (s *subscription) renew(ctx context.Context) error {
	s.stale = false
	s.renewed++
	s.mu.Unlock()
	found, err := s.s.prepareConsumer(ctx)
	s.mu.Lock()
	switch {
	case ctx.Err() != nil:
		s.stale = true
		return ctx.Err()
	case err != nil:
		s.stale = true
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			return err
		}
		return postrider.Unavailable(err)
	}
	if found != s.consumer {
		s.s.log.Warn("NATS consumer was recreated; what the stream has is delivered from its beginning", "stream", s.s.cfg.Stream,
			"consumer", s.s.cfg.Durable)
		s.consumer, s.open = found, 0
		s.waiting = s.ofNew(s.waiting)
		s.lose()
	}
	s.last = 0
	return nil
}

// ofNew returns those of the messages that wait that came from the new consumer, which counts from one again.
func (s *subscription) ofNew(waiting []arrival) []arrival {
	last := s.last
	for i, a := range waiting {
		if a.meta.Sequence.Consumer <= last {
			return waiting[i:]
		}
		last = a.meta.Sequence.Consumer
	}
	return nil
}

// await returns when there may be something to take, or to do.
func (s *subscription) await(ctx context.Context) error {
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.wake:
	case <-s.done:
	case <-silence.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open > 0 && time.Since(s.heard) >= pullSilence {
			s.endRequest(fmt.Errorf("read from NATS: no word about consumer %s of stream %s for %s", s.s.cfg.Durable, s.s.cfg.Stream, pullSilence))
		}
	}
	return nil
}

// deliver makes a delivery of what has arrived. It needs s.mu.
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
			Epoch: s.consumer.epoch, Partition: a.meta.Stream, Offset: int64(a.meta.Sequence.Stream),
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

// decode reads a message. If that is not possible, what it returns with the error has the topic and the payload.
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
	if err != nil {
		m = &postrider.Message{Payload: raw.Data}
	}
	if topic, ok := Topic(s.cfg.Prefix, raw.Subject); ok == nil {
		m.Topic = topic
	}
	return m, err
}

// lose takes the right to work on everything unsettled away, from the last to the first. It needs s.mu.
func (s *subscription) lose() []*delivery {
	all := slices.SortedFunc(maps.Keys(s.unsettled), func(a, b *delivery) int { return cmp.Compare(b.number, a.number) })
	for _, d := range all {
		d.end()
		close(d.lost)
	}
	return all
}

// Close implements postrider.Subscription. What is not settled is given back, so that the server delivers it again at once.
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
		return postrider.Unavailable(fmt.Errorf("close subscription to NATS: %w; what is not settled comes again within %s", err, s.s.cfg.AckWait))
	}
	return nil
}

// drain ends the subscription of the connection once everything has arrived that the server has sent.
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
		return nil // it has ended already
	}
	return err
}
