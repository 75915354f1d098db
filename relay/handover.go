package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// startHandover selects partitions to hand over. Nothing new starts in them; they are released when the calls in progress
// have returned. A partition with a call that takes longer than ParkAfter continues, and another is selected.
func (r *Relay) startHandover(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slow := make(map[*partition]bool)
	for it := range r.running {
		if time.Since(it.started) >= r.cfg.ParkAfter {
			slow[it.partition] = true
		}
	}
	for _, p := range r.partitions {
		if p.leaving && slow[p] {
			r.rejoin(p)
		}
		if p.leaving {
			n--
		}
	}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.partitions))) {
		if p := r.partitions[id]; n > 0 && !p.leaving && !slow[p] {
			p.leaving = true
			r.withdraw(p)
			n--
		}
	}
}

// rejoin resumes work on a partition that was leaving.
func (r *Relay) rejoin(p *partition) {
	p.leaving = false
	for _, it := range p.withdrawn {
		r.sched.ready(unit{item: it})
	}
	p.withdrawn = nil
	for _, q := range p.queues {
		if !q.running {
			r.closeQueue(p, q)
		}
	}
	r.changed.Broadcast()
}

// withdraw removes what waits in a partition from the queues, because the process stops or hands the partition over. When
// nothing is out any more, the partition is unloaded.
func (r *Relay) withdraw(p *partition) {
	r.takeOut(p)
	if p.out == 0 {
		r.unload(p)
	}
}

// takeOut removes a partition's work from the ready queues and from what waits for calls.
func (r *Relay) takeOut(p *partition) {
	p.withdrawn = append(p.withdrawn, r.sched.fresh.without(p)...)
	p.withdrawn = append(p.withdrawn, r.sched.parked.without(p)...)
	p.withdrawn = append(p.withdrawn, r.unawait(p)...)
}

// unload drops what waits in a partition that is being left. Its next owner reads from the cursor, which is before the first
// unsettled message. So messages that wait before delivered ones, or were committed late together with them, are parked, so
// that the cursor passes both; otherwise the delivered ones would be delivered again. With HandleTx this includes late
// messages if others of their group were parked: the parking is recorded once the cursor has passed it, and the cursor passes
// all of them or none.
func (r *Relay) unload(p *partition) {
	p.moved = p.tracker.advance() || p.moved
	before := p.tracker.together(p.delivered)
	if r.tx != nil && !p.tracker.passedParked() {
		before = max(before, p.tracker.lateUntil(p.tracker.begin()))
	}
	leave := func(it *item) {
		if !it.parked && it.ticket < before {
			r.parkUnattempted(it, store.ParkReturned, "its process stopped before it came to it")
		}
		r.drop(it)
	}
	for _, it := range p.withdrawn {
		leave(it)
	}
	p.withdrawn = nil
	for _, q := range p.queues {
		for q.head != nil {
			leave(q.pop())
		}
		delete(p.queues, q.key)
	}
	if p.moved && r.tx == nil { // even if nothing else must be recorded
		r.recorded(p)
	}
}

// parkUnattempted parks a message that was not attempted, due at once, after the messages of its key that are parked already.
func (r *Relay) parkUnattempted(it *item, reason store.ParkReason, cause string) {
	if it.key != "" && it.partition.held[it.key] == nil {
		r.block(it, store.HeldKey{Reason: reason, Cause: cause, Attempts: it.attempts})
	}
	r.park(it, store.ParkOutcome{Reason: reason, Waits: it.key != "", Attempts: it.attempts})
}

// handOver releases partitions that are leaving and have nothing left to record.
func (r *Relay) handOver(ctx context.Context) {
	r.mu.Lock()
	var leases []store.LeaseRef
	var parts []*partition
	for _, p := range r.partitions {
		if p.leaving && p.out == 0 && p.count == 0 && !p.sending && !p.reading {
			leases = append(leases, p.ref())
			parts = append(parts, p)
			r.lose(p)
		}
	}
	r.mu.Unlock()
	if len(leases) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL/3)
	defer cancel()
	if err := r.store.Release(bounded, r.cfg.Name, leases); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("relay could not hand partitions over; their leases end by themselves", "relay", r.cfg.Name, "error", err)
		return
	}
	for _, p := range parts {
		r.cfg.Logger.Info("partition handed over", "relay", r.cfg.Name, "partition", p.id)
	}
}
