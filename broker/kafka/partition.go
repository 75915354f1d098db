package kafkabroker

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// partition is one that this member owns. Its fields, and those of entries and deliveries, need the subscription's mutex.
type partition struct {
	sub    *Subscription
	topic  string
	number int32
	name   string // topic/number
	epoch  string // the topic's ID; "" if the broker does not tell
	// topicID is the same, as the broker said before anything was fetched.
	topicID string

	// entries are the records that came and are not settled, in order, with settled ones between them but not before them.
	// Those from next on are still to be delivered, but for settled ones.
	entries []*entry
	next    int
	out     int // deliveries under way
	// queued are the records to be delivered, queuedBytes their keys and values. The client fetches nothing of a partition
	// that is paused, because they are many.
	queued, queuedBytes int
	paused              bool
	// notBefore is when the next delivery may take place.
	notBefore time.Time
	// settled is what can be committed: the place behind the last record before which everything is settled; its offset is -1
	// while there is none. committed is the offset that was.
	settled   kgo.EpochOffset
	committed int64
	// elected rises with the leader epoch that records come from.
	elected  int64
	leader   int32
	expected int64 // the offset that comes next, if it is there; -1 if unknown
	leaving  bool  // nothing more is delivered
	placing  bool  // nothing is delivered until an offset is committed: see Subscription.begin
}

// entry is a record that came.
type entry struct {
	record  *kgo.Record
	settled bool
	session int64     // of its deliveries
	again   bool      // it was delivered before
	out     *delivery // under way, if not nil
}

// position returns where an entry stands.
func (p *partition) position(e *entry) postrider.Position {
	return postrider.Position{Epoch: p.epoch, Partition: p.name, Offset: e.record.Offset, Mark: recordMark(e.record)}
}

// checkStart logs that records were deleted before they came.
func (p *partition) checkStart(start int64) {
	if p.expected >= 0 && start > p.expected {
		p.sub.cfg.Logger.Error("Kafka has deleted messages that the group had not read: the topic's retention is shorter than the group was behind; publish them again (replay)",
			"group", p.sub.cfg.Group, "topic", p.topic, "partition", p.number, "first", p.expected, "last", start-1)
		p.expected = start
	}
}

// add takes in a record behind those that came before.
func (p *partition) add(r *kgo.Record) {
	p.expected = r.Offset + 1
	if r.LeaderEpoch != p.leader {
		p.leader = r.LeaderEpoch
		p.elected++
	}
	p.entries = append(p.entries, &entry{record: r, session: p.sub.health.cuts.Load() + p.elected})
	p.queue(1, r)
}

// queue counts records to be delivered.
func (p *partition) queue(n int, r *kgo.Record) {
	p.queued += n
	p.queuedBytes += n * (len(r.Key) + len(r.Value))
}

// deliver returns the next entry to deliver, or nil and when there may be one; zero if that is not known.
func (p *partition) deliver(now time.Time) (*entry, time.Time) {
	for p.next < len(p.entries) && p.entries[p.next].settled {
		p.next++
	}
	if p.leaving || p.placing || p.next == len(p.entries) {
		return nil, time.Time{}
	}
	if p.notBefore.After(now) {
		return nil, p.notBefore
	}
	e := p.entries[p.next]
	p.next++
	p.out++
	p.queue(-1, e.record)
	e.out = &delivery{partition: p, entry: e, lost: make(chan struct{})}
	return e, time.Time{}
}

// settle is for a delivery under way.
func (p *partition) settle(e *entry) {
	e.settled, e.out = true, nil
	p.out--
	for len(p.entries) > 0 && p.entries[0].settled {
		r := p.entries[0].record
		p.settled = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		p.entries[0] = nil
		p.entries = p.entries[1:]
		p.next = max(p.next-1, 0)
	}
}

// rewind makes entries from i on available again. Those that are under way are lost, from the last to the first, so that
// nobody works on one of them behind one that comes again.
func (p *partition) rewind(i int) {
	for j, e := range slices.Backward(p.entries[:p.next]) {
		if j < i {
			break
		}
		if e.settled {
			continue
		}
		if e.out != nil {
			close(e.out.lost)
			e.out = nil
			p.out--
		}
		e.again = true
		p.queue(1, e.record)
	}
	p.next = min(p.next, i)
}

// give gives up the partition with all that is under way in it.
func (p *partition) give() {
	p.leaving = true
	p.rewind(0)
	for _, e := range p.entries {
		if !e.settled {
			p.queue(-1, e.record)
		}
	}
	p.entries, p.next = nil, 0
}

// delivery settles one delivery of an entry.
type delivery struct {
	partition *partition
	entry     *entry
	lost      chan struct{}
}

var _ postrider.Settler = (*delivery)(nil)

// settle does f, unless the delivery is settled already or lost.
func (d *delivery) settle(f func(p *partition, e *entry)) error {
	s := d.partition.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.entry.out == d {
		f(d.partition, d.entry)
		s.tell()
	}
	return nil
}

// Ack implements postrider.Settler. Its offset is committed with the next commit, as soon as all before it are settled.
func (d *delivery) Ack(context.Context) error { return d.settle((*partition).settle) }

// Reject implements postrider.Settler.
func (d *delivery) Reject(ctx context.Context, _ string) error { return d.Ack(ctx) }

// Nack implements postrider.Settler. The whole partition waits for the time.
func (d *delivery) Nack(_ context.Context, after time.Duration) error {
	return d.settle(func(p *partition, e *entry) {
		e.out = nil // it is settled, not lost
		p.out--
		p.rewind(slices.Index(p.entries, e))
		p.notBefore = time.Now().Add(after)
	})
}

// Extend implements postrider.Settler. Nothing waits for a settlement but the members of the group that want the partition.
func (d *delivery) Extend(context.Context) error { return nil }

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.lost }
