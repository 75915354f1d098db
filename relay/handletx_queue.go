package relay

import (
	"time"

	"github.com/postrider/postrider/store"
)

// With HandleTx, the fresh messages of a partition wait in one queue, the transaction queue, in the order in which they were
// read, instead of in queues of their keys. Its first messages share a transaction, which moves the cursor past them: each
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

// txQueueKey is the map key of the transaction queue among the queues of its partition; no message has it.
const txQueueKey = "\x00"

func (q *keyQueue) isTxQueue() bool { return q != nil && q.key == txQueueKey }

// inTxQueue reports whether an item waits in its partition's transaction queue: messages from the log, and messages that were
// parked independently, since they take their turn among the messages of their key.
func (r *Relay) inTxQueue(it *item) bool {
	return r.tx != nil && (it.run == nil || it.run.key == "" && it.key != "")
}

// uncertainCommit records messages for which it is unknown whether their commit took effect. If they are read again, it did
// not.
type uncertainCommit struct {
	sequences map[int64]struct{}
	cause     error
}

func newUncertainCommit(batch []*item, cause error) *uncertainCommit {
	d := &uncertainCommit{sequences: make(map[int64]struct{}, len(batch)), cause: cause}
	for _, it := range batch {
		d.sequences[it.seq] = struct{}{}
	}
	return d
}

// fillTx takes the messages of one transaction: the front of a transaction queue, or one parked message.
func (r *Relay) fillTx(batch []*item) []*item {
	u := r.sched.next()
	switch {
	case r.expired(u, time.Now()), r.awaitsCall(u):
		return batch
	case u.queue == nil:
		return append(batch, u.item)
	case u.queue.isTxQueue():
		return r.fillTxQueue(batch, u.queue)
	}
	u.queue.running, u.queue.out = true, 1
	return append(batch, u.queue.pop())
}

// fillTxQueue takes the front of a transaction queue, unless a settlement of its partition is in progress, which may hold
// back the cursor.
func (r *Relay) fillTxQueue(batch []*item, q *keyQueue) []*item {
	p := q.partition
	q.running = true
	if p.sending {
		q.blocked = true
		return batch
	}
	batch = r.front(batch, q)
	if len(batch) == 0 {
		q.running = false
		r.closeQueue(p, q)
		return batch
	}
	q.out, p.sending = len(batch), true
	p.taken = make(map[string]struct{}, len(batch))
	for _, it := range batch {
		p.taken[it.key] = struct{}{}
	}
	return batch
}

// front takes messages from a transaction queue until a transaction is full. It parks those that cannot be worked on.
func (r *Relay) front(batch []*item, q *keyQueue) []*item {
	p, n := q.partition, r.cfg.TxBatch
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
		parking := r.parkingOf(it)
		if len(batch) > 0 && !inGroup && (late || len(batch) >= n || it.parked || parking != nil) {
			break
		}
		if parking != nil {
			r.park(it, *parking)
			r.drop(q.pop())
			continue
		}
		if len(batch) == 0 {
			if late {
				group = p.tracker.lateUntil(it.ticket)
			}
			if r.wasUncertain(it) {
				if late && r.parkGroup(q, group) {
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

// parkingOf says how to park a message at the front of its transaction queue, because it is not due yet or its key is held;
// nil if it is not to be parked.
func (r *Relay) parkingOf(it *item) *store.ParkOutcome {
	if left := it.delay - time.Since(it.since); it.delay > 0 && left > 0 {
		return &store.ParkOutcome{Reason: store.ParkDelayed, After: left}
	}
	if it.partition.held[it.key] != nil {
		return &store.ParkOutcome{Reason: store.ParkHeld, Waits: true, Attempts: it.attempts}
	}
	return nil
}

// wasUncertain reports whether a commit with this message did not take effect, so that it needs a transaction of its own. The
// second time, the failure is the message's own.
func (r *Relay) wasUncertain(it *item) bool {
	id := it.partition.id
	d := r.uncertain[id]
	if d == nil {
		return false
	}
	if _, is := d.sequences[it.seq]; !is { // later ones: the commit took effect, or they have had their own transactions
		delete(r.uncertain, id)
		return false
	}
	if len(d.sequences) == 1 {
		it.refused = d.cause
		delete(r.uncertain, id)
	}
	return true
}

// parkGroup parks the messages of a late group at the front of a transaction queue, so that each has a transaction of its
// own, and reports whether there are several.
func (r *Relay) parkGroup(q *keyQueue, until uint64) bool {
	inGroup := func(it *item) bool { return it != nil && !it.parked && it.ticket < until }
	if !inGroup(q.head.next) {
		return false
	}
	for inGroup(q.head) {
		r.parkApart(q.pop())
	}
	return true
}

// parkApart parks a message of a late group in which another message failed.
func (r *Relay) parkApart(it *item) {
	r.parkUnattempted(it, store.ParkApart, "a message that was committed late with it failed, and they are tried one by one")
	r.drop(it)
}
