package relay

import (
	"context"
	"time"
)

// Gate says whether a relay that hands messages to handlers may start work. A *resilience.Operation is a Gate, and so is a *Relay. Its
// methods return at once, and do not call the relay.
type Gate interface {
	// Allow returns how many messages may be started now, up to limit, and, if there are none and it is known, when to ask again.
	Allow(limit int) (n int, again time.Duration)
	// Changed returns a channel that is closed when the answer of Allow may have changed since the call.
	Changed() <-chan struct{}
}

var _ Gate = (*Relay)(nil)

// Allow implements Gate: it allows as many as Config.Gate does.
func (r *Relay) Allow(limit int) (n int, again time.Duration) {
	if r.cfg.Gate == nil {
		return limit, 0
	}
	return r.cfg.Gate.Allow(limit)
}

// Changed implements Gate.
func (r *Relay) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gateChanged
}

// closed reports whether nothing may be started now.
func (r *Relay) closed() bool {
	n, _ := r.Allow(1)
	return n == 0
}

// admitted returns how many of n messages may be started now. Calls in progress may not have reached the gate yet.
func (r *Relay) admitted(n int) int {
	calls := r.sched.Calls()
	free, _ := r.Allow(n + calls)
	return max(free-calls, 0)
}

// gateLoop wakes whoever waits for the gate.
func (r *Relay) gateLoop(ctx context.Context) {
	if r.cfg.Gate == nil {
		return
	}
	for {
		changed := r.cfg.Gate.Changed()
		_, again := r.cfg.Gate.Allow(1)
		r.gateMoved()
		var later <-chan time.Time
		if again > 0 {
			later = time.After(again)
		}
		select {
		case <-changed:
		case <-later:
		case <-r.life.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// gateMoved wakes whoever waits until messages may be started.
func (r *Relay) gateMoved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gateChanged)
	r.gateChanged = make(chan struct{})
	r.changed.Broadcast()
	signal(r.fetchWake)
	signal(r.dueWake)
}
