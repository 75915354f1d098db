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
// consumer works for longer than ParkAfter, and those of its key after it, without counting an attempt, so that other keys do not wait; the
// consumer bounds its attempts itself. AttemptTimeout is how long messages wait in the consumer before the relay takes it for unavailable.
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
		handed: make(chan []*postrider.Delivery), closing: make(chan struct{}), done: make(chan struct{}), parkAfter: s.cfg.ParkAfter,
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
}

// lookAgain is how often a call looks for slow messages.
func (s *relaySubscription) lookAgain() time.Duration { return max(s.parkAfter/4, time.Millisecond) }

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

var (
	// errHandedBack: the consumer stopped before it settled the message.
	errHandedBack = errors.New("the consumer gave the message back")
	// errPutBack: the consumer works no more on a message that was lost or taken back.
	errPutBack = errors.New("the consumer no longer has the message")
)

// Publish implements postrider.Publisher: it passes the messages to the consumer and waits until they are settled. Those that the consumer
// works on for longer than ParkAfter are unfinished (attempt.UnfinishedError) once it has settled all others.
func (h handOver) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	deliveries := make([]*postrider.Delivery, len(msgs))
	c := &handedCall{to: h.to, msgs: msgs, errs: make([]error, len(msgs)), handed: make([]*handedOver, len(msgs))}
	for i, m := range msgs {
		own := *m
		c.handed[i] = &handedOver{settled: make(chan error, 1), lost: make(chan struct{})}
		deliveries[i] = &postrider.Delivery{Message: &own, Deliveries: m.Attempt, Redelivered: m.Attempt > 1, Settler: c.handed[i]}
	}
	select {
	case h.to.handed <- deliveries:
	case <-ctx.Done():
		return fill(c.errs, cutOff(ctx))
	case <-h.to.closing:
		return fill(c.errs, postrider.Unavailable(errHandedBack))
	}
	c.wait(ctx)
	return c.errs
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
