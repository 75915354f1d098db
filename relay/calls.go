package relay

import (
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// A call that has not returned outlives the lease under which it began: its context has ended, but a handler may ignore that.
// While it is out, nothing else in this process works on the same key, or on the same message without a key. With HandleTx
// the messages of a partition's transaction queue wait for its last transaction.

// work is what a call works on: a key, a message without a key, or the transaction queue of a partition.
type work struct {
	key      string
	sequence int64
	txQueue  int // one more than the partition; 0 for none
}

func (it *item) work() work {
	switch {
	case it.queue.isTxQueue():
		return work{txQueue: it.partition.id + 1}
	case it.key != "":
		return work{key: it.key}
	default:
		return work{sequence: it.seq}
	}
}

// outlive records the calls that are out when a partition is lost.
func (r *Relay) outlive(p *partition) {
	for _, batch := range r.batches {
		for _, it := range batch {
			if it.partition == p {
				r.callsOut[it.work()]++
			}
		}
	}
}

// awaitsCall reports whether a unit must wait for a call of a lease that has ended; if so, the unit starts when the call has
// returned.
func (r *Relay) awaitsCall(u unit) bool {
	if len(r.callsOut) == 0 {
		return false
	}
	w := u.front().work()
	if r.callsOut[w] == 0 {
		return false
	}
	if u.queue != nil {
		u.queue.running = true
	}
	r.callsAwaited[w] = append(r.callsAwaited[w], u)
	return true
}

// returned records that a call has returned, and resumes what has waited for it.
func (r *Relay) returned(batch []*item) {
	delete(r.batches, batch[0])
	for _, it := range batch {
		if !it.partition.gone {
			continue
		}
		w := it.work()
		if r.callsOut[w]--; r.callsOut[w] > 0 {
			continue
		}
		delete(r.callsOut, w)
		waiting := r.callsAwaited[w]
		delete(r.callsAwaited, w)
		for _, u := range waiting {
			r.resumeUnit(u)
		}
	}
}

// resumeUnit makes ready a unit that has waited for a call, unless its partition is lost or being left.
func (r *Relay) resumeUnit(u unit) {
	p := u.partition()
	switch {
	case u.queue != nil:
		u.queue.running = false
		if !p.gone {
			r.closeQueue(p, u.queue)
		}
	case p.gone:
		r.drop(u.item)
	case p.leaving:
		p.withdrawn = append(p.withdrawn, u.item)
		r.finishLeaving(p)
	default:
		r.sched.ready(u)
	}
	r.changed.Broadcast()
}

// parkAwaiting parks messages that have waited for a call for longer than ParkAfter, so that they do not hold back the
// cursor.
func (r *Relay) parkAwaiting() {
	for w, units := range r.callsAwaited {
		r.callsAwaited[w] = slices.DeleteFunc(units, func(u unit) bool {
			it, p := u.front(), u.partition()
			if it == nil || p.gone || p.leaving || !it.onMainLine() || time.Since(it.since) < r.cfg.ParkAfter {
				return false
			}
			const cause = "a call of an earlier lease works on the key and has not returned"
			if u.item != nil {
				if it.parked {
					return false
				}
				r.parkUnattempted(it, store.ParkSlow, cause)
				r.drop(it)
				return true
			}
			u.queue.running = false
			for u.queue.head != nil {
				it := u.queue.pop()
				r.parkUnattempted(it, store.ParkSlow, cause)
				r.drop(it)
			}
			r.closeQueue(p, u.queue)
			return true
		})
	}
}

// unawait removes a partition's messages without a key from those that wait for calls, because the partition is being left.
func (r *Relay) unawait(p *partition) (items []*item) {
	for w, units := range r.callsAwaited {
		kept := units[:0]
		for _, u := range units {
			if u.item != nil && u.item.partition == p {
				items = append(items, u.item)
			} else {
				kept = append(kept, u)
			}
		}
		r.callsAwaited[w] = kept
	}
	return items
}
