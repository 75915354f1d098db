package schedule

// Counts are the internal counters of a schedule. At rest, with nothing held, all of them are zero.
type Counts struct {
	InMemory, Bytes int
	Ready           int // messages without a key and queues that can start
	Queues          int // of keys
	Out, Single     int // messages out for delivery, and calls with a single one
	Open            int // fresh messages that are not done, or come after one that is not
	Unsettled       int // outcomes not yet recorded
	HeldKeys, Held  int // as counted, and as kept
	Outdated        int
}

// Counts returns the current counters.
func (s *Schedule[M]) Counts() Counts {
	c := Counts{
		InMemory: s.InMemory(), Bytes: s.Fresh.Bytes + s.Parked.Bytes, Ready: s.Ready(), Unsettled: s.unsettled, HeldKeys: s.heldKeys,
	}
	for _, batch := range s.batches {
		if len(batch) == 1 {
			c.Single++
		}
	}
	for _, p := range s.partitions {
		c.Queues += len(p.queues)
		c.Out += p.out
		c.Open += p.tracker.open()
		c.Held += len(p.held)
		c.Outdated += len(p.outdated)
	}
	return c
}
