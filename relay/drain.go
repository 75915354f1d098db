package relay

import (
	"context"
)

// drain is one waiting call of Drain: for each partition, the ticket after the last message that was committed before it.
type drain struct {
	from  uint64 // rounds up to this one may have read too early
	marks map[*partition]uint64
	done  chan struct{}
}

// Drain waits until all messages that were committed before the call, in this process's share of the partitions, are settled:
// delivered, parked or dead-lettered. The share is all partitions if no other process is alive; Drain waits until the process
// holds it, which takes up to a LeaseTTL after another process has died. The relay continues working. Drain does not wait for
// parked messages. While the destination is unavailable, or the relay is paused, it waits for that to end; while the relay is switched off
// (Config.Disabled), for ctx. Errors: that of ctx; ErrStopped if the relay ends first.
func (r *Relay) Drain(ctx context.Context) error {
	r.mu.Lock()
	d := &drain{from: r.rounds + 1, marks: make(map[*partition]uint64), done: make(chan struct{})}
	r.drains[d] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.drains, d)
	}()
	signal(r.fetchWake)
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return ErrStopped
	}
}

// endRound records that the given partitions were read, as far as there was room.
func (r *Relay) endRound(read []*partition) {
	r.rounds++
	for d := range r.drains {
		if r.rounds <= d.from {
			signal(r.fetchWake) // that round may have begun before the call
			continue
		}
		for _, p := range read {
			if _, marked := d.marks[p]; !marked && !p.more {
				d.marks[p] = p.Mark()
			}
		}
	}
	r.drained()
}

// drained ends the calls of Drain whose messages are all settled.
func (r *Relay) drained() {
	if len(r.drains) == 0 || !r.leased || r.short {
		return
	}
	for d := range r.drains {
		if r.rounds > d.from && r.reached(d) {
			close(d.done)
			delete(r.drains, d)
		}
	}
}

// reached reports whether everything that d waits for is recorded.
func (r *Relay) reached(d *drain) bool {
	for _, p := range r.partitions {
		if mark, marked := d.marks[p]; !marked || !p.RecordedUntil(mark) {
			return false
		}
	}
	return true
}
