package memorybroker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider"
)

// group is the broker's state of one consumer group. It is guarded by Broker.mu.
type group struct {
	partitions int // of each topic; 0 for queues
	members    []*subscription
	streams    map[streamKey]*stream
	read       map[string]int // by topic: number of messages already in the streams
}

type streamKey struct {
	topic     string
	partition int
}

// stream is a queue, or one partition of a log.
type stream struct {
	key               streamKey
	name, incarnation string
	owner             *subscription // of a partition; nil for a queue
	entries           []*entry
	first             int         // all entries before it are settled
	superseded        []*delivery // earlier deliveries of entries that are available again; lost together with the others
}

// entry is one message of a stream.
type entry struct {
	msg        *postrider.Message
	offset     int64
	settled    bool
	out        *delivery // the current delivery; nil if none
	deliveries int
	notBefore  time.Time
}

// fill adds newly accepted messages to the streams.
func (g *group) fill(b *Broker, topics []string) {
	before := len(g.streams)
	for _, topic := range topics {
		msgs := b.topics[topic]
		for _, m := range msgs[min(g.read[topic], len(msgs)):] {
			k := streamKey{topic: topic}
			if g.partitions > 0 {
				k.partition = postrider.PartitionOf(m.Key, m.ID, g.partitions)
			}
			st := g.streams[k]
			if st == nil {
				st = &stream{key: k, name: partitionName(topic, k.partition), incarnation: strconv.Itoa(b.incarnations[topic])}
				g.streams[k] = st
			}
			st.entries = append(st.entries, &entry{msg: m, offset: int64(len(st.entries))})
		}
		g.read[topic] = len(msgs)
	}
	if len(g.streams) != before {
		g.assign()
	}
}

func (g *group) sorted() []*stream {
	return slices.SortedFunc(maps.Values(g.streams), func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.key.topic, b.key.topic), cmp.Compare(a.key.partition, b.key.partition))
	})
}

// assign distributes the partitions of a log among the members. Deliveries of a partition that changes its owner are
// lost.
func (g *group) assign() {
	if g.partitions == 0 || len(g.members) == 0 {
		return
	}
	for _, st := range g.streams {
		if owner := g.members[st.key.partition%len(g.members)]; st.owner != owner {
			st.lose()
			st.owner = owner
		}
	}
}

// lose revokes all deliveries, from the last to the first (see postrider.Settler.Lost).
func (st *stream) lose() { st.loseIf(func(*delivery) bool { return true }) }

// loseOf revokes the deliveries of a member.
func (st *stream) loseOf(s *subscription) { st.loseIf(func(d *delivery) bool { return d.sub == s }) }

func (st *stream) loseIf(is func(*delivery) bool) {
	var lost []*delivery
	st.superseded = slices.DeleteFunc(st.superseded, func(d *delivery) bool {
		if is(d) {
			lost = append(lost, d)
		}
		return is(d)
	})
	for _, e := range st.entries {
		if e.out != nil && is(e.out) {
			lost = append(lost, e.out)
			e.out = nil
		}
	}
	slices.SortStableFunc(lost, func(a, b *delivery) int { return cmp.Compare(b.entry.offset, a.entry.offset) })
	for _, d := range lost {
		close(d.lost)
	}
}

// expire makes entries available whose settlement is overdue. It returns the time until the next one is due; negative if
// there is none.
func (st *stream) expire(now time.Time, ordered bool) time.Duration {
	next := time.Duration(-1)
	for i, e := range st.entries {
		if e.out == nil || e.out.until.IsZero() {
			continue
		}
		if wait := e.out.until.Sub(now); wait > 0 {
			next = earlier(next, wait)
			continue
		}
		st.again(i, ordered)
	}
	return next
}

// again makes an entry available; in a log, all entries after it too.
func (st *stream) again(i int, ordered bool) {
	st.supersede(st.entries[i])
	if !ordered {
		return
	}
	for _, e := range st.entries[i+1:] {
		st.supersede(e)
	}
}

// supersede makes an entry available even if it has an unsettled delivery.
func (st *stream) supersede(e *entry) {
	if e.out != nil {
		st.superseded = append(st.superseded, e.out)
		e.out = nil
	}
}

// next returns the next entry to deliver, or nil and the time until there may be one; negative if unknown.
func (st *stream) next(now time.Time, ordered bool, pick func(int) int) (*entry, time.Duration) {
	for st.first < len(st.entries) && st.entries[st.first].settled {
		st.first++
	}
	wait := time.Duration(-1)
	var can []*entry
	for _, e := range st.entries[st.first:] {
		if e.settled || e.out != nil {
			continue
		}
		if left := e.notBefore.Sub(now); left > 0 {
			wait = earlier(wait, left)
			if ordered {
				break // the entries after it wait too
			}
			continue
		}
		if can = append(can, e); ordered || pick == nil {
			break
		}
	}
	switch {
	case len(can) == 0:
		return nil, wait
	case len(can) == 1 || pick == nil:
		return can[0], 0
	default:
		return can[pick(len(can))], 0
	}
}

// earlier returns the smaller of two durations; negative means none.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// delivery is one unsettled delivery of a message.
type delivery struct {
	sub    *subscription
	stream *stream
	entry  *entry
	msg    *postrider.Message
	until  time.Time // zero: no limit
	lost   chan struct{}
}

var _ postrider.Settler = (*delivery)(nil)

// settle calls f unless the delivery is already settled or lost.
func (d *delivery) settle(op string, f func()) error {
	var before, after error
	if fault := d.sub.cfg.SettleFault; fault != nil {
		before, after = fault(op, d.msg)
	}
	if before != nil {
		return postrider.Unavailable(before)
	}
	b := d.sub.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.unavailable(); err != nil {
		return err
	}
	if d.entry.out == d {
		f()
		b.tell()
	}
	if after != nil {
		return postrider.Unavailable(after)
	}
	return nil
}

// Ack implements postrider.Settler.
func (d *delivery) Ack(context.Context) error {
	return d.settle("Ack", func() { d.entry.settled, d.entry.out = true, nil })
}

// Reject implements postrider.Settler.
func (d *delivery) Reject(context.Context, string) error {
	return d.settle("Reject", func() { d.entry.settled, d.entry.out = true, nil })
}

// Nack implements postrider.Settler.
func (d *delivery) Nack(_ context.Context, after time.Duration) error {
	return d.settle("Nack", func() {
		d.entry.notBefore, d.entry.out = time.Now().Add(after), nil
		if d.sub.group.partitions > 0 {
			d.stream.loseIf(func(other *delivery) bool { return other.entry.offset > d.entry.offset })
		}
	})
}

// Extend implements postrider.Settler.
func (d *delivery) Extend(context.Context) error {
	return d.settle("Extend", func() {
		if d.sub.cfg.AckWait > 0 {
			d.until = time.Now().Add(d.sub.cfg.AckWait)
		}
	})
}

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.lost }
