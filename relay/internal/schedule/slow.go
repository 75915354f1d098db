package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// ParkSlow parks work that has taken, or waited, for longer than ParkAfter, and resumes what has waited for calls of other
// schedules that have returned. down: a call takes long because of the destination, and not because of its message. heldUp: nothing may be
// sent at present, so queues that are long are not slow.
func (s *Schedule[M]) ParkSlow(down, heldUp bool, now time.Time) {
	s.resumeAwaiting()
	single := make(map[*queue[M]]*Item[M]) // the messages of queues that have one message out, alone in its call
	var slow []*Item[M]
	for it, batch := range s.batches {
		if len(batch) > 1 || it.partition.gone {
			continue
		}
		if it.queue != nil {
			single[it.queue] = it
		}
		if !down && it.holdsUp() && now.Sub(it.Started) >= s.cfg.ParkAfter {
			slow = append(slow, it)
		}
	}
	s.parkAllSlow(slow)
	slow = slow[:0]
	for q, it := range single {
		if p := it.partition; !heldUp && !p.leaving && p.held[q.key] == nil && it.holdsUp() && q.blocksOthers(it, now) {
			slow = append(slow, it)
		}
	}
	s.parkAllSlow(slow)
	s.parkAwaiting(now)
}

func (s *Schedule[M]) parkAllSlow(slow []*Item[M]) {
	slices.SortFunc(slow, func(a, b *Item[M]) int { return cmp.Compare(a.order, b.order) })
	for _, it := range slow {
		it.partition.parkSlow(it)
	}
}

// SlowCalls returns the partitions with a call of a single message that takes longer than ParkAfter.
func (s *Schedule[M]) SlowCalls(now time.Time) map[*Partition[M]]bool {
	slow := make(map[*Partition[M]]bool)
	for it, batch := range s.batches {
		if len(batch) == 1 && now.Sub(it.Started) >= s.cfg.ParkAfter {
			slow[it.partition] = true
		}
	}
	return slow
}

// parkSlow parks a message while it is being worked on, and holds its key. If this process dies, the message is due again
// when the lease has ended; otherwise its outcome applies to the parked message.
func (p *Partition[M]) parkSlow(it *Item[M]) {
	if it.Key != "" {
		cause := fmt.Sprintf("attempt %d, or the wait of the messages after it, has taken more than %s", it.Attempts+1, p.schedule.cfg.ParkAfter)
		p.block(it, store.HeldKey{Reason: store.ParkSlow, Cause: cause, Attempts: it.Attempts, After: p.schedule.cfg.LeaseTTL})
	}
	p.park(it, store.ParkOutcome{Reason: store.ParkSlow, Attempts: it.Attempts, Waits: it.Key != "", After: p.schedule.cfg.LeaseTTL})
	it.parked, it.run = true, &run{key: it.Key, left: 1}
	p.parkQueued(it.queue, nil)
}

// blocksOthers reports whether slow work on a key holds back the cursor of its partition or fills the memory: then the message
// that is out is parked with those queued after it, and they are read again in runs. (Parking only the queued messages would not
// do: if this process died, they would be due before the message that they follow was read again.) The first message in the
// queue must have waited for longer than ParkAfter, and one of these must hold:
//
//   - The queue is long.
//   - The key holds back the cursor, and many messages after it were read.
//   - The key holds back the cursor, and a parked message that is due waits for the cursor.
func (q *queue[M]) blocksOthers(out *Item[M], now time.Time) bool {
	p, s := q.partition, q.partition.schedule
	if q.head == nil || now.Sub(q.head.since) < s.cfg.ParkAfter {
		return false
	}
	much := max(s.Fresh.MaxMessages/16, 16)
	return q.waiting >= much || (len(p.early) > 0 || p.tracker.open() >= much) && q.holdsBack(out)
}

// holdsBack reports whether the first message that is not done is the one that is out, or one queued after it.
func (q *queue[M]) holdsBack(out *Item[M]) bool {
	begin := q.partition.tracker.begin()
	return out.ticket == begin || q.has(func(it *Item[M]) bool { return it.ticket == begin })
}
