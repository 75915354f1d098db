package schedule

import "maps"

// uncertainCommit records messages for which it is unknown whether their commit took effect. If they are read again, it did
// not.
type uncertainCommit struct {
	sequences map[int64]bool // true for parked messages
	alone     bool           // there was only one
	cause     error
}

// Uncertain records that it is unknown whether the commit of a transaction queue's messages took effect. It returns false, and records
// nothing, if the messages are of another queue. Otherwise the caller loses the partition: under a new lease the commit can no longer take effect, and the cursor says
// whether it did. If a parked message's commit took effect, what is recorded of it later finds it gone.
func (s *Schedule[M]) Uncertain(batch []*Item[M], cause error) bool {
	if !batch[0].partition.tx.is(batch[0].queue) {
		return false
	}
	if p := batch[0].partition; !p.gone {
		u := &uncertainCommit{sequences: make(map[int64]bool, len(batch)), alone: len(batch) == 1, cause: cause}
		for _, it := range batch {
			u.sequences[it.Sequence] = it.parked
		}
		s.uncertain[p.Lease.Partition] = u
	}
	return true
}

// mayBeCommitted reports whether it was unknown whether a commit with this message took effect.
func (p *Partition[M]) mayBeCommitted(it *Item[M]) bool {
	u := p.schedule.uncertain[p.Lease.Partition]
	if u == nil {
		return false
	}
	_, is := u.sequences[it.Sequence]
	return is
}

// wasUncertain reports whether a commit with this message did not take effect, so that it needs a transaction of its own. The
// second time, the failure is the message's own.
func (p *Partition[M]) wasUncertain(it *Item[M]) bool {
	u := p.schedule.uncertain[p.Lease.Partition]
	if u == nil {
		return false
	}
	if !p.mayBeCommitted(it) {
		if it.parked {
			return false
		}
		// A later one: those from the log are recorded, or have had their own transactions.
		maps.DeleteFunc(u.sequences, func(_ int64, parked bool) bool { return !parked })
		if len(u.sequences) == 0 {
			delete(p.schedule.uncertain, p.Lease.Partition)
		}
		return false
	}
	if u.alone {
		it.Refused = u.cause
		delete(p.schedule.uncertain, p.Lease.Partition)
	}
	return true
}
