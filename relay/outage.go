package relay

import "sync/atomic"

// outage logs when trouble begins and when it ends, and nothing in between.
type outage struct {
	begins, ends string
	lasts        atomic.Bool
}

func (o *outage) began(r *Relay, err error) {
	if o.lasts.CompareAndSwap(false, true) {
		r.cfg.Logger.Warn(o.begins, "relay", r.cfg.Name, "error", err)
	}
}

func (o *outage) ended(r *Relay) {
	if o.lasts.CompareAndSwap(true, false) {
		r.cfg.Logger.Info(o.ends, "relay", r.cfg.Name)
	}
}
