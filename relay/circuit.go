package relay

import (
	"cmp"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// The bounds of the wait before a probe, which doubles.
const (
	probeMin = 100 * time.Millisecond
	probeMax = 5 * time.Second

	// probesOfReady is how many probes without an answer are of messages in memory, before another one is read.
	probesOfReady = 3

	// callGrace is how long a call is waited for beyond its time. One that ignores its context keeps no others back for longer.
	callGrace = 5 * time.Second
)

// circuit prevents a broker that is down from looking like ten thousand failing messages. Closed, calls go out.
//
//   - It opens when the publisher reports that the broker is unavailable, or when a call ends without an answer for any of its
//     messages (see Relay.tellCircuit). An answer, even one that refuses a message, shows that the destination is available: any
//     number of failing messages, in a row or at the same time, do not open it.
//   - Open, nothing is fetched or sent except one probe at a time, with a single message (read for it if none is in memory). The
//     next probe uses a different message, since it may be the message that gets no answer. A destination that says for how long
//     it is unavailable (postrider.UnavailableFor) is not probed before. A probe that does not return is followed by another one.
//   - A probe that gets an answer closes it.
type circuit struct {
	isOpen  bool
	probing time.Time // since when a probe is in progress, zero if none is
	// sinceRead and sinceDue count the consecutive probes that found the destination unavailable, since a message was last read from the
	// log, and a parked one.
	sinceRead, sinceDue int
	wait                time.Duration
	next                time.Time // of the next probe
	// since is when the destination was first found in its state, zero before the first call; cause says why it is down.
	since time.Time
	cause string
}

func (c *circuit) open() bool { return c.isOpen }

// allows returns how many messages may go out in one call now.
func (c *circuit) allows(maxBatch int, now time.Time) int {
	switch {
	case !c.isOpen:
		return maxBatch
	case !c.probing.IsZero() || now.Before(c.next):
		return 0
	default:
		return 1
	}
}

// started records that a call goes out and reports whether it is a probe.
func (c *circuit) started(now time.Time) (probe bool) {
	if c.isOpen {
		c.probing = now
	}
	return c.isOpen
}

// probes reports whether the call that began at a time is the probe in progress. A late one, which was followed by another, is not.
func (c *circuit) probes(began time.Time) bool { return c.isOpen && c.probing.Equal(began) }

// abandoned records a probe that was cancelled by this process.
func (c *circuit) abandoned() { c.probing = time.Time{} }

// trip opens the circuit, or keeps it open after a probe that failed, and returns the wait before the next probe, which is not
// shorter than what the destination asked for.
func (c *circuit) trip(now time.Time, cause string, asked time.Duration) (wait time.Duration, opened bool) {
	opened = !c.isOpen
	c.cause = cause
	if opened {
		c.wait, c.since = probeMin, now
	} else {
		c.wait = min(2*c.wait, probeMax)
	}
	c.isOpen, c.probing = true, time.Time{}
	wait = max(c.wait, asked)
	c.next = now.Add(wait)
	return wait, opened
}

// close closes the circuit, and reports whether it was open, and whether the state of the destination is news.
func (c *circuit) close(now time.Time) (was, news bool) {
	was, news = c.isOpen, c.isOpen || c.since.IsZero()
	if news {
		*c = circuit{since: now}
	}
	return was, news
}

// destination returns what is known about the destination.
func (c *circuit) destination(now time.Time) store.Destination {
	switch {
	case c.isOpen:
		return store.Destination{State: store.DestinationDown, For: now.Sub(c.since), Error: c.cause, NextTry: max(c.next.Sub(now), 0)}
	case c.since.IsZero():
		return store.Destination{}
	}
	return store.Destination{State: store.DestinationUp, For: now.Sub(c.since)}
}

// destination returns what is known about the destination. A relay with handlers has none to report, except that it is down while
// the database begins no transactions.
func (r *Relay) destination() store.Destination {
	d := r.circuit.destination(time.Now())
	if r.publish == nil && d.State == store.DestinationUp {
		return store.Destination{}
	}
	return d
}

// tripped opens the circuit and schedules the next probe, not before the time that the destination asked for.
func (r *Relay) tripped(cause string, asked time.Duration) {
	wait, opened := r.circuit.trip(time.Now(), cause, asked)
	if opened {
		signal(r.heartbeatWake) // which records it
		r.observeDestination()
		r.cfg.Logger.Warn("destination is unavailable; the relay waits and probes", "relay", r.cfg.Name, "error", cause)
	}
	time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
}

// lacksProbe reports whether a message must be read as a probe, the only reason to read while the circuit is open:
//
//   - a probe is due and no message is in memory, because the leases were lost meanwhile, and the messages with them; or
//   - everything that is ready, or probesOfReady of it, has been sent as a probe and got no answer since the last one was read. It may be
//     those messages that get none, so another one joins them.
func (r *Relay) lacksProbe(unanswered int, now time.Time) bool {
	if unanswered > 0 && unanswered >= min(r.sched.Ready(), probesOfReady) && r.circuit.probing.IsZero() {
		return true
	}
	return r.sched.InMemory() == 0 && r.circuit.allows(1, now) > 0
}

// callLimit is how long others wait for a call, before it reaches the gate or while it probes.
func (r *Relay) callLimit() time.Duration {
	return cmp.Or(r.attemptTimeout(), DefaultAttemptTimeout) + callGrace
}

// probeReturns has another message probe if the call of the last probe does not return.
func (r *Relay) probeReturns(now time.Time) {
	limit := r.callLimit()
	if since := r.circuit.probing; !since.IsZero() && now.Sub(since) >= limit {
		r.tripped(fmt.Sprintf("a call has not returned for %s", limit), 0)
		r.probeWithAnother()
	}
}

// probeWithAnother has a message read to probe with, if too few are ready.
func (r *Relay) probeWithAnother() {
	r.circuit.sinceRead++
	r.circuit.sinceDue++
	signal(r.fetchWake)
	signal(r.dueWake)
}

// recovered closes the circuit.
func (r *Relay) recovered() {
	was, news := r.circuit.close(time.Now())
	if news && (was || r.publish != nil) {
		r.observeDestination()
	}
	if was {
		signal(r.heartbeatWake)
		r.cfg.Logger.Info("destination is available again", "relay", r.cfg.Name)
		signal(r.fetchWake)
		signal(r.dueWake)
		r.changed.Broadcast()
	}
}
