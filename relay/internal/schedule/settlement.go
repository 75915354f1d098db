package schedule

import (
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// Settlement is what one settlement records.
type Settlement struct {
	store.Settlement
	upTo   uint64 // the ticket up to which it records everything
	passed uint64 // the ticket after its cursor
	// taken are the pending outcomes in it, if it is that of a transaction.
	taken store.Settlement
}

// NextSettlement returns nil if there is nothing to record or a settlement is in progress. The caller repeats a settlement
// unchanged until it knows the answer, and calls Confirm; or it loses the partition.
func (p *Partition[M]) NextSettlement(now time.Time) *Settlement {
	p.advance()
	if p.settling || !p.recordable() {
		return nil
	}
	// A cursor of which only the snapshot moved can wait a while, unless parked messages wait for it.
	if p.unsent == 0 && (!p.cursorMoved || len(p.parkedAhead) == 0 && now.Sub(p.settledAt) < p.schedule.cfg.LeaseTTL/4) {
		return nil
	}
	s := p.takePending(p.tracker.cursor, p.cursorMoved, p.tracker.begin(), p.tracker.passed)
	s.DeliveredCount += p.tracker.takeDelivered()
	p.cursorMoved, p.settling = false, true
	return s
}

// Pending reports whether there are outcomes that NextSettlement would return now.
func (p *Partition[M]) Pending() bool { return !p.settling && p.unsent > 0 && p.recordable() }

// takePending makes a settlement of everything that is pending.
func (p *Partition[M]) takePending(c store.Cursor, moved bool, upTo, passed uint64) *Settlement {
	s := &Settlement{Settlement: p.pending, upTo: upTo, passed: passed}
	s.Partition, s.Token, s.Number, s.Cursor, s.Moved = p.Lease.Partition, p.Lease.Token, p.number+1, c, moved
	s.Unrouted = p.countUnrouted(passed)
	p.pending, p.inFlight, p.unsent = store.Settlement{}, p.unsent, 0
	return s
}

// Confirm processes the store's answer that a settlement was applied; released are those keys in Release that are no longer
// held. It returns the time until the first of its messages is due; negative if none is.
func (p *Partition[M]) Confirm(s *Settlement, released []string, now time.Time) (soonest time.Duration) {
	if p.gone {
		return -1
	}
	p.schedule.unsettled -= p.inFlight
	p.outcomesRecorded += uint64(p.inFlight)
	p.settling, p.inFlight, p.settledAt, p.recordedTicket, p.number = false, 0, now, s.upTo, s.Number
	if s.Moved {
		p.position = s.Cursor.Position
	}
	passed := p.pass(s.passed)
	soonest = p.recordedParked(s)
	if passed {
		soonest = 0
	}
	for _, key := range s.Release {
		p.releaseAnswered(key, slices.Contains(released, key))
	}
	p.tx.unblock()
	return soonest
}

// recordable reports whether a settlement may record what is pending. With transactions, what was parked is recorded once the
// cursor passes it, so the next transaction may have to record it.
func (p *Partition[M]) recordable() bool { return p.tx == nil || p.tracker.passedParked() }

// recordedParked updates the state of parked messages and held keys, and returns the time until the first of them is due;
// negative if none is.
func (p *Partition[M]) recordedParked(s *Settlement) time.Duration {
	soonest := time.Duration(-1)
	for _, seq := range s.Removed {
		delete(p.outdated, seq)
	}
	for i := range s.Dead {
		delete(p.outdated, s.Dead[i].Sequence)
		if q := p.queues[s.Dead[i].Key]; q != nil && q.deaths > 0 {
			q.deaths--
			p.reopen(q)
		}
	}
	for i := range s.Parked {
		pk := &s.Parked[i]
		if pk.Reason != store.ParkSlow || pk.Waits || pk.After == 0 { // otherwise it is being worked on, see parkSlow
			delete(p.outdated, pk.Sequence)
		}
		if !pk.Waits {
			soonest = earlier(soonest, pk.After)
		} else if h := p.held[pk.Key]; h != nil {
			h.unrecorded--
		}
	}
	for i := range s.Held {
		if h := p.held[s.Held[i].Key]; h != nil {
			h.blocks--
		}
		if !s.Held[i].UntilDecided {
			soonest = earlier(soonest, s.Held[i].After)
		}
	}
	return soonest
}

// earlier returns the smaller of two times; a negative one means none.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// unrouted is a message that no relay takes, or several of one topic.
type unrouted struct {
	ticket uint64
	store.UnroutedCount
}

// countUnrouted removes and counts, by topic, the unrouted messages before a ticket, which a settlement's cursor passes.
func (p *Partition[M]) countUnrouted(before uint64) []store.UnroutedCount {
	if len(p.unrouted) == 0 {
		return nil
	}
	n := 0
	counts := make(map[string]int64)
	for ; n < len(p.unrouted) && p.unrouted[n].ticket < before; n++ {
		u := &p.unrouted[n]
		if _, known := counts[u.Topic]; !known && len(counts) >= store.MaxUnroutedTopics {
			u.Topic = ""
		}
		counts[u.Topic] += u.Count
	}
	p.unrouted = p.unrouted[n:]
	var out []store.UnroutedCount
	for _, topic := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, store.UnroutedCount{Topic: topic, Count: counts[topic]})
	}
	return out
}

// uncountUnrouted restores the counts of a settlement that was not applied.
func (p *Partition[M]) uncountUnrouted(counts []store.UnroutedCount) {
	back := make([]unrouted, len(counts), len(counts)+len(p.unrouted))
	for i, c := range counts {
		back[i].UnroutedCount = c
	}
	p.unrouted = append(back, p.unrouted...)
}
