package schedule

import (
	"time"

	"github.com/postrider/postrider/store"
)

// With transactions, the fresh messages of a partition wait in one queue, the transaction queue, in the order in which they
// were read, instead of in queues of their keys. Its first messages share a transaction, which moves the cursor past them: each
// commit is a prefix of the unsettled messages. While the transaction is in progress, settlements of the partition's other
// outcomes wait; they are committed with it.
//
// A message is parked only when it has reached the front. So whatever is recorded of a message from the log, a side effect,
// its parking or its dead letter, is recorded together with a cursor that has passed it, and the next owner of the partition
// does not read it again.
//
// Messages that were committed late are settled all together or not at all, because the cursor cannot be between them; so all
// of them are at the front of one transaction. Parked messages have queues of their keys, as without transactions, and each
// has a transaction of its own.

// txQueueKey is the map key of the transaction queue among the queues of its partition. No key has a NUL byte.
const txQueueKey = "\x00"

func (q *queue[M]) isTxQueue() bool { return q != nil && q.key == txQueueKey }

// inTxQueue reports whether an item waits in its partition's transaction queue: messages from the log, and messages that were
// parked independently, since they take their turn among the messages of their key.
func (s *Schedule[M]) inTxQueue(it *Item[M]) bool {
	return s.cfg.Transactions && (it.run == nil || it.run.key == "" && it.Key != "")
}

// waitingInTxQueue returns the keys of the messages in the transaction queue.
func (p *Partition[M]) waitingInTxQueue() map[string]struct{} {
	q := p.queues[txQueueKey]
	if q == nil {
		return nil
	}
	keys := make(map[string]struct{}, q.waiting)
	for it := q.head; it != nil; it = it.next {
		keys[it.Key] = struct{}{}
	}
	return keys
}

// uncertainCommit records messages for which it is unknown whether their commit took effect. If they are read again, it did
// not.
type uncertainCommit struct {
	sequences map[int64]struct{}
	cause     error
}

// takeTx takes the front of a transaction queue, unless a settlement of its partition is in progress, which may hold back the
// cursor.
func (s *Schedule[M]) takeTx(batch []*Item[M], q *queue[M], now time.Time) []*Item[M] {
	p := q.partition
	q.running = true
	if p.settling {
		q.blocked = true
		return batch
	}
	batch = q.front(batch, now)
	if len(batch) == 0 {
		q.running = false
		p.reopen(q)
		return batch
	}
	q.out, p.settling = len(batch), true
	p.inTx = make(map[string]struct{}, len(batch))
	for _, it := range batch {
		p.inTx[it.Key] = struct{}{}
	}
	return batch
}

// front takes messages from a transaction queue until a transaction is full. It parks those that cannot be worked on.
func (q *queue[M]) front(batch []*Item[M], now time.Time) []*Item[M] {
	p, n := q.partition, q.partition.schedule.cfg.TxBatch
	if q.limit > 0 {
		n = q.limit
	}
	q.limit, q.late = 0, 0
	group := uint64(0) // the ticket after the late group at the front
	for q.head != nil {
		it := q.head
		late := !it.parked && p.tracker.lateUntil(it.ticket) > it.ticket
		inGroup := late && it.ticket < group
		// A message is parked only at the front: if the transaction fails, the cursor stays before it. The next group, and each
		// parked message, starts a new transaction.
		parking, parks := it.parking(now)
		if len(batch) > 0 && !inGroup && (late || len(batch) >= n || it.parked || parks) {
			break
		}
		if parks {
			p.park(it, parking)
			q.pop().drop()
			continue
		}
		if len(batch) == 0 {
			if late {
				group = p.tracker.lateUntil(it.ticket)
			}
			if p.wasUncertain(it) {
				if late && q.parkGroup(group) {
					continue
				}
				n = 1
			}
			if it.parked {
				n = 1
			}
		}
		batch = append(batch, q.pop())
		if late {
			q.late = len(batch)
		}
	}
	return batch
}

// parking says how to park a message at the front of its transaction queue, if it is not due yet or its key is held.
func (it *Item[M]) parking(now time.Time) (pk store.ParkOutcome, parks bool) {
	if left := it.Delay - now.Sub(it.since); it.Delay > 0 && left > 0 {
		return store.ParkOutcome{Reason: store.ParkDelayed, After: left}, true
	}
	if it.partition.held[it.Key] != nil {
		return store.ParkOutcome{Reason: store.ParkHeld, Attempts: it.Attempts, Waits: true}, true
	}
	return pk, false
}

// wasUncertain reports whether a commit with this message did not take effect, so that it needs a transaction of its own. The
// second time, the failure is the message's own.
func (p *Partition[M]) wasUncertain(it *Item[M]) bool {
	d := p.schedule.uncertain[p.Lease.Partition]
	if d == nil {
		return false
	}
	if _, is := d.sequences[it.Sequence]; !is { // later ones: the commit took effect, or they have had their own transactions
		delete(p.schedule.uncertain, p.Lease.Partition)
		return false
	}
	if len(d.sequences) == 1 {
		it.Refused = d.cause
		delete(p.schedule.uncertain, p.Lease.Partition)
	}
	return true
}

// parkGroup parks the messages of a late group at the front of a transaction queue, so that each has a transaction of its
// own, and reports whether there are several.
func (q *queue[M]) parkGroup(until uint64) bool {
	inGroup := func(it *Item[M]) bool { return it != nil && !it.parked && it.ticket < until }
	if !inGroup(q.head.next) {
		return false
	}
	for inGroup(q.head) {
		q.partition.parkAlone(q.pop())
	}
	return true
}

// parkAlone parks a message of a late group in which another message failed.
func (p *Partition[M]) parkAlone(it *Item[M]) {
	p.parkUnattempted(it, store.ParkAlone, "a message that was committed late with it failed, and they are tried one by one")
}

// Late returns how many messages of a transaction, counted from the first, can only be settled together.
func Late[M any](batch []*Item[M]) int {
	if q := batch[0].queue; q != nil {
		return q.late
	}
	return 0
}

// Commit returns what the transaction of a batch commits in addition to its side effects. That of a transaction queue
// includes all pending outcomes of its partition, which must be recorded before the cursor passes them. It returns nil if the
// partition is lost.
func (s *Schedule[M]) Commit(batch []*Item[M]) *Settlement {
	p := batch[0].partition
	if p.gone {
		return nil
	}
	out := &Settlement{Settlement: store.Settlement{Partition: p.Lease.Partition, Token: p.Lease.Token}}
	if batch[0].queue.isTxQueue() {
		upTo := p.tracker.begin()
		for _, it := range batch {
			if !it.parked {
				upTo = it.ticket + 1
			}
		}
		then := p.tracker.ifDoneUpTo(upTo)
		out = p.takePending(then.cursor, true, then.begin(), then.passed)
	}
	out.DeliveredCount += int64(len(batch))
	for _, it := range batch {
		if it.parked {
			out.Removed = append(out.Removed, it.Sequence)
		} else {
			out.Delivered = append(out.Delivered, it.Sequence)
		}
	}
	return out
}

// Committed processes a commit of the first done messages of a batch; there was no time for the others. It returns what
// Partition.Settled does.
func (s *Schedule[M]) Committed(batch []*Item[M], done int, out *Settlement, released []string, now time.Time) (soonest time.Duration) {
	p, q := batch[0].partition, batch[0].queue
	if !s.comeBackTx(batch) {
		return -1
	}
	if done < len(batch) {
		p.requeue(q, batch[done:])
	}
	soonest = -1
	for _, it := range batch[:done] {
		if !it.parked {
			p.tracker.finish(it.ticket)
			p.deliveredUpTo = max(p.deliveredUpTo, it.ticket+1)
		}
		delete(p.busy, it.Sequence)
		p.end(it)
	}
	if q.isTxQueue() {
		p.tracker.advance()
		p.cursorMoved = p.tracker.cursor != out.Cursor // because of what was settled since
		soonest = p.Settled(out, released, now)
	}
	p.endCallTx(q)
	return soonest
}

// NotParked processes a commit that was refused because a parked message of the batch is no longer parked: an operator's
// decision takes precedence. The handlers' work was rolled back.
func (s *Schedule[M]) NotParked(batch []*Item[M], out *Settlement) {
	p, q := batch[0].partition, batch[0].queue
	if !s.comeBackTx(batch) {
		return
	}
	if q.isTxQueue() {
		p.restore(out, len(batch))
	}
	for _, it := range batch {
		delete(p.busy, it.Sequence)
		p.end(it)
	}
	p.endCallTx(q)
}

// restore returns to the pending outcomes what a transaction that was not committed had taken from them.
func (p *Partition[M]) restore(s *Settlement, messages int) {
	p.uncountUnrouted(s.Unrouted)
	if p.inFlight == 0 {
		return
	}
	n := &p.pending
	n.Parked, n.Dead = append(s.Parked, n.Parked...), append(s.Dead, n.Dead...)
	n.Held, n.Release = append(s.Held, n.Held...), append(s.Release, n.Release...)
	n.FailedCount += s.FailedCount
	n.DeliveredCount += s.DeliveredCount - int64(messages)
	p.unsent, p.inFlight = p.unsent+p.inFlight, 0
}

// Uncertain records that it is unknown whether the commit of a transaction queue's messages took effect, and reports whether it
// is one. The caller loses the partition then: under a new lease the commit can no longer take effect, and the cursor says
// whether it did. If a parked message's commit took effect, what is recorded of it later finds it gone.
func (s *Schedule[M]) Uncertain(batch []*Item[M], cause error) bool {
	if !batch[0].queue.isTxQueue() {
		return false
	}
	if p := batch[0].partition; !p.gone {
		u := &uncertainCommit{sequences: make(map[int64]struct{}, len(batch)), cause: cause}
		for _, it := range batch {
			u.sequences[it.Sequence] = struct{}{}
		}
		s.uncertain[p.Lease.Partition] = u
	}
	return true
}

// Undone processes a transaction that did not take effect because the message at an index failed; outcome returns what became
// of it, if that counts. Without outcome, no message was attempted.
func (s *Schedule[M]) Undone(batch []*Item[M], at int, outcome func() Outcome) {
	p, q := batch[0].partition, batch[0].queue
	if !s.comeBackTx(batch) {
		return
	}
	defer p.endCallTx(q)
	switch {
	case outcome == nil:
		p.requeue(q, batch)
	case at == 0:
		if len(batch) > 1 {
			p.requeue(q, batch[1:])
		}
		o := outcome()
		if p.fail(batch[0], &o) && !q.isTxQueue() {
			p.parkQueued(q, nil)
		}
	case at < q.late: // those before it cannot be settled without it
		for _, it := range batch[:q.late] {
			p.parkAlone(it)
		}
		if rest := batch[q.late:]; len(rest) > 0 {
			p.requeue(q, rest)
		}
	default:
		p.requeue(q, batch)
		q.limit = at
	}
}

// comeBackTx records that a transaction has ended. It reports whether its partition is still held; if not, the batch is dropped.
func (s *Schedule[M]) comeBackTx(batch []*Item[M]) bool {
	s.returned(batch)
	return batch[0].partition.comeBack(batch)
}

// endCallTx ends the processing of a transaction, for which settlements may have waited.
func (p *Partition[M]) endCallTx(q *queue[M]) {
	p.endCall(q)
	p.schedule.Wake.Settle = p.schedule.Wake.Settle || p.unsent > 0
}
