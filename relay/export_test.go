package relay

import "github.com/postrider/postrider/relay/internal/schedule"

// Counters are a relay's internal counters. At rest, with nothing held, all of them are zero.
type Counters struct {
	schedule.Counts
	CircuitOpen bool
}

// Counters returns the current counters.
func (r *Relay) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counters{r.sched.Counts(), r.circuit.open()}
}
