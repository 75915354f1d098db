package relay

import "time"

// EndLease makes the life of a lease end, as after a pause of the process, before any timer has fired.
func (r *Relay) EndLease(partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[partition]
	p.expiry.Stop()
	p.Until = time.Now()
}
