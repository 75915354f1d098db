package relay

import (
	"context"
	"slices"
	"time"
)

// settleLoop records outcomes: SettleInterval after the first one, or when SettleBatch have come together, and what is
// left when the relay ends.
func (r *Relay) settleLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.lastSettle:
			r.flush(ctx)
			return
		case <-r.settleWake:
		}
		timer.Reset(r.cfg.SettleInterval)
		for waiting := true; waiting && !r.settleFull(); {
			select {
			case <-ctx.Done():
				return
			case <-r.lastSettle:
				waiting = false
			case <-timer.C:
				waiting = false
			case <-r.settleWake:
			}
		}
		r.flush(ctx)
	}
}

func (r *Relay) settleFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsettled >= r.cfg.SettleBatch
}

// sent is one settlement on its way.
type sent struct {
	partition  *partition
	settlement Settlement
	count      int
	upTo       uint64 // the ticket up to which everything is recorded with it
}

// flush records everything that is pending, trying until the store takes it or the leases are lost.
func (r *Relay) flush(ctx context.Context) {
	batch := r.collect()
	failing, tries := false, 0
	for len(batch) > 0 {
		settlements := make([]Settlement, len(batch))
		for i := range batch {
			settlements[i] = batch[i].settlement
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		res, err := r.store.Settle(bounded, r.cfg.Name, r.owner, settlements)
		cancel()
		if err == nil {
			r.applied(batch, res)
			return
		}
		if !failing && ctx.Err() == nil {
			r.cfg.Logger.Warn("relay cannot record outcomes and keeps trying", "relay", r.cfg.Name, "error", err)
			failing = true
		}
		if r.tx != nil {
			r.abandon(batch, err)
			return
		}
		tries++
		if !sleep(ctx, Backoff(50*time.Millisecond, time.Second, tries)) {
			return
		}
		batch = r.stillOurs(batch)
	}
	if failing {
		signal(r.settleWake) // for what came up in the other partitions meanwhile
	}
}

// collect takes what is pending.
func (r *Relay) collect() []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []sent
	for _, p := range r.partitions {
		if p.tracker.advance() {
			p.moved = true
		}
		if p.sending || r.tx != nil && !p.tracker.behindAside() { // the next transaction takes it along
			continue
		}
		// A cursor of which only the snapshot moved can wait a while.
		if p.count == 0 && (!p.moved || time.Since(p.lastSettled) < r.cfg.LeaseTTL/4) {
			continue
		}
		s := p.pending
		s.Partition, s.Epoch, s.Cursor, s.Moved = p.id, p.epoch, p.tracker.cursor, p.moved
		batch = append(batch, sent{p, s, p.count, p.tracker.begin()})
		p.pending, p.count, p.moved, p.sending = Settlement{}, 0, false, true
	}
	slices.SortFunc(batch, func(a, b sent) int { return a.partition.id - b.partition.id })
	return batch
}

// stillOurs drops settlements of partitions that were lost meanwhile.
func (r *Relay) stillOurs(batch []sent) []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(batch, func(s sent) bool {
		if s.partition.gone {
			r.unsettled -= s.count
		}
		return s.partition.gone
	})
}

// applied takes note of what the store has recorded.
func (r *Relay) applied(batch []sent, res Settled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	soonest := time.Duration(-1)
	for i := range batch {
		p := batch[i].partition
		if slices.Contains(res.Lost, p.id) && !p.gone {
			r.taken(p)
		}
		soonest = earlier(soonest, r.stored(&batch[i], res.Released))
	}
	r.settled(soonest)
}

// taken gives a partition up that another process works on.
func (r *Relay) taken(p *partition) {
	r.cfg.Logger.Warn("another process has taken over a partition; its messages may be delivered twice",
		"relay", r.cfg.Name, "partition", p.id, "epoch", p.epoch)
	r.lose(p)
}

// stored takes note of a settlement that the store has, and returns the time until the first message of it is due; negative
// if none is.
func (r *Relay) stored(b *sent, released []string) time.Duration {
	p, s := b.partition, &b.settlement
	r.unsettled -= b.count
	p.sending, p.lastSettled, p.recorded = false, time.Now(), b.upTo
	if p.gone {
		return -1
	}
	soonest := r.recordedParked(p, s)
	for _, key := range s.Release {
		r.released(p, key, slices.Contains(released, key))
	}
	if l := p.lanes[lineKey]; l != nil && l.blocked {
		l.blocked, l.running = false, false
		r.closeLane(p, l)
		r.changed.Broadcast()
	}
	return soonest
}

// settled wakes what waits for settlements. A parked message is due after soonest, if that is not negative.
func (r *Relay) settled(soonest time.Duration) {
	if r.sched.len() > 0 { // lanes that waited for a death to be recorded
		r.changed.Broadcast()
	}
	if soonest >= 0 {
		if at := time.Now().Add(soonest); r.nextDue.IsZero() || at.Before(r.nextDue) {
			r.nextDue = at
			signal(r.dueSooner)
		}
	}
	if r.unsettled > 0 {
		signal(r.settleWake)
	}
	if r.wantFetch() {
		signal(r.fetchWake)
	}
	r.drained()
	signal(r.leaseWake)
}

// recordedParked updates what is known of parked messages and held keys, and returns the time until the first of them is
// due; negative if none is.
func (r *Relay) recordedParked(p *partition, s *Settlement) time.Duration {
	soonest := time.Duration(-1)
	for _, seq := range s.Removed {
		delete(p.busy, seq)
	}
	for i := range s.Dead {
		delete(p.busy, s.Dead[i].Sequence)
		if l := p.lanes[s.Dead[i].Key]; l != nil && l.deaths > 0 {
			l.deaths--
			r.closeLane(p, l)
		}
	}
	for i := range s.Parked {
		pk := &s.Parked[i]
		if pk.Reason != ParkSlow {
			delete(p.busy, pk.Sequence)
		}
		if !pk.Waits {
			soonest = earlier(soonest, pk.After)
		} else if h := p.held[pk.Key]; h != nil {
			h.unrecorded--
		}
	}
	for i := range s.Held {
		if h := p.held[s.Held[i].Key]; h != nil {
			h.heads--
		}
		if !s.Held[i].UntilDecided {
			soonest = earlier(soonest, s.Held[i].After)
		}
	}
	return soonest
}

// released takes in the answer to the wish to release a key. If messages were parked behind it since, it is held on, and
// due at once.
func (r *Relay) released(p *partition, key string, done bool) {
	h := p.held[key]
	if h == nil {
		return
	}
	h.releasing = false
	switch {
	case !done: // there are more behind it
		signal(r.dueWake)
	case h.unrecorded > 0 || h.heads > 0:
		p.pending.Held = append(p.pending.Held, HeldKey{Key: key, Reason: ParkHeld, Cause: "messages were parked behind it"})
		h.heads++
		r.recorded(p)
	default:
		r.dropHeld(p, key)
	}
}

// earlier returns the smaller of two times, of which a negative one is none.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
