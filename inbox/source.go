package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// FromRelay returns a subscriber that reads an outbox through a relay in this process, for processing in another database
// than the outbox's. (In the same database, relay.HandleTx needs no inbox.) The relay's name, progress and leases are in
// the outbox's database; the leases distribute the outbox among processes. In cfg, Name is required and Publisher must be
// nil; here MaxBatch defaults to 100, Concurrency to 16, AttemptTimeout to an hour. The consumer handles failures, in its
// own database: the relay retries nothing and has no dead letters, except for rows that it cannot read. It parks a message on which the
// consumer works for longer than ParkAfter, and those of its key after it, so that others do not wait; the handler goes on.
//
// Messages of a key arrive in order. They have no positions, because a message that commits late has a
// lower sequence than messages already read. All configuration errors are reported at once.
func FromRelay(store store.Relay, cfg relay.Config) (postrider.Subscriber, error) {
	if cfg.Publisher != nil {
		return nil, errors.New("inbox: a relay that feeds a consumer has no Publisher of its own")
	}
	cfg.MaxBatch, cfg.Concurrency = cmp.Or(cfg.MaxBatch, 100), cmp.Or(cfg.Concurrency, 16)
	cfg.AttemptTimeout, cfg.ParkAfter = cmp.Or(cfg.AttemptTimeout, time.Hour), cmp.Or(cfg.ParkAfter, 5*time.Second)
	s := &relaySource{store: store, cfg: cfg}
	if _, err := s.subscription(); err != nil { // tried now to report configuration errors
		return nil, err
	}
	return s, nil
}

type relaySource struct {
	store store.Relay
	cfg   relay.Config
}

// settledWithin is how long the outbox's database may be unavailable without a message being redelivered after its ID was
// removed: a processed message that could not be recorded as delivered is redelivered when the database is back.
const settledWithin = 24 * time.Hour

// Capabilities implements postrider.Subscriber.
func (s *relaySource) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{Ordered: true, RedeliveryWindow: settledWithin}
}

// VerifyPosition implements postrider.Subscriber: an outbox has no positions.
func (s *relaySource) VerifyPosition(context.Context, postrider.Position) (postrider.PositionState, error) {
	return postrider.PositionRemoved, nil
}

// subscription creates a relay that passes its messages to the consumer.
func (s *relaySource) subscription() (*relaySubscription, error) {
	sub := &relaySubscription{
		handed: make(chan []*postrider.Delivery), closing: make(chan struct{}), done: make(chan struct{}),
		parkAfter: s.cfg.ParkAfter, open: make(map[int64]*handedOver),
	}
	cfg := s.cfg
	cfg.Publisher = handOver{sub}
	var err error
	if sub.relay, err = relay.New(s.store, cfg); err != nil {
		return nil, fmt.Errorf("inbox: read an outbox: %w", err)
	}
	return sub, nil
}

// Subscribe implements postrider.Subscriber.
func (s *relaySource) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	if _, err := s.store.Partitions(ctx); err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("read the outbox: %w", err))
	}
	sub, err := s.subscription()
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(sub.done)
		sub.ended = sub.relay.Run(context.WithoutCancel(ctx))
	}()
	return sub, nil
}

// relaySubscription is a relay whose messages are received batch by batch.
type relaySubscription struct {
	relay     *relay.Relay
	handed    chan []*postrider.Delivery
	left      []*postrider.Delivery // of a batch that was larger than requested
	closing   chan struct{}
	closeOnce sync.Once
	done      chan struct{} // closed when the relay has ended
	ended     error         // the relay's error, once done is closed
	parkAfter time.Duration

	mu   sync.Mutex
	open map[int64]*handedOver // what the consumer has, by sequence; its call may have returned
}

// Receive implements postrider.Subscription.
func (s *relaySubscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	if len(s.left) == 0 {
		select {
		case s.left = <-s.handed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing:
			return nil, postrider.ErrSubscriptionClosed
		case <-s.done:
			return nil, errors.Join(postrider.ErrSubscriptionClosed, s.ended)
		}
	}
	n := min(limit, len(s.left))
	out := s.left[:n:n]
	s.left = s.left[n:]
	return out, nil
}

// Close implements postrider.Subscription. Unsettled messages return to the relay, which does not count this as an
// attempt.
func (s *relaySubscription) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { close(s.closing) })
	return s.relay.Stop(ctx)
}

// handOver is the publisher of a relay that feeds a consumer.
type handOver struct{ to *relaySubscription }

// Capabilities implements postrider.Publisher.
func (handOver) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// errHandedBack: the consumer stopped before it settled the message.
var errHandedBack = errors.New("the consumer gave the message back")

// Publish implements postrider.Publisher: it passes the messages to the consumer and waits until they are settled. It does not wait for
// slow ones if there are others: the relay redelivers those later, and they are not handed over again while the consumer has them.
func (h handOver) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	given, deliveries := h.to.hand(msgs)
	errs := make([]error, len(msgs))
	if len(deliveries) > 0 {
		select {
		case h.to.handed <- deliveries:
		case <-ctx.Done():
			h.to.takeBack(deliveries)
			return fill(errs, cutOff(ctx))
		case <-h.to.closing:
			return fill(errs, postrider.Unavailable(errHandedBack))
		}
	}
	var tick <-chan time.Time
	if len(msgs) > 1 {
		ticker := time.NewTicker(max(h.to.parkAfter/4, time.Millisecond))
		defer ticker.Stop()
		tick = ticker.C
	}
	failed := make(map[string]*postrider.Message) // the first failed message of each key
	for i, m := range msgs {
		if first := failed[m.Key]; first != nil {
			errs[i] = postrider.PredecessorFailed(first, errHandedBack) // messages that were already processed are redelivered as duplicates
		} else if errs[i] = given[i].wait(ctx, tick); errs[i] != nil && m.Key != "" {
			failed[m.Key] = m
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) || h.to.isClosing() { // the lease is lost, or the consumer stops
		for _, s := range given {
			s.lose()
		}
	}
	return errs
}

// hand returns what settles each of the messages, and the deliveries of those that the consumer does not have yet.
func (s *relaySubscription) hand(msgs []*postrider.Message) (given []*handedOver, deliveries []*postrider.Delivery) {
	lost := make(chan struct{})
	lose := sync.OnceFunc(func() { close(lost) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		had := s.open[m.Sequence]
		if had == nil || had.begun.IsZero() && had.isLost() {
			own := *m
			had = &handedOver{to: s, sequence: m.Sequence, settled: make(chan error, 1), lost: lost, lose: lose}
			s.open[m.Sequence] = had
			deliveries = append(deliveries, &postrider.Delivery{Message: &own, Deliveries: m.Attempt, Redelivered: m.Attempt > 1, Settler: had})
		}
		given = append(given, had)
	}
	return given, deliveries
}

// takeBack takes back what the consumer did not receive.
func (s *relaySubscription) takeBack(deliveries []*postrider.Delivery) {
	for _, d := range deliveries {
		d.Settler.(*handedOver).dropped()
	}
}

func (s *relaySubscription) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// cutOff is the outcome of a message that the relay has lost, or no longer waits for: not an attempt either way.
func cutOff(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return postrider.Unavailable(errHandedBack)
}

// handedOver settles a message with its relay.
type handedOver struct {
	to       *relaySubscription
	sequence int64
	once     sync.Once
	settled  chan error    // of capacity 1
	lost     chan struct{} // all messages of a call share it
	lose     func()
	begun    time.Time // since when the consumer works on it, zero if it does not; guarded by to.mu
}

// wait returns the outcome of a message. A settlement before the end counts. At each tick, it gives up if the message is slow.
func (s *handedOver) wait(ctx context.Context, tick <-chan time.Time) error {
	for {
		select {
		case err := <-s.settled:
			return err
		default:
		}
		if tick != nil && s.slow() {
			return s.later()
		}
		select {
		case err := <-s.settled:
			return err
		case <-tick:
		case <-s.lost: // since the lease under which the consumer began with it; it is handed over again when the handler has returned
			return s.later()
		case <-s.to.closing:
			return postrider.Unavailable(errHandedBack)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && s.slow() {
				return s.later()
			}
			return cutOff(ctx)
		}
	}
}

// later is the outcome of a message that the relay parks meanwhile, without an attempt.
func (s *handedOver) later() error { return postrider.Snooze(max(s.to.parkAfter/4, time.Millisecond)) }

// slow reports whether the consumer has worked on the message for longer than ParkAfter. If it has not begun, because it waits for a gate,
// or has more to do, that is no reason to park the message.
func (s *handedOver) slow() bool {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	return !s.begun.IsZero() && time.Since(s.begun) >= s.to.parkAfter
}

// works records whether the consumer works on the message.
func (s *handedOver) works(begun time.Time) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.begun = begun
}

func (s *handedOver) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// dropped records that the consumer no longer has the message.
func (s *handedOver) dropped() {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	if s.to.open[s.sequence] == s {
		delete(s.to.open, s.sequence)
	}
}

func (s *handedOver) settle(err error) {
	s.once.Do(func() {
		s.dropped()
		s.settled <- err
	})
}

// Ack implements postrider.Settler.
func (s *handedOver) Ack(context.Context) error {
	s.settle(nil)
	return nil
}

// Nack implements postrider.Settler. The relay takes the message back without counting an attempt, and redelivers it
// shortly.
func (s *handedOver) Nack(context.Context, time.Duration) error {
	s.settle(postrider.Unavailable(errHandedBack))
	return nil
}

// Reject implements postrider.Settler.
func (s *handedOver) Reject(context.Context, string) error {
	s.settle(nil)
	return nil
}

// Extend implements postrider.Settler: a relay waits as long as it holds its lease.
func (*handedOver) Extend(context.Context) error { return nil }

// Lost implements postrider.Settler.
func (s *handedOver) Lost() <-chan struct{} { return s.lost }
