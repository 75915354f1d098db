package schedule

import (
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// A call that has not returned outlives the lease under which it began: its context has ended, but a handler may ignore that.
// While it is out, nothing else in this process works on the same key, or on the same message without a key. With
// transactions, nothing works on the partition.

// Work is what a call works on: a key, a message without a key, or a partition.
type Work struct {
	Key       string
	Sequence  int64
	Partition int // one more than its number; 0 for none
}

// Outlived has the calls that have outlived their leases.
type Outlived interface {
	// Add adds n calls, or removes them if n is negative.
	Add(w Work, n int)
	Out(w Work) bool
}

// ownCalls are the calls of a single schedule, by what they work on.
type ownCalls map[Work]int

func (c ownCalls) Add(w Work, n int) {
	if c[w] += n; c[w] == 0 {
		delete(c, w)
	}
}

func (c ownCalls) Out(w Work) bool { return c[w] > 0 }

// awaiting is a unit that waits for a call on its work to return.
type awaiting[M any] struct {
	work Work
	unit[M]
}

func (it *Item[M]) work() Work { return it.partition.work(it.Key, it.Sequence) }

func (p *Partition[M]) work(key string, seq int64) Work {
	switch {
	case p.tx != nil:
		return Work{Partition: p.Lease.Partition + 1}
	case key != "":
		return Work{Key: key}
	default:
		return Work{Sequence: seq}
	}
}

// outlive records the calls that are out when a partition is lost.
func (p *Partition[M]) outlive() {
	s := p.schedule
	for _, batch := range s.batches {
		for _, it := range batch {
			if it.partition == p {
				s.outlived.Add(it.work(), 1)
			}
		}
	}
}

// awaitsCall reports whether a unit must wait for a call of a lease that has ended; if so, the unit starts when the call has
// returned.
func (s *Schedule[M]) awaitsCall(u unit[M]) bool {
	w := u.front().work()
	if !s.outlived.Out(w) {
		return false
	}
	if u.queue != nil {
		u.queue.running = true
	}
	s.awaiting = append(s.awaiting, awaiting[M]{w, u})
	return true
}

// returned records that a call has returned, and resumes what has waited for it. For unfinished messages it is still out.
func (s *Schedule[M]) returned(batch []*Item[M]) {
	delete(s.batches, batch[0])
	outlived := false
	for _, it := range batch {
		if it.partition.gone && !it.Unfinished {
			s.outlived.Add(it.work(), -1)
			outlived = true
		}
	}
	if outlived {
		s.resumeAwaiting()
	}
}

// resumeAwaiting resumes what has waited for calls that have returned.
func (s *Schedule[M]) resumeAwaiting() {
	s.awaiting = slices.DeleteFunc(s.awaiting, func(a awaiting[M]) bool {
		if s.outlived.Out(a.work) {
			return false
		}
		s.resumeUnit(a.unit)
		return true
	})
}

// resumeUnit makes ready a unit that has waited for a call, unless its partition is lost or being left.
func (s *Schedule[M]) resumeUnit(u unit[M]) {
	p := u.partition()
	switch {
	case u.queue != nil:
		u.queue.running = false
		if !p.gone {
			p.reopen(u.queue)
		}
	case p.gone:
		u.item.drop()
	case p.leaving:
		p.withdrawn = append(p.withdrawn, u.item)
		p.finishLeaving()
	default:
		s.ready(u)
	}
}

// parkAwaiting parks messages that have waited for a call for longer than ParkAfter, so that they do not hold back the
// cursor.
func (s *Schedule[M]) parkAwaiting(now time.Time) {
	s.awaiting = slices.DeleteFunc(s.awaiting, func(a awaiting[M]) bool {
		it, p := a.front(), a.unit.partition()
		if it == nil || p.gone || p.leaving || !it.holdsUp() || now.Sub(it.since) < s.cfg.ParkAfter {
			return false
		}
		const cause = "a call of an earlier lease works on the key and has not returned"
		if a.item != nil {
			if it.parked {
				return false
			}
			p.parkUnattempted(it, store.ParkSlow, cause)
			return true
		}
		a.queue.running = false
		for a.queue.head != nil {
			p.parkUnattempted(a.queue.pop(), store.ParkSlow, cause)
		}
		p.reopen(a.queue)
		return true
	})
}

// unawait removes a partition's messages without a key from what waits for calls, because the partition is being left.
func (p *Partition[M]) unawait() (items []*Item[M]) {
	s := p.schedule
	s.awaiting = slices.DeleteFunc(s.awaiting, func(a awaiting[M]) bool {
		if a.item == nil || a.item.partition != p {
			return false
		}
		items = append(items, a.item)
		return true
	})
	return items
}
