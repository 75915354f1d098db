package relay

import (
	"time"
)

// The bounds of the wait before a probe, which doubles.
const (
	probeMin = 100 * time.Millisecond
	probeMax = 5 * time.Second
)

// circuit keeps a broker that is down from looking like ten thousand failing messages. Closed, calls go out. It opens when
// the publisher reports that the broker is unavailable, or when a call ends without an answer for any of its messages (see
// Relay.judge). An answer, also one that refuses a message, shows that the destination is available: any number of messages
// that fail, in a row or at the same time, do not open it. Open, nothing is fetched or sent, except one probe at a time, with
// a single message (read for it if none is in memory); a probe that gets an answer closes it. The next probe goes out with
// another message, since it may be the message that gets no answer.
type circuit struct {
	isOpen     bool
	probing    bool
	unanswered int // probes in a row that have found the destination unavailable
	wait       time.Duration
	next       time.Time // of the next probe
}

func (c *circuit) open() bool { return c.isOpen }

// allows says how many messages may go out in one call now.
func (c *circuit) allows(maxBatch int, now time.Time) int {
	switch {
	case !c.isOpen:
		return maxBatch
	case c.probing || now.Before(c.next):
		return 0
	default:
		return 1
	}
}

// started notes that a call goes out and reports whether it is a probe.
func (c *circuit) started() (probe bool) {
	c.probing = c.isOpen
	return c.isOpen
}

// abandoned notes a probe that was cancelled from this side.
func (c *circuit) abandoned() { c.probing = false }

// trip opens the circuit, or keeps it open after a probe that failed, and returns the wait before the next probe.
func (c *circuit) trip(now time.Time) (wait time.Duration, opened bool) {
	opened = !c.isOpen
	if opened {
		c.wait = probeMin
	} else {
		c.wait = min(2*c.wait, probeMax)
	}
	c.isOpen, c.probing = true, false
	c.next = now.Add(c.wait)
	return c.wait, opened
}

// close closes the circuit and reports whether it was open.
func (c *circuit) close() bool {
	was := c.isOpen
	*c = circuit{}
	return was
}

// tripped opens the circuit and sees to it that a probe goes out in time.
func (r *Relay) tripped(cause string) {
	wait, opened := r.circuit.trip(time.Now())
	if opened {
		r.cfg.Logger.Warn("destination is unavailable; the relay waits and probes", "relay", r.cfg.Name, "error", cause)
	}
	time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
}

// lacksProbe says that the destination is down, and that a message is to be read to probe with, which is not done for
// anything else while the circuit is open: a probe is due and no message is in memory, as the leases were lost meanwhile, and
// what was held with them; or all that is ready has been sent and got no answer.
func (r *Relay) lacksProbe(now time.Time) bool {
	if n := r.circuit.unanswered; n > 0 && n >= r.sched.len() && !r.circuit.probing {
		return true
	}
	return r.inMemory() == 0 && r.circuit.allows(1, now) > 0
}

// probeWithAnother puts a message behind all others.
func (r *Relay) probeWithAnother(it *item) {
	r.order++
	it.order = r.order
	r.circuit.unanswered++
	signal(r.fetchWake)
	signal(r.dueWake)
}

// recovered closes the circuit.
func (r *Relay) recovered() {
	if r.circuit.close() {
		r.cfg.Logger.Info("destination is available again", "relay", r.cfg.Name)
		signal(r.fetchWake)
		signal(r.dueWake)
		r.changed.Broadcast()
	}
}
