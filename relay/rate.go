package relay

import (
	"time"
)

// rateLimit limits the messages per second that the process sends, as a token bucket: a call may have as many messages as
// there are tokens. The process has the part of the relay's rate that corresponds to its part of the partitions, so that all
// processes together stay within the rate.
type rateLimit struct {
	perSecond, burst float64

	tokens  float64 // negative after a transaction that had more messages
	counted time.Time
	next    time.Time // when calls may start again; workers are woken then
	reached time.Time // when the limit was last reached
}

// minPause is the least time that calls pause when the limit is reached, so that a publisher gets batches and not single
// messages.
const minPause = 10 * time.Millisecond

// allows returns how many of n messages may go out now. If there are none, it returns the time after which to ask again, or 0
// if a caller was told before. part is the process's part of the partitions.
func (l *rateLimit) allows(n int, part float64, now time.Time) (_ int, pause time.Duration) {
	rate, burst := l.perSecond*part, max(l.burst*part, 1)
	switch {
	case !l.counted.IsZero():
		l.tokens = min(l.tokens+now.Sub(l.counted).Seconds()*rate, burst)
	case part == 1: // a process that joins others has no burst of its own: theirs and its own would exceed the relay's
		l.tokens = burst
	}
	l.counted = now
	switch {
	case now.Before(l.next):
		return 0, 0
	case l.tokens >= 1:
		return min(n, int(l.tokens)), 0
	}
	l.reached = now
	pause = max(time.Duration((1-l.tokens)/rate*float64(time.Second))+1, minPause)
	l.next = now.Add(pause)
	return 0, pause
}

// spend records that messages go out.
func (l *rateLimit) spend(n int) { l.tokens -= float64(n) }

// allowed returns how many messages one call may have now, and has the workers woken when there may be more.
func (r *Relay) allowed(now time.Time) int {
	n := r.circuit.allows(r.cfg.MaxBatch, now)
	if n > 0 {
		n = r.mayStart(n, now)
	}
	if r.rate == nil || n == 0 || len(r.partitions) == 0 || r.sched.Ready() == 0 {
		return n
	}
	n, pause := r.rate.allows(n, float64(len(r.partitions))/float64(r.total), now)
	if pause > 0 {
		time.AfterFunc(pause, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed.Broadcast()
		})
	}
	return n
}

// heldUp reports whether messages wait because nothing may be sent, or less than there is.
func (r *Relay) heldUp(now time.Time) bool {
	return r.circuit.open() || r.closed() || r.rate != nil && now.Sub(r.rate.reached) < max(r.cfg.ParkAfter, r.rate.next.Sub(r.rate.reached))
}
