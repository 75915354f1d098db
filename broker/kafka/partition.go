package kafkabroker

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// maxAhead is how many records of a partition are delivered beyond the first one that is not settled. It bounds what is kept of them
// in memory, and what is redelivered when the partition changes its member.
const maxAhead = 16384

// partition is a partition that this member owns. The subscription's mutex guards its fields, and those of entries and
// deliveries.
type partition struct {
	sub         *Subscription
	topic       string
	number      int32
	name        string // topic/number
	incarnation string // the topic's ID; "" if unknown
	// topicID is the topic's ID as reported before the first fetch.
	topicID string

	// entries are the fetched records in order, without leading settled ones; there may be settled ones in between.
	// Entries from next on are still to be delivered, unless settled.
	entries []*entry
	next    int
	out     int // unsettled deliveries
	// queued is the number of records to deliver, queuedBytes the size of their keys and values. If paused, the client
	// fetches nothing of this partition.
	queued, queuedBytes int
	paused              bool
	// notBefore is the earliest time of the next delivery.
	notBefore time.Time
	// settled is the offset to commit: the one after the last record up to which everything is settled; -1 if there is
	// none. committed is the last committed offset.
	settled   kgo.EpochOffset
	committed int64
	// elected is incremented when records come from another leader epoch.
	elected  int64
	leader   int32
	expected int64 // next offset if it exists; -1 if unknown
	leaving  bool  // nothing more is delivered
	placing  bool  // nothing is delivered until an offset is committed; see Subscription.begin
}

// entry is a fetched record.
type entry struct {
	record  *kgo.Record     // nil when settled
	after   kgo.EpochOffset // to commit when everything up to it is settled
	settled bool
	session int64     // of its deliveries
	again   bool      // it was delivered before
	out     *delivery // the unsettled delivery; nil if none
}

// position returns the position of an entry.
func (p *partition) position(e *entry) postrider.Position {
	return postrider.Position{Incarnation: p.incarnation, Partition: p.name, Offset: e.record.Offset, Mark: recordMark(e.record)}
}

// checkStart logs an error if records were deleted before they were read.
func (p *partition) checkStart(start int64) {
	if p.expected >= 0 && start > p.expected {
		p.sub.cfg.Logger.Error("Kafka has deleted messages that the group had not read: the topic's retention is shorter than the group's lag; publish them again (replay)",
			"group", p.sub.cfg.Group, "topic", p.topic, "partition", p.number, "first", p.expected, "last", start-1)
		p.expected = start
	}
}

// add adds the next record.
func (p *partition) add(r *kgo.Record) {
	p.expected = r.Offset + 1
	if r.LeaderEpoch != p.leader {
		p.leader = r.LeaderEpoch
		p.elected++
	}
	p.entries = append(p.entries, &entry{
		record: r, after: kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}, session: p.sub.health.cuts.Load() + p.elected,
	})
	p.queue(1, r)
}

// queue counts records to deliver.
func (p *partition) queue(n int, r *kgo.Record) {
	p.queued += n
	p.queuedBytes += n * (len(r.Key) + len(r.Value))
}

// full reports whether nothing may be delivered until the first entry is settled.
func (p *partition) full() bool { return p.next >= maxAhead }

// deliver returns the next entry to deliver, or nil and the time when there may be one; zero if unknown.
func (p *partition) deliver(now time.Time) (*entry, time.Time) {
	for p.next < len(p.entries) && p.entries[p.next].settled {
		p.next++
	}
	if p.leaving || p.placing || p.full() || p.next == len(p.entries) {
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

// settle settles an entry that has an unsettled delivery.
func (p *partition) settle(e *entry) {
	e.settled, e.record, e.out = true, nil, nil
	p.out--
	for len(p.entries) > 0 && p.entries[0].settled {
		p.settled = p.entries[0].after
		p.entries[0] = nil
		p.entries = p.entries[1:]
		p.next = max(p.next-1, 0)
	}
}

// rewind makes the entries from index i on available again. Their deliveries are lost, from the last to the first, so
// that none of them is worked on after an earlier one was redelivered.
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

// give releases the partition. All its deliveries are lost.
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

// settle calls f unless the delivery is already settled or lost.
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

// Ack implements postrider.Settler. The offset is committed by the next commit after all earlier messages are settled.
func (d *delivery) Ack(context.Context) error { return d.settle((*partition).settle) }

// Reject implements postrider.Settler.
func (d *delivery) Reject(ctx context.Context, _ string) error { return d.Ack(ctx) }

// Nack implements postrider.Settler. The whole partition waits for the delay.
func (d *delivery) Nack(_ context.Context, after time.Duration) error {
	return d.settle(func(p *partition, e *entry) {
		e.out = nil // it is settled, not lost
		p.out--
		p.rewind(slices.Index(p.entries, e))
		p.notBefore = time.Now().Add(after)
	})
}

// Extend implements postrider.Settler. It does nothing: settlements have no deadline, except when the partition is
// revoked.
func (d *delivery) Extend(context.Context) error { return nil }

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.lost }
