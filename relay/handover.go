package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

// startHandover selects partitions to hand over. Nothing new starts in them; they are released when the calls in progress
// have returned. A partition with a call that takes longer than ParkAfter continues, and another is selected.
func (r *Relay) startHandover(n int) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	slow := r.sched.SlowCalls(time.Now())
	for _, p := range r.partitions {
		if p.Leaving() && slow[p.Partition] {
			p.Rejoin()
		}
		if p.Leaving() {
			n--
		}
	}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.partitions))) {
		if p := r.partitions[id]; n > 0 && !p.Leaving() && !slow[p.Partition] {
			p.Leave()
			n--
		}
	}
}

// handOver releases partitions that are leaving and have nothing left to record.
func (r *Relay) handOver(ctx context.Context) {
	r.mu.Lock()
	var leases []store.LeaseRef
	var parts []*partition
	for _, p := range r.partitions {
		if p.Left() && !p.reading {
			leases = append(leases, p.Lease)
			parts = append(parts, p)
			r.lose(p)
		}
	}
	r.observeLeases(observe.LeaseReleased, len(parts))
	r.wakeAndUnlock()
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
		r.cfg.Logger.Info("partition handed over", "relay", r.cfg.Name, "partition", p.Lease.Partition)
	}
}
