package relay

import (
	"context"
	"fmt"
	"time"
)

// parkSlowLoop keeps slow work from holding back the cursor, and from filling the memory.
func (r *Relay) parkSlowLoop(ctx context.Context) {
	for sleep(ctx, max(r.cfg.ParkAfter/4, time.Millisecond)) {
		r.mu.Lock()
		for it := range r.running {
			if it.onMainLine() && !it.partition.gone && time.Since(it.started) >= r.cfg.ParkAfter {
				r.parkSlow(it)
			}
		}
		for _, p := range r.partitions {
			r.parkBlocking(p)
		}
		r.mu.Unlock()
	}
}

// onMainLine says that fresh messages of the same key may be waiting behind it in its lane: it is one itself, or one that
// was parked for itself (delayed, or sent back by an operator) and does not hold its key.
func (it *item) onMainLine() bool { return !it.parked || it.lane != nil && it.run.key == "" }

// parkSlow parks a message while it is being worked on, and holds its key. Should this process die, the message is due
// again when the lease has ended; otherwise its outcome finds it among the parked ones.
func (r *Relay) parkSlow(it *item) {
	p := it.partition
	cause := fmt.Sprintf("attempt %d has been under way for more than %s", it.attempts+1, r.cfg.ParkAfter)
	pk := Parked{Reason: ParkSlow, Attempts: it.attempts, Waits: it.key != "", After: r.cfg.LeaseTTL}
	if it.key != "" {
		r.head(it, HeldKey{Reason: ParkSlow, Cause: cause, Attempts: it.attempts, After: r.cfg.LeaseTTL})
	} else {
		p.busy[it.seq] = struct{}{}
	}
	r.park(it, pk)
	it.parked, it.run = true, &run{key: it.key, left: 1}
	if it.lane != nil {
		r.parkFollowers(it.lane, nil)
	}
}

// parkBlocking looks at the first unsettled message of a partition. If it has waited in memory for longer than ParkAfter
// behind its own key, while much behind it is settled or its lane has taken much of the memory, then the key is slow, and
// what waits in its lane is parked. It comes back in runs.
func (r *Relay) parkBlocking(p *partition) {
	if r.circuit.open() || p.leaving {
		return
	}
	much := max(r.fresh.maxMessages/16, 16)
	for _, l := range p.lanes {
		it := l.head
		if it == nil || !l.running || it.parked || p.held[l.key] != nil || time.Since(it.since) < r.cfg.ParkAfter {
			continue
		}
		blocks := p.tracker.begin() == l.first || p.tracker.begin() == it.ticket
		if l.waiting < much && (!blocks || p.tracker.open() < much) {
			continue
		}
		r.head(it, HeldKey{Reason: ParkHeld, Cause: fmt.Sprintf("its messages have waited for each other for more than %s",
			r.cfg.ParkAfter), Attempts: it.attempts})
		r.parkFollowers(l, nil)
	}
}
