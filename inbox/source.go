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
// own database: the relay retries nothing and has no dead letters, except for rows that it cannot read.
//
// Messages of a key arrive in order. They have no positions, because a message that commits late has a
// lower sequence than messages already read. All configuration errors are reported at once.
func FromRelay(store store.Relay, cfg relay.Config) (postrider.Subscriber, error) {
	if cfg.Publisher != nil {
		return nil, errors.New("inbox: a relay that feeds a consumer has no Publisher of its own")
	}
	cfg.MaxBatch, cfg.Concurrency = cmp.Or(cfg.MaxBatch, 100), cmp.Or(cfg.Concurrency, 16)
	cfg.AttemptTimeout = cmp.Or(cfg.AttemptTimeout, time.Hour)
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
	sub := &relaySubscription{handed: make(chan []*postrider.Delivery), closing: make(chan struct{}), done: make(chan struct{})}
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

// Publish implements postrider.Publisher: it passes the messages to the consumer and waits until they are settled.
func (h handOver) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	lost := make(chan struct{})
	defer close(lost)
	deliveries := make([]*postrider.Delivery, len(msgs))
	settlers := make([]*handedOver, len(msgs))
	for i, m := range msgs {
		own := *m
		settlers[i] = &handedOver{settled: make(chan error, 1), lost: lost}
		deliveries[i] = &postrider.Delivery{Message: &own, Deliveries: m.Attempt, Redelivered: m.Attempt > 1, Settler: settlers[i]}
	}
	errs := make([]error, len(msgs))
	select {
	case h.to.handed <- deliveries:
	case <-ctx.Done():
		return fill(errs, cutOff(ctx))
	case <-h.to.closing:
		return fill(errs, postrider.Unavailable(errHandedBack))
	}
	failed := make(map[string]*postrider.Message) // the first failed message of each key
	for i, m := range msgs {
		if errs[i] = settlers[i].wait(ctx, h.to.closing); errs[i] != nil && m.Key != "" && failed[m.Key] == nil {
			failed[m.Key] = m
		} else if first := failed[m.Key]; first != nil {
			errs[i] = postrider.PredecessorFailed(first, errHandedBack) // messages that were already processed are redelivered as duplicates
		}
	}
	return errs
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
	once    sync.Once
	settled chan error // of capacity 1
	lost    chan struct{}
}

// wait returns the outcome of a message. A settlement before the end counts.
func (s *handedOver) wait(ctx context.Context, closing <-chan struct{}) error {
	select {
	case err := <-s.settled:
		return err
	default:
	}
	select {
	case err := <-s.settled:
		return err
	case <-ctx.Done():
		return cutOff(ctx)
	case <-closing:
		return postrider.Unavailable(errHandedBack)
	}
}

func (s *handedOver) settle(err error) { s.once.Do(func() { s.settled <- err }) }

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
