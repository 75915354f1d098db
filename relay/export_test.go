package relay

// Counters are a relay's internal counters. At rest, with nothing held, all of them are zero.
type Counters struct {
	InMemory, Bytes int
	Ready           int // messages without a key and queues that can start
	Lanes           int
	Out, Single     int // messages out for delivery, and calls with a single one
	Open            int // fresh messages that are not settled, or settled after one that is not
	Unsettled       int // outcomes not yet recorded
	HeldKeys, Held  int // as counted, and as kept
	Busy            int
	CircuitOpen     bool
}

// Counters returns the current counters.
func (r *Relay) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Counters{
		InMemory: r.inMemory(), Bytes: r.fresh.bytes + r.parked.bytes, Ready: r.sched.len(), Single: len(r.running),
		Unsettled: r.unsettled, HeldKeys: r.heldKeys, CircuitOpen: r.circuit.open(),
	}
	for _, p := range r.partitions {
		c.Lanes += len(p.queues)
		c.Out += p.out
		c.Open += p.tracker.open()
		c.Held += len(p.held)
		c.Busy += len(p.busy)
	}
	return c
}
