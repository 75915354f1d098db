package schedule

import (
	"time"

	"github.com/postrider/postrider/store"
)

// With transactions, the fresh messages of a partition wait in one queue, the transaction queue, in the order in which they
// were read, instead of in queues of their keys. Its first messages share a transaction, which moves the cursor past them: each
// commit is a prefix of the messages that are not done. While the transaction is in progress, settlements of the partition's other
// outcomes wait; they are committed with it.
//
// A message is parked only when it has reached the front, or by the transaction that it shares with those before it because it is
// not due. So whatever is recorded of a message from the log, a side effect, its parking or its dead letter, is recorded together
// with a cursor that has passed it, and the next owner of the partition does not read it again.
//
// Messages that were committed late are settled all together or not at all, because the cursor cannot be between them; so all
// of them are at the front of one transaction. The parked messages of a held key, and those without a key, have queues of their
// keys, as without transactions, and each has a transaction of its own. Others that were parked, because they were not due or an operator
// sent them again, are in the transaction queue too.

// txQueue is the transaction queue of a partition. A nil one, without transactions, has no messages.
type txQueue[M any] struct {
	queue[M]
	working map[string]struct{} // the keys of the messages in the transaction in progress
	blocked bool                // it waits for a settlement in progress
	// limit, if positive, is the maximum number of messages in the next transaction. late is how many of those out, counted
	// from the first, were committed late and can only be settled together.
	limit, late int
	// suspects is how many of the first messages failed together, nobody knows because of which: the next transaction has half of them.
	suspects int
}

// is reports whether a queue is this one.
func (tx *txQueue[M]) is(q *queue[M]) bool { return tx != nil && q == &tx.queue }

// works reports whether a message of a key is in the transaction in progress.
func (tx *txQueue[M]) works(key string) bool {
	if tx == nil {
		return false
	}
	_, works := tx.working[key]
	return works
}

// waits returns the keys of the messages that wait.
func (tx *txQueue[M]) waits() map[string]struct{} {
	if tx == nil {
		return nil
	}
	keys := make(map[string]struct{}, tx.waiting)
	for it := tx.head; it != nil; it = it.next {
		keys[it.Key] = struct{}{}
	}
	return keys
}

// take takes the messages of the next transaction, unless a settlement of the partition is in progress, which may hold back
// the cursor.
func (tx *txQueue[M]) take(batch []*Item[M], now time.Time) []*Item[M] {
	p := tx.partition
	tx.running = true
	if p.settling {
		tx.blocked = true
		return batch
	}
	batch = tx.front(batch, now)
	if len(batch) == 0 {
		tx.running = false
		p.reopen(&tx.queue)
		return batch
	}
	tx.out, p.settling = len(batch), true
	for _, it := range batch {
		tx.working[it.Key] = struct{}{}
	}
	return batch
}

// unblock resumes a queue that has waited for a settlement.
func (tx *txQueue[M]) unblock() {
	if tx != nil && tx.blocked {
		tx.blocked, tx.running = false, false
		tx.partition.reopen(&tx.queue)
	}
}

// front takes messages until a transaction is full. It parks those that cannot be worked on.
func (tx *txQueue[M]) front(batch []*Item[M], now time.Time) []*Item[M] {
	p, n := tx.partition, tx.partition.schedule.cfg.TxBatch
	if tx.limit > 0 {
		n = tx.limit
	} else if tx.suspects > 0 {
		n = max(tx.suspects/2, 1)
	}
	tx.limit, tx.late = 0, 0
	group := uint64(0) // the ticket after the late group at the front
	for tx.head != nil {
		it := tx.head
		late := !it.parked && p.tracker.lateUntil(it.ticket) > it.ticket
		inGroup := late && it.ticket < group
		// A message is parked only at the front: if the transaction fails, the cursor stays before it. The next late group starts a
		// new transaction.
		parking, parks := it.parking(now)
		it.NotDue, it.DueIn = false, 0
		if parks && len(batch) > 0 && !late && !it.parked && parking.Reason == store.ParkDelayed {
			it.NotDue, it.DueIn, parks = true, parking.After, false
		}
		if len(batch) > 0 && !inGroup && (late || len(batch) >= n || parks || p.mayBeCommitted(it)) {
			break
		}
		if parks {
			p.park(it, parking)
			tx.pop().drop()
			continue
		}
		if len(batch) == 0 {
			if late {
				group = p.tracker.lateUntil(it.ticket)
			}
			if p.wasUncertain(it) {
				if late && tx.parkGroup(group) {
					continue
				}
				n = 1
			}
		}
		batch = append(batch, tx.pop())
		if late {
			tx.late = len(batch)
		}
	}
	tx.suspects = max(tx.suspects-len(batch), 0)
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

// parkGroup parks the messages of a late group at the front, so that each has a transaction of its own, and reports whether there
// are several.
func (tx *txQueue[M]) parkGroup(until uint64) bool {
	inGroup := func(it *Item[M]) bool { return it != nil && !it.parked && it.ticket < until }
	if !inGroup(tx.head.next) {
		return false
	}
	for inGroup(tx.head) {
		tx.partition.parkAlone(tx.pop())
	}
	return true
}

// parkAlone parks a message of a late group in which another message failed.
func (p *Partition[M]) parkAlone(it *Item[M]) {
	p.parkUnattempted(it, store.ParkAlone, "a message that was committed late with it failed, and they are tried one by one")
}

// Late returns how many messages of a transaction, counted from the first, can only be settled together.
func Late[M any](batch []*Item[M]) int {
	if tx := batch[0].partition.tx; tx.is(batch[0].queue) {
		return tx.late
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
	if p.tx.is(batch[0].queue) {
		upTo := p.tracker.begin()
		for _, it := range batch {
			if !it.parked {
				upTo = it.ticket + 1
			}
		}
		then := p.tracker.ifDoneUpTo(upTo)
		out = p.takePending(then.cursor, true, then.begin(), then.passed)
		out.taken = out.Settlement
	}
	for _, it := range batch {
		switch {
		case it.NotDue:
			p.outdated[it.Sequence] = struct{}{} // until it is known that it is parked
			out.Parked = append(out.Parked, store.ParkOutcome{
				Sequence: it.Sequence, Key: it.Key, FromLog: true, Reason: store.ParkDelayed, After: it.DueIn,
			})
			continue
		case it.parked:
			out.Removed = append(out.Removed, it.Sequence)
		default:
			out.Delivered = append(out.Delivered, it.Sequence)
		}
		out.DeliveredCount++
	}
	return out
}

// Committed processes a commit of the first done messages of a batch; there was no time for the others. It returns what
// Partition.Confirm does.
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
		delete(p.outdated, it.Sequence)
		p.end(it)
	}
	if p.tx.is(q) {
		p.tracker.advance()
		p.cursorMoved = p.tracker.cursor != out.Cursor // because of what was settled since
		soonest = p.Confirm(out, released, now)
	}
	p.endCallTx(q)
	return soonest
}

// NotParked processes a commit that was refused because a parked message of the batch is no longer parked: an operator's
// decision takes precedence. The handlers' work was rolled back. Several messages are tried again in smaller transactions.
func (s *Schedule[M]) NotParked(batch []*Item[M], out *Settlement) {
	p, q := batch[0].partition, batch[0].queue
	if !s.comeBackTx(batch) {
		return
	}
	defer p.endCallTx(q)
	if p.tx.is(q) {
		p.restore(out)
	}
	if len(batch) > 1 {
		p.takeLess(q, batch, 0, len(batch))
		return
	}
	delete(p.outdated, batch[0].Sequence)
	p.end(batch[0])
}

// restore returns to the pending outcomes what a transaction that was not committed had taken from them.
func (p *Partition[M]) restore(s *Settlement) {
	p.uncountUnrouted(s.Unrouted)
	for _, pk := range s.Parked[len(s.taken.Parked):] { // by the transaction itself
		delete(p.outdated, pk.Sequence)
	}
	if p.inFlight == 0 {
		return
	}
	n, taken := &p.pending, &s.taken
	n.Parked, n.Dead = append(taken.Parked, n.Parked...), append(taken.Dead, n.Dead...)
	n.Held, n.Release = append(taken.Held, n.Held...), append(taken.Release, n.Release...)
	n.FailedCount += taken.FailedCount
	n.DeliveredCount += taken.DeliveredCount
	p.unsent, p.inFlight = p.unsent+p.inFlight, 0
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
		if p.fail(batch[0], &o) && !p.tx.is(q) {
			p.parkQueued(q, nil)
		}
	default:
		p.takeLess(q, batch, at, 0)
	}
}

// Isolate processes a transaction that did not take effect because several messages from an index on failed together, nobody knows
// which. What is before them is tried again without them, and they in halves, until the one that fails is alone.
func (s *Schedule[M]) Isolate(batch []*Item[M], at, together int) {
	p, q := batch[0].partition, batch[0].queue
	if s.comeBackTx(batch) {
		p.takeLess(q, batch, at, together)
		p.endCallTx(q)
	}
}

// takeLess returns messages to the transaction queue. The next transaction has those before an index, if there are any; of the suspects
// after them, later ones have half.
func (p *Partition[M]) takeLess(q *queue[M], batch []*Item[M], at, suspects int) {
	if late := p.tx.late; late > 1 && at < late { // they cannot be settled one by one
		for _, it := range batch[:late] {
			p.parkAlone(it)
		}
		if rest := batch[late:]; len(rest) > 0 {
			p.requeue(q, rest)
		}
		return
	}
	p.requeue(q, batch)
	p.tx.limit, p.tx.suspects = at, 0
	if suspects > 0 {
		p.tx.suspects = at + suspects
	}
}

// comeBackTx records that a transaction has ended. It reports whether its partition is still held; if not, the batch is dropped.
func (s *Schedule[M]) comeBackTx(batch []*Item[M]) bool {
	s.returned(batch)
	p := batch[0].partition
	if p.tx.is(batch[0].queue) {
		p.settling = false
		clear(p.tx.working)
	}
	return p.comeBack(batch)
}

// endCallTx ends the processing of a transaction, for which settlements may have waited.
func (p *Partition[M]) endCallTx(q *queue[M]) {
	p.endCall(q)
	p.schedule.Wake.Settle = p.schedule.Wake.Settle || p.unsent > 0
}
