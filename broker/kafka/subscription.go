package kafkabroker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

const (
	// pollRecords is how many records are taken from the client at a time.
	pollRecords = 500
	// maxQueued and maxQueuedBytes bound the records queued for Receive, in addition to those that the client has
	// fetched. The same bounds, halved, apply to a partition that cannot deliver for a while. The last poll may exceed
	// them.
	maxQueued, maxQueuedBytes = 1000, 4 << 20
)

// Subscription is one member of a group.
//
// The client prefetches records, and a loop moves them to their partitions. Receive returns them from there, each with a
// channel that is closed when the delivery is lost. After a Nack, the partition redelivers the message and all after it.
//
// When the group assigns a partition to another member, nothing more of it is delivered. Unsettled messages have
// SubscriberConfig.RevokeWait to be settled. Then the remaining ones are lost, the offset of settled ones is committed,
// and the partition is released. Other partitions continue meanwhile. If the group has not confirmed the membership for
// three quarters of the session timeout, the member stops by itself: all deliveries are lost, and redelivered when the
// group has confirmed the membership.
type Subscription struct {
	cfg     SubscriberConfig
	client  *kgo.Client
	health  health
	life    context.Context // of the loops
	end     context.CancelFunc
	running sync.WaitGroup
	started chan struct{} // closed when client is set; the client may call back before

	// Partitions whose last fetched offset is for another topic, and partitions without one; used by the group
	// management goroutine.
	strange, placeless []place

	committing sync.Mutex // held during a commit; locked before mu

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when anything changes that somebody may wait for
	partitions []*partition  // in the order in which they deliver next
	trouble    error         // to be returned by Receive
	suspended  bool
	closed     bool
	// unread are the topics without any committed offset when this member joined, with their number of partitions.
	unread  map[string]int32
	closing sync.Once
}

var _ postrider.Subscription = (*Subscription)(nil)

func newSubscription(cfg SubscriberConfig, unread map[string]int32) *Subscription {
	s := &Subscription{cfg: cfg, unread: unread, started: make(chan struct{}), changed: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	s.health.tell = s.wake
	s.health.confirm(time.Now())
	return s
}

// options connects the client's callbacks to the subscription.
func (s *Subscription) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(s.assigned), kgo.OnPartitionsRevoked(s.revoked), kgo.OnPartitionsLost(s.lost),
		kgo.OnOffsetsFetched(s.fetched), kgo.AdjustFetchOffsetsFn(s.adjusted),
		kgo.WithHooks(&s.health),
	}
}

func (s *Subscription) start(client *kgo.Client) {
	s.client = client
	close(s.started)
	s.running.Go(s.fetchLoop)
	s.running.Go(s.commitLoop)
	s.running.Go(s.watchLoop)
}

// tell wakes everything that waits for a change. It needs mu.
func (s *Subscription) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Subscription) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell()
}

// Receive implements postrider.Subscription.
func (s *Subscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		changed := s.changed
		out, next, err := s.receive(limit)
		s.balance()
		s.mu.Unlock()
		if len(out) > 0 || err != nil {
			return out, err
		}
		if err := s.health.unreachable(time.Now()); err != nil {
			return nil, postrider.Unavailable(fmt.Errorf("read from Kafka: %w", err))
		}
		if err := wait(ctx, changed, earlier(next, s.health.next())); err != nil {
			return nil, err
		}
	}
}

// receive returns available messages, and the time when more may become available; zero if unknown.
func (s *Subscription) receive(limit int) (out []*postrider.Delivery, next time.Time, err error) {
	if s.closed {
		return nil, next, postrider.ErrSubscriptionClosed
	}
	if s.suspended {
		return nil, next, nil
	}
	now := time.Now()
	for i := 0; i < len(s.partitions) && len(out) < limit; i++ {
		p := s.partitions[i]
		for len(out) < limit {
			e, at := p.deliver(now)
			if e == nil {
				next = earlier(next, at)
				break
			}
			out = append(out, s.delivery(p, e))
		}
	}
	if len(out) > 0 {
		s.rotate(out[len(out)-1].Position.Partition)
		s.tell() // there is space in the queue again
		return out, next, nil
	}
	if err = s.trouble; err != nil {
		s.trouble = nil
		return nil, next, postrider.Unavailable(fmt.Errorf("read from Kafka: %w", err))
	}
	return nil, next, nil
}

// rotate moves the partition that delivered last, and those before it, to the end of the order.
func (s *Subscription) rotate(last string) {
	i := slices.IndexFunc(s.partitions, func(p *partition) bool { return p.name == last })
	s.partitions = slices.Concat(s.partitions[i+1:], s.partitions[:i+1])
}

// delivery creates a delivery of an entry.
func (s *Subscription) delivery(p *partition, e *entry) *postrider.Delivery {
	d := s.cfg.deliver(e.record)
	d.Position, d.Redelivered, d.Session, d.Settler = p.position(e), e.again, e.session, e.out
	return d
}

// earlier returns the earlier of two times; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wait waits for a change or until a time; zero means no limit. It returns only the error of ctx.
func wait(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timer:
	}
	return nil
}

// fetchLoop takes records from the client while the queue has space.
func (s *Subscription) fetchLoop() {
	for s.awaitRoom() {
		fetches := s.client.PollRecords(s.life, pollRecords)
		unknown := s.takeIn(fetches)
		s.client.AllowRebalance()
		if len(unknown) > 0 {
			s.reopen(unknown)
		}
	}
}

// awaitRoom waits until the queue has space. It returns false when the subscription is closed.
func (s *Subscription) awaitRoom() bool {
	for s.life.Err() == nil {
		s.mu.Lock()
		s.balance()
		changed, queued, bytes := s.changed, 0, 0
		for _, p := range s.partitions {
			if !p.paused {
				queued += p.queued
				bytes += p.queuedBytes
			}
		}
		s.mu.Unlock()
		if queued < maxQueued && bytes < maxQueuedBytes {
			return true
		}
		_ = wait(s.life, changed, time.Time{}) // its error ends the loop
	}
	return false
}

// balance pauses fetching of partitions that cannot deliver now and have enough records queued, so that they do not use
// up the queue space of others. It needs mu.
func (s *Subscription) balance() {
	pause, resume := make(map[string][]int32), make(map[string][]int32)
	for _, p := range s.partitions {
		enough := p.queued >= maxQueued/2 || p.queuedBytes >= maxQueuedBytes/2
		switch stopped := p.leaving || p.placing || p.full() || p.notBefore.After(time.Now()); {
		case !p.paused && enough && stopped:
			p.paused, pause[p.topic] = true, append(pause[p.topic], p.number)
		case p.paused && !stopped:
			p.paused, resume[p.topic] = false, append(resume[p.topic], p.number)
		}
	}
	if len(pause) > 0 {
		s.client.PauseFetchPartitions(pause)
	}
	if len(resume) > 0 {
		s.client.ResumeFetchPartitions(resume)
	}
}

// takeIn adds records to their partitions. It returns the topics that were deleted or recreated.
func (s *Subscription) takeIn(fetches kgo.Fetches) (unknown []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	for _, f := range fetches {
		for _, t := range f.Topics {
			for i := range t.Partitions {
				fetched := &t.Partitions[i]
				if fetched.Err != nil && s.takeError(t.Topic, fetched.Partition, fetched.Err) && !slices.Contains(unknown, t.Topic) {
					unknown = append(unknown, t.Topic)
				}
				p := s.owned(t.Topic, fetched.Partition)
				if p == nil {
					continue // only an error can have no owner
				}
				if t.TopicID != [16]byte{} { // brokers before 3.1 do not report it
					p.incarnation = hex.EncodeToString(t.TopicID[:])
				}
				p.checkStart(fetched.LogStartOffset)
				for _, r := range fetched.Records {
					p.add(r)
				}
			}
		}
	}
	return unknown
}

// takeError handles an error of a fetch, and reports whether its topic was deleted or recreated.
func (s *Subscription) takeError(topic string, number int32, err error) (unknown bool) {
	var lost *kgo.ErrDataLoss
	switch {
	case s.life.Err() != nil, errors.Is(err, kgo.ErrClientClosed):
	case errors.As(err, &lost):
		s.cfg.Logger.Error("Kafka has lost messages of a partition, or the group's place in it: reading goes on where it can; see whether messages are to be published again (replay)",
			"topic", topic, "partition", number, "error", err)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InconsistentTopicID):
		return true
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		s.trouble = fmt.Errorf("the user may not read topic %s; run: kafka-acls.sh --add --allow-principal User:NAME --operation Read --topic %s: %w", topic, topic, err)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		s.trouble = groupRefused(s.cfg.Group, err)
	case topic == "": // an error of the group
		s.trouble = err
	default:
		s.trouble = fmt.Errorf("topic %s, partition %d: %w", topic, number, err)
	}
	return false
}

func groupRefused(group string, err error) error {
	return fmt.Errorf("the user may not join group %s; run: kafka-acls.sh --add --allow-principal User:NAME --operation Read --group %s: %w", group, group, err)
}

// reopen makes the client look up topics again that were deleted and may have been recreated.
func (s *Subscription) reopen(topics []string) {
	s.cfg.Logger.Warn("Kafka topics were deleted; they are read from the beginning once they exist again", "topics", topics)
	s.mu.Lock()
	for _, p := range s.partitions {
		if slices.Contains(topics, p.topic) {
			p.give()
		}
	}
	s.partitions = slices.DeleteFunc(s.partitions, func(p *partition) bool { return slices.Contains(topics, p.topic) })
	for _, topic := range topics {
		delete(s.unread, topic) // when recreated, everything in it is new
	}
	s.tell()
	s.mu.Unlock()
	s.client.PurgeTopicsFromConsuming(topics...)
	s.client.AddConsumeTopics(topics...)
}

// Close implements postrider.Subscription. Unsettled deliveries are lost; the offsets of settled ones are committed.
func (s *Subscription) Close(ctx context.Context) error {
	var err error
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, commitWait)
		defer cancel()
		s.mu.Lock()
		s.closed = true
		for _, p := range s.partitions {
			p.give()
		}
		s.tell()
		s.mu.Unlock()
		s.end()
		s.running.Wait()
		err = s.commit(ctx)
		if left := s.client.LeaveGroupContext(ctx); left != nil && err == nil {
			err = postrider.Unavailable(fmt.Errorf("leave group %s of Kafka: %w", s.cfg.Group, left))
		}
		s.client.CloseAllowingRebalance()
	})
	return err
}
