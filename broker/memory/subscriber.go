package memorybroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

// SubscriberConfig configures Broker.Subscriber.
type SubscriberConfig struct {
	// Group names the processes that share the work. Required.
	Group string
	// Topics are the topics to read, each from its oldest message. Required.
	Topics []string
	// Partitions makes each topic a log of that many partitions: one member of the group at a time reads a partition, in
	// order, and messages have positions. Default, 0: each topic is a queue that all members read, without positions.
	// All members of a group must use the same value.
	Partitions int
	// AckWait is how long the broker waits for a settlement before it redelivers the message. Default: until the
	// subscription is closed.
	AckWait time.Duration
	// RedeliveryWindow is the value that Capabilities reports; the broker does not enforce it. Default, 0: no limit.
	RedeliveryWindow time.Duration
	// Pick chooses which of the n messages that a queue could deliver is next, by index. Default: the first.
	Pick func(n int) int
	// SettleFault is called for every settlement; op is the method name ("Ack", "Nack", "Reject", "Extend"). With
	// before, the settlement fails and has no effect; with after, it takes effect and reports an error. Default: no
	// faults.
	SettleFault func(op string, m *postrider.Message) (before, after error)
}

// Subscriber reads from a Broker. Each Subscribe adds a member to its group.
type Subscriber struct {
	broker *Broker
	cfg    SubscriberConfig
}

var _ postrider.Subscriber = (*Subscriber)(nil)

// Subscriber returns a subscriber. Its error lists every value that is missing or out of range.
func (b *Broker) Subscriber(cfg SubscriberConfig) (*Subscriber, error) {
	var errs []error
	if cfg.Group == "" || len(cfg.Topics) == 0 {
		errs = append(errs, errors.New("memory broker: a subscriber needs a Group and Topics"))
	}
	if cfg.Partitions < 0 || cfg.AckWait < 0 || cfg.RedeliveryWindow < 0 {
		errs = append(errs, fmt.Errorf("memory broker: Partitions %d, AckWait %s and RedeliveryWindow %s must not be negative",
			cfg.Partitions, cfg.AckWait, cfg.RedeliveryWindow))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Topics = slices.Clone(cfg.Topics)
	return &Subscriber{broker: b, cfg: cfg}, nil
}

// Capabilities implements postrider.Subscriber.
func (s *Subscriber) Capabilities() postrider.SubscriberCapabilities {
	return postrider.SubscriberCapabilities{
		Ordered: s.cfg.Partitions > 0, Positions: s.cfg.Partitions > 0,
		RedeliveryWindow: s.cfg.RedeliveryWindow, AckWait: s.cfg.AckWait, NackDelay: true,
	}
}

// Subscribe implements postrider.Subscriber. It returns postrider.Unavailable while the broker is unavailable.
func (s *Subscriber) Subscribe(ctx context.Context) (postrider.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := s.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.unavailable(); err != nil {
		return nil, err
	}
	g := b.groups[s.cfg.Group]
	if g == nil {
		g = &group{partitions: s.cfg.Partitions, streams: make(map[streamKey]*stream), read: make(map[string]int)}
		b.groups[s.cfg.Group] = g
	}
	if g.partitions != s.cfg.Partitions {
		return nil, fmt.Errorf("memory broker: group %s reads %d partitions, this member wants %d", s.cfg.Group, g.partitions,
			s.cfg.Partitions)
	}
	sub := &subscription{broker: b, group: g, cfg: s.cfg, gone: make(chan struct{})}
	g.members = append(g.members, sub)
	g.assign()
	b.tell()
	return sub, nil
}

// unavailable returns why the broker is unavailable, or nil.
func (b *Broker) unavailable() error {
	switch {
	case b.closed:
		return postrider.Unavailable(ErrClosed)
	case b.faults.unavailable != nil:
		return postrider.Unavailable(b.faults.unavailable)
	}
	return nil
}

// tell wakes everything that waits for messages.
func (b *Broker) tell() {
	if !b.closed {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// Redeliver makes the group receive acknowledged messages again, as real brokers do now and then.
func (b *Broker) Redeliver(groupName string, ids ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[groupName]; g != nil {
		for _, st := range g.streams {
			for _, e := range st.entries {
				if e.settled && slices.Contains(ids, e.msg.ID) {
					e.settled, st.first = false, 0
				}
			}
		}
	}
	b.tell()
}

// Rebalance moves every partition of a group's log to the next member. Unsettled deliveries of a partition that moves
// are lost.
func (b *Broker) Rebalance(groupName string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[groupName]; g != nil && len(g.members) > 0 {
		g.members = append(g.members[1:len(g.members):len(g.members)], g.members[0])
		g.assign()
	}
	b.tell()
}

// Unsettled returns the IDs of the messages that a group has not settled, in the order in which they were accepted,
// grouped by topic and partition.
func (b *Broker) Unsettled(groupName string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[groupName]
	if g == nil {
		return nil
	}
	var out []string
	for _, st := range g.sorted() {
		for _, e := range st.entries {
			if !e.settled {
				out = append(out, e.msg.ID)
			}
		}
	}
	return out
}

// Recreate deletes a topic with all its messages and creates it again: positions of new messages have another Epoch.
func (b *Broker) Recreate(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.topics, topic)
	b.incarnations[topic]++
	b.sessions++
	for _, g := range b.groups {
		g.read[topic] = 0
		for k, st := range g.streams {
			if k.topic == topic {
				st.lose()
				delete(g.streams, k)
			}
		}
		g.assign()
	}
	b.tell()
}

// LoseTail removes the last n messages of a topic, as if the broker had been restored from an older backup: the
// positions of the removed messages are reused. All unsettled deliveries of the topic are lost. Settled messages that
// remain are not redelivered.
func (b *Broker) LoseTail(topic string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.topics[topic][:max(len(b.topics[topic])-n, 0)]
	b.topics[topic] = slices.Clip(kept)
	b.sessions++
	for _, g := range b.groups {
		for k, st := range g.streams {
			if k.topic == topic {
				st.lose()
				st.entries = slices.DeleteFunc(st.entries, func(e *entry) bool { return !slices.Contains(kept, e.msg) })
				st.first = 0
			}
		}
		g.read[topic] = min(g.read[topic], len(kept))
	}
	b.tell()
}

// mark returns the Mark of an entry's message.
func (b *Broker) mark(e *entry) string { return strconv.Itoa(b.numbers[e.msg]) }

// VerifyPosition implements postrider.Subscriber. Only LoseTail and Recreate remove messages.
func (s *Subscriber) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b := s.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.unavailable(); err != nil {
		return 0, err
	}
	g := b.groups[s.cfg.Group]
	if g == nil {
		return postrider.PositionRemoved, nil
	}
	g.fill(b, s.cfg.Topics)
	for _, st := range g.streams {
		if st.name == at.Partition && st.incarnation == at.Incarnation && at.Offset < int64(len(st.entries)) && b.mark(st.entries[at.Offset]) == at.Mark {
			return postrider.PositionKept, nil
		}
	}
	return postrider.PositionReplaced, nil
}

// subscription is one member of a group.
type subscription struct {
	broker *Broker
	group  *group
	cfg    SubscriberConfig
	once   sync.Once
	gone   chan struct{} // closed by Close
}

// Receive implements postrider.Subscription.
func (s *subscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	for {
		s.broker.mu.Lock()
		changed := s.broker.changed
		out, next, err := s.receive(limit)
		s.broker.mu.Unlock()
		if len(out) > 0 || err != nil {
			return out, err
		}
		if err := s.wait(ctx, changed, next); err != nil {
			return nil, err
		}
	}
}

// receive returns the available messages, and the time until more may become available; negative if unknown.
func (s *subscription) receive(limit int) ([]*postrider.Delivery, time.Duration, error) {
	select {
	case <-s.gone:
		return nil, 0, postrider.ErrSubscriptionClosed
	default:
	}
	if err := s.broker.unavailable(); err != nil {
		return nil, 0, err
	}
	s.group.fill(s.broker, s.cfg.Topics)
	now, next := time.Now(), time.Duration(-1)
	var out []*postrider.Delivery
	for _, st := range s.group.sorted() {
		if s.group.partitions > 0 && st.owner != s {
			continue
		}
		soon := st.expire(now, s.group.partitions > 0)
		for len(out) < limit {
			e, wait := st.next(now, s.group.partitions > 0, s.cfg.Pick)
			if e == nil {
				soon = earlier(soon, wait)
				break
			}
			out = append(out, s.deliver(st, e, now))
		}
		next = earlier(next, soon)
	}
	return out, next, nil
}

// deliver creates a delivery of an entry.
func (s *subscription) deliver(st *stream, e *entry, now time.Time) *postrider.Delivery {
	e.deliveries++
	m := clone(e.msg)
	m.Attempt = e.deliveries
	d := &delivery{sub: s, stream: st, entry: e, msg: m, lost: make(chan struct{})}
	if s.cfg.AckWait > 0 {
		d.until = now.Add(s.cfg.AckWait)
	}
	e.out = d
	out := &postrider.Delivery{Message: m, Deliveries: e.deliveries, Redelivered: e.deliveries > 1, Settler: d}
	if s.broker.poison[e.msg] {
		out.Err, out.Raw = errPoison, m.Payload
	}
	if s.group.partitions > 0 {
		out.Position = postrider.Position{Incarnation: st.incarnation, Partition: st.name, Offset: e.offset, Mark: s.broker.mark(e)}
		out.Session = s.broker.sessions
	}
	return out
}

func (s *subscription) wait(ctx context.Context, changed <-chan struct{}, next time.Duration) error {
	var timer <-chan time.Time
	if next >= 0 {
		t := time.NewTimer(next)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gone:
		return postrider.ErrSubscriptionClosed
	case <-changed:
	case <-timer:
	}
	return nil
}

// Close implements postrider.Subscription. It also simulates a crash: later settlements do nothing.
func (s *subscription) Close(context.Context) error {
	s.once.Do(func() {
		s.broker.mu.Lock()
		defer s.broker.mu.Unlock()
		close(s.gone)
		g := s.group
		g.members = slices.DeleteFunc(g.members, func(m *subscription) bool { return m == s })
		for _, st := range g.streams {
			st.loseOf(s)
		}
		g.assign()
		s.broker.tell()
	})
	return nil
}
