package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// settleLoop records outcomes: SettleInterval after the first one or when there are SettleBatch of them, and the rest when
// the relay ends.
func (r *Relay) settleLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.lastSettle:
			for r.flush(ctx) && sleep(ctx, settleRetryMin) {
			}
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

// sent is a settlement that has been sent. It does not change any more: it may have been applied.
type sent struct {
	partition  *partition
	settlement store.Settlement
	count      int
	upTo       uint64 // the ticket up to which it records everything
	passed     uint64 // the ticket after its cursor
	tries      int
	retryAt    time.Time
}

// The bounds of the wait before a settlement is repeated.
const (
	settleRetryMin = 50 * time.Millisecond
	settleRetryMax = time.Second
)

// flush records what is pending, and repeats settlements that failed. It reports whether any are left to repeat.
func (r *Relay) flush(ctx context.Context) (again bool) {
	batch := r.collect()
	if len(batch) > 0 {
		settlements := make([]store.Settlement, len(batch))
		for i := range batch {
			settlements[i] = batch[i].settlement
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		res, err := r.store.Settle(bounded, r.cfg.Name, settlements)
		cancel()
		r.takeAnswer(ctx, batch, res, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.partitions {
		again = again || p.repeat != nil
	}
	return again
}

// collect returns the settlements to send: those whose time to be repeated has come, and what is pending in partitions with
// no settlement in progress.
func (r *Relay) collect() []*sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []*sent
	now := time.Now()
	for _, p := range r.partitions {
		if p.tracker.advance() {
			p.moved = true
		}
		if s := p.repeat; s != nil && !now.Before(s.retryAt) {
			p.repeat = nil
			batch = append(batch, s)
			continue
		}
		if p.sending || r.tx != nil && !p.tracker.passedParked() { // the next transaction records it
			continue
		}
		// A cursor of which only the snapshot moved can wait a while, unless parked messages wait for it.
		if p.count == 0 && (!p.moved || len(p.parked) == 0 && time.Since(p.lastSettled) < r.cfg.LeaseTTL/4) {
			continue
		}
		s := &sent{partition: p, settlement: p.pending, count: p.count, upTo: p.tracker.begin(), passed: p.tracker.passed}
		st := &s.settlement
		st.Partition, st.Token, st.Number, st.Cursor, st.Moved = p.id, p.token, p.number+1, p.tracker.cursor, p.moved
		st.Unrouted = p.countUnrouted(p.tracker.passed)
		st.DeliveredCount += p.tracker.takeDelivered()
		batch = append(batch, s)
		p.pending, p.count, p.moved, p.sending = store.Settlement{}, 0, false, true
	}
	slices.SortFunc(batch, func(a, b *sent) int { return a.partition.id - b.partition.id })
	return batch
}

// takeAnswer processes the store's answer for each settlement; an error is the answer for all.
func (r *Relay) takeAnswer(ctx context.Context, batch []*sent, res store.Settled, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	applied := batch[:0:0]
	for _, s := range batch {
		failed := err
		if failed == nil {
			failed = res.Failed[s.partition.id]
		}
		if failed == nil {
			applied = append(applied, s)
			continue
		}
		r.unrecorded(ctx, s, failed, err == nil)
	}
	if len(applied) > 0 {
		if lasted, failures, ended := r.settleOutage.succeeded(time.Now()); ended {
			r.cfg.Logger.Info("relay records outcomes again", "relay", r.cfg.Name, "after", lasted, "failures", failures)
		}
		r.applied(applied, res)
	}
}

// maxRefusals is how often a settlement is refused before the partition's state is read from the database again.
const maxRefusals = 10

// unrecorded schedules the repetition of a settlement, unless its lease has ended. definite says that it was not applied.
func (r *Relay) unrecorded(ctx context.Context, s *sent, err error, definite bool) {
	if s.partition.gone {
		r.unsettled -= s.count
		return
	}
	if ctx.Err() == nil && r.settleOutage.failed(time.Now()) {
		r.cfg.Logger.Warn("relay cannot record outcomes and keeps trying", "relay", r.cfg.Name, "error", err)
	}
	if s.tries++; definite && s.tries >= maxRefusals {
		r.taken(s.partition)
		r.unsettled -= s.count
		return
	}
	wait := Backoff(settleRetryMin, settleRetryMax, s.tries)
	s.retryAt = time.Now().Add(wait)
	s.partition.repeat = s
	time.AfterFunc(wait, func() { signal(r.settleWake) })
}

// applied processes settlements that the store has answered.
func (r *Relay) applied(batch []*sent, res store.Settled) {
	soonest := time.Duration(-1)
	for i := range batch {
		p := batch[i].partition
		if slices.Contains(res.Lost, p.id) && !p.gone {
			r.taken(p)
		}
		soonest = earlier(soonest, r.stored(batch[i], res.Released))
	}
	r.settled(soonest)
}

// taken drops a partition whose lease no longer holds: another process works on it, the database crashed or failed over, or
// something was done under the lease that this process does not know of. Its state in memory is dropped, and read from the
// database when the process leases the partition again.
func (r *Relay) taken(p *partition) {
	r.cfg.Logger.Warn("lease of a partition was lost; messages may be delivered again", "relay", r.cfg.Name, "partition", p.id)
	r.lose(p)
	signal(r.heartbeatWake)
}

// stored processes a settlement that the store has applied, and returns the time until the first of its messages is due;
// negative if none is.
func (r *Relay) stored(b *sent, released []string) time.Duration {
	p, s := b.partition, &b.settlement
	r.unsettled -= b.count
	if p.gone {
		return -1
	}
	p.sending, p.lastSettled, p.recorded, p.number = false, time.Now(), b.upTo, s.Number
	p.stored += uint64(b.count)
	if p.pass(b.passed) {
		r.dueAt(time.Now())
	}
	soonest := r.recordedParked(p, s)
	for _, key := range s.Release {
		r.released(p, key, slices.Contains(released, key))
	}
	if q := p.queues[txQueueKey]; q != nil && q.blocked {
		q.blocked, q.running = false, false
		r.closeQueue(p, q)
		r.changed.Broadcast()
	}
	return soonest
}

// settled wakes what waits for settlements. A parked message is due after soonest, unless that is negative.
func (r *Relay) settled(soonest time.Duration) {
	if r.sched.len() > 0 { // queues that waited for a dead letter to be recorded
		r.changed.Broadcast()
	}
	if soonest >= 0 {
		r.dueAt(time.Now().Add(soonest))
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

// recordedParked updates the state of parked messages and held keys, and returns the time until the first of them is due;
// negative if none is.
func (r *Relay) recordedParked(p *partition, s *store.Settlement) time.Duration {
	soonest := time.Duration(-1)
	for _, seq := range s.Removed {
		delete(p.busy, seq)
	}
	for i := range s.Dead {
		delete(p.busy, s.Dead[i].Sequence)
		if q := p.queues[s.Dead[i].Key]; q != nil && q.deaths > 0 {
			q.deaths--
			r.closeQueue(p, q)
		}
	}
	for i := range s.Parked {
		pk := &s.Parked[i]
		if pk.Reason != store.ParkSlow || pk.Waits || pk.After == 0 { // otherwise it is being worked on, see parkSlow
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
			h.blocks--
		}
		if !s.Held[i].UntilDecided {
			soonest = earlier(soonest, s.Held[i].After)
		}
	}
	return soonest
}

// released processes the answer to a request to release a key. If messages of the key were parked since, it stays held and is
// due at once.
func (r *Relay) released(p *partition, key string, done bool) {
	h := p.held[key]
	if h == nil {
		return
	}
	h.releasing = false
	switch {
	case !done: // the key has more parked messages
		signal(r.dueWake)
	case h.unrecorded > 0 || h.blocks > 0:
		p.pending.Held = append(p.pending.Held, store.HeldKey{Key: key, Reason: store.ParkHeld, Cause: "messages were queued after it"})
		h.blocks++
		r.recorded(p)
	default:
		r.dropHeld(p, key)
	}
}

// earlier returns the smaller of two times; a negative one means none.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
