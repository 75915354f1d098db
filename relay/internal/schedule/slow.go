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
		it.partition.parkSlow([]*Item[M]{it}, nil)
	}
}

// SlowCalls returns the partitions with a call of a single message, or of unfinished messages, that takes longer than ParkAfter.
func (s *Schedule[M]) SlowCalls(now time.Time) map[*Partition[M]]bool {
	slow := make(map[*Partition[M]]bool)
	for it, batch := range s.batches {
		if (len(batch) == 1 || it.Unfinished) && now.Sub(it.Started) >= s.cfg.ParkAfter {
			slow[it.partition] = true
		}
	}
	return slow
}

// parkSlow parks messages while they are being worked on, and holds their key: one message, or several of a queue. It parks those after
// them too: the rest of their call, and what waits in the queue. If this process dies, the messages are due again when the lease has ended;
// otherwise their outcomes apply to the parked messages.
func (p *Partition[M]) parkSlow(items, rest []*Item[M]) {
	first := items[0]
	if first.Key != "" {
		cause := fmt.Sprintf("attempt %d, or the wait of the messages after it, has taken more than %s", first.Attempts+1, p.schedule.cfg.ParkAfter)
		p.block(first, store.HeldKey{Reason: store.ParkSlow, Cause: cause, Attempts: first.Attempts, After: p.schedule.cfg.LeaseTTL})
	}
	all := &run{key: first.Key, left: len(items)}
	for i, it := range items {
		pk := store.ParkOutcome{Reason: store.ParkSlow, Attempts: it.Attempts, Waits: it.Key != "", After: p.schedule.cfg.LeaseTTL}
		if i > 0 {
			pk.Reason, pk.After = store.ParkHeld, 0
		}
		p.park(it, pk)
		it.parked, it.run = true, all
	}
	p.parkQueued(first.queue, rest)
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
