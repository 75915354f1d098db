package relay

import "time"

// EndLease lets the life of a lease be over, as after a pause of the process, before any timer has noticed.
func (r *Relay) EndLease(partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[partition]
	p.expiry.Stop()
	p.until = time.Now()
}
