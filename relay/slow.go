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
		lanes := make(map[*lane]*item) // those with a single message out
		for it := range r.running {
			if it.lane != nil {
				lanes[it.lane] = it
			}
			if it.onMainLine() && !it.partition.gone && time.Since(it.started) >= r.cfg.ParkAfter {
				r.parkSlow(it)
			}
		}
		for _, p := range r.partitions {
			r.parkBlocking(p, lanes)
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
	cause := fmt.Sprintf("attempt %d, or the messages behind it, have taken more than %s", it.attempts+1, r.cfg.ParkAfter)
	pk := Parked{Reason: ParkSlow, Attempts: it.attempts, Waits: it.key != "", After: r.cfg.LeaseTTL}
	if it.key != "" {
		r.head(it, HeldKey{Reason: ParkSlow, Cause: cause, Attempts: it.attempts, After: r.cfg.LeaseTTL})
	}
	r.park(it, pk)
	it.parked, it.run = true, &run{key: it.key, left: 1}
	if it.lane != nil {
		r.parkFollowers(it.lane, nil)
	}
}

// parkBlocking looks for a slow key that holds back the cursor of a partition, or fills the memory: what waits in its lane
// has waited for longer than ParkAfter, and there is much of it or much that is settled behind it. The message that is
// being worked on and those that wait for it are parked; they come back in runs. (Parking only those that wait would not
// do: should this process die, they would be due before the message that they follow was read again.)
func (r *Relay) parkBlocking(p *partition, running map[*lane]*item) {
	if r.circuit.open() || p.leaving {
		return
	}
	much := max(r.fresh.maxMessages/16, 16)
	for _, l := range p.lanes {
		it, out := l.head, running[l]
		if it == nil || out == nil || out.parked || it.parked || p.held[l.key] != nil || time.Since(it.since) < r.cfg.ParkAfter {
			continue
		}
		if l.waiting >= much || p.tracker.begin() == out.ticket && p.tracker.open() >= much {
			r.parkSlow(out)
		}
	}
}
