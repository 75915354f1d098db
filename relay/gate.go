package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

// Gate says whether a relay that hands messages to handlers may start work. A *resilience.Operation is a Gate, and so is a *Relay. Its
// methods return at once, and do not call the relay. If it has a method Name() string, the status says what the relay waits for.
type Gate interface {
	// Allow returns how many messages may be started now, up to limit, and, if there are none and it is known, when to ask again.
	Allow(limit int) (n int, again time.Duration)
	// Changed returns a channel that is closed when the answer of Allow may have changed since the call.
	Changed() <-chan struct{}
}

var _ Gate = (*Relay)(nil)

// gating is what keeps a relay from starting work, besides the state of its destination.
type gating struct {
	changed chan struct{} // closed when the answer of Allow may have changed
	paused  atomic.Bool   // an operator has paused the relay, or it is not known yet whether one has
	known   bool          // used by the lease loop only
	shut    time.Time     // since when Config.Gate is closed, as the lease loop found it; zero while it is open
}

// gateState is the state of Config.Gate.
func (r *Relay) gateState(now time.Time) store.Gate {
	if r.cfg.Gate == nil {
		return store.Gate{}
	}
	n, again := r.cfg.Gate.Allow(1)
	if n > 0 {
		r.gating.shut = time.Time{}
		return store.Gate{}
	}
	if r.gating.shut.IsZero() {
		r.gating.shut = now
	}
	state := store.Gate{Closed: true, For: now.Sub(r.gating.shut), NextTry: again}
	if named, ok := r.cfg.Gate.(interface{ Name() string }); ok {
		state.On = named.Name()
	}
	return state
}

// Allow implements Gate: it allows none while the relay is paused, and otherwise as many as Config.Gate does.
func (r *Relay) Allow(limit int) (n int, again time.Duration) {
	switch {
	case r.gating.paused.Load():
		return 0, 0
	case r.cfg.Gate == nil:
		return limit, 0
	}
	return r.cfg.Gate.Allow(limit)
}

// Changed implements Gate.
func (r *Relay) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gating.changed
}

// closed reports whether nothing may be started now.
func (r *Relay) closed() bool {
	n, _ := r.Allow(1)
	return n == 0
}

// mayStart returns how many of n messages may be started now. Calls in progress may not have reached the gate yet, except those that are
// not waited for.
func (r *Relay) mayStart(n int, now time.Time) int {
	calls := r.sched.Calls()
	free, _ := r.Allow(n + calls)
	if free < n+calls {
		calls = r.sched.CallsAfter(now.Add(-r.callLimit()))
	}
	return min(max(free-calls, 0), n)
}

// gateLoop wakes what waits for the gate.
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

// gateMoved wakes what waits until messages may be started.
func (r *Relay) gateMoved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gating.changed)
	r.gating.changed = make(chan struct{})
	r.changed.Broadcast()
	signal(r.fetchWake)
	signal(r.dueWake)
}

// readPause finds out whether an operator has paused the relay. Until that is known, a failure is an error, and nothing is started; later,
// what was known last counts.
func (r *Relay) readPause(ctx context.Context) error {
	var rec *store.Record
	op := store.Operation{Method: "ReadPause", Doing: "find out whether relay " + r.cfg.Name + " is paused"}
	err := r.store.View(ctx, op, func(read store.Reader) (err error) {
		rec, err = stored.FindPause(ctx, read, r.cfg.Name)
		return err
	})
	switch {
	case err != nil && r.gating.known:
		r.observeFailure(observe.OperationLease, err)
		return nil
	case err != nil:
		return err
	case rec != nil && (!r.gating.known || !r.gating.paused.Load()):
		p := stored.PauseOf(*rec)
		r.cfg.Logger.Warn("relay is paused and starts nothing", "relay", r.cfg.Name, "by", p.By, "reason", p.Reason, "until", p.Until)
	case rec == nil && r.gating.known && r.gating.paused.Load():
		r.cfg.Logger.Info("relay is no longer paused", "relay", r.cfg.Name)
	}
	r.gating.known = true
	if was := r.gating.paused.Swap(rec != nil); was != (rec != nil) {
		r.gateMoved()
	}
	return nil
}
