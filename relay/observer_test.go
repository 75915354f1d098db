package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// watcher records what a relay tells its observer.
type watcher struct {
	mu           sync.Mutex
	outcomes     map[observe.AttemptOutcome]int
	reasons      map[string]int
	leases       map[observe.LeaseChange]int
	failed       map[observe.Operation]int
	woken        map[observe.WokenBy]int
	fetched      int
	delivered    int64
	lost         int // settlements
	destinations []store.DestinationState
	foreign      int // calls whose context is not that of Attempting
}

type watched struct{}

func (w *watcher) observer() *observe.Relay {
	*w = watcher{
		outcomes: make(map[observe.AttemptOutcome]int), reasons: make(map[string]int), leases: make(map[observe.LeaseChange]int),
		failed: make(map[observe.Operation]int), woken: make(map[observe.WokenBy]int),
	}
	locked := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
	return &observe.Relay{
		Fetched: func(f observe.Fetched) {
			locked(func() {
				w.fetched += f.Messages
				if !f.Parked && f.Messages > 0 {
					w.woken[f.WokenBy]++
				}
			})
		},
		Attempting: func(ctx context.Context, _ []*postrider.Message) context.Context {
			return context.WithValue(ctx, watched{}, true)
		},
		Attempted: func(ctx context.Context, a observe.Attempted) {
			locked(func() {
				if ctx.Value(watched{}) == nil {
					w.foreign++
				}
				for _, one := range a.Attempts {
					w.outcomes[one.Outcome]++
					if one.Reason != "" {
						w.reasons[one.Reason]++
					}
				}
			})
		},
		Settled: func(s observe.Settled) {
			locked(func() {
				w.lost += s.Lost
				for i := range s.Settlements {
					w.delivered += s.Settlements[i].DeliveredCount
				}
			})
		},
		LeasesChanged:      func(c observe.LeaseChange, n int) { locked(func() { w.leases[c] += n }) },
		DestinationChanged: func(d store.Destination) { locked(func() { w.destinations = append(w.destinations, d.State) }) },
		Failed:             func(op observe.Operation, _ error) { locked(func() { w.failed[op]++ }) },
	}
}

func TestObserverIsToldWhatBecomesOfEachMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var w watcher
		good, retried, dead, snoozed := b.msg("good"), b.msg("retried"), b.msg("dead"), b.msg("")
		failed := map[string]bool{}
		r := b.relay(relay.Config{Observer: w.observer()})
		err := r.HandleFunc("t", func(ctx context.Context, m *postrider.Message) error {
			if ctx.Value(watched{}) == nil {
				t.Errorf("the handler of %s has another context than Attempting returned", m.ID)
			}
			first := !failed[m.ID]
			failed[m.ID] = true
			switch {
			case m.ID == dead.ID:
				return postrider.Dead("refused", errBoom)
			case m.ID == retried.ID && first:
				return errBoom
			case m.ID == snoozed.ID && first:
				return postrider.Snooze(time.Second)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := b.start(r)
		for _, m := range []*postrider.Message{good, retried, dead, snoozed} {
			b.publish(m)
			pass(time.Minute)
		}
		unhandled := b.msg("u")
		unhandled.Type = "other"
		b.publish(unhandled)
		pass(5 * time.Second)
		if u := r.Usage(); u.Leases != 4 || u.Calls != 0 || u.Concurrency != 16 || u.Messages != 0 {
			t.Errorf("usage: %+v", u)
		}
		stop()
		wantOutcomes := map[observe.AttemptOutcome]int{
			observe.AttemptDelivered: 3, observe.AttemptRetried: 1, observe.AttemptDead: 1, observe.AttemptSnoozed: 1, observe.AttemptUnhandled: 1,
		}
		if !maps.Equal(w.outcomes, wantOutcomes) || w.reasons["refused"] != 1 || w.foreign > 0 {
			t.Errorf("outcomes %v, want %v; reasons %v; %d with another context", w.outcomes, wantOutcomes, w.reasons, w.foreign)
		}
		if w.delivered != 3 || w.fetched < 5 || w.woken[observe.WokenByCommit] < 4 || w.leases[observe.LeaseGained] != 4 || w.leases[observe.LeaseReleased] != 4 {
			t.Errorf("delivered %d, fetched %d, woken by %v, leases %v", w.delivered, w.fetched, w.woken, w.leases)
		}
	})
}

// TestDestinationIsInTheStatus: another process sees since when the destination has been down, and why.
func TestDestinationIsInTheStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var w watcher
		k := &broker{}
		b.start(b.relay(relay.Config{Publisher: k, Observer: w.observer()}))
		pass(time.Second)
		shown := func() store.Destination {
			st := b.status()
			return st.DestinationOf()
		}
		if d := shown(); d.State != store.DestinationUnknown {
			t.Errorf("before the first call: %+v", d)
		}
		b.publish(b.msg("a"))
		pass(10 * time.Second)
		if d := shown(); d.State != store.DestinationUp {
			t.Errorf("after a delivery: %+v", d)
		}
		k.down.Store(true)
		b.publish(b.msg("a"))
		pass(time.Minute)
		if d := shown(); d.State != store.DestinationDown || !strings.Contains(d.Error, errBoom.Error()) || d.For < 50*time.Second || d.For > 2*time.Minute || d.NextTry > 5*time.Second {
			t.Errorf("down for a minute: %+v", d)
		}
		k.down.Store(false)
		pass(10 * time.Second)
		if d := shown(); d.State != store.DestinationUp || d.For > 10*time.Second {
			t.Errorf("up again: %+v", d)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		states := []store.DestinationState{store.DestinationUp, store.DestinationDown, store.DestinationUp}
		if len(w.destinations) != 3 || w.destinations[0] != states[0] || w.destinations[1] != states[1] || w.destinations[2] != states[2] {
			t.Errorf("the observer was told %v, want %v", w.destinations, states)
		}
		if w.outcomes[observe.AttemptUnavailable] == 0 {
			t.Errorf("outcomes: %v", w.outcomes)
		}
	})
}

func TestObserverOfTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var w watcher
		r := b.relay(relay.Config{Observer: w.observer()})
		bad := b.msg("k")
		err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error {
			if ctx.Value(watched{}) == nil {
				t.Errorf("the handler of %s has another context than Attempting returned", m.ID)
			}
			if m.ID == bad.ID {
				return postrider.Dead("refused", errBoom)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := b.start(r)
		pass(time.Second)
		b.publish(b.msg("a"), bad, b.msg("b"))
		pass(time.Minute)
		stop()
		if w.outcomes[observe.AttemptDelivered] != 2 || w.outcomes[observe.AttemptDead] != 1 || w.delivered != 2 {
			t.Errorf("outcomes %v, delivered %d", w.outcomes, w.delivered)
		}
	})
}

// refuser answers the first settlements that their leases are lost.
type refuser struct {
	*memory.Store
	refused atomic.Bool
}

func (r *refuser) Settle(ctx context.Context, name string, all []store.Settlement) (store.Settled, error) {
	var res store.Settled
	if r.refused.Swap(true) {
		return r.Store.Settle(ctx, name, all)
	}
	for i := range all {
		res.Lost = append(res.Lost, all[i].Partition)
	}
	return res, nil
}

func (r *refuser) CommitSettled(ctx context.Context, tx *memory.Tx, name string, s store.Settlement) ([]string, error) {
	if r.refused.Swap(true) {
		return r.Store.CommitSettled(ctx, tx, name, s)
	}
	return nil, errors.Join(store.ErrLeaseLost, r.Rollback(ctx, tx))
}

// TestObserverIsToldOfLostSettlements: each settlement of a call is refused.
func TestObserverIsToldOfLostSettlements(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(*testing.T, *relay.Relay){
		"handler":     func(t *testing.T, r *relay.Relay) { handle(t, r, (&journal{}).take) },
		"transaction": func(t *testing.T, r *relay.Relay) { handleTx(t, r, func(*postrider.Message) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var w watcher
				r := b.relayOn(&refuser{Store: b.store}, relay.Config{Observer: w.observer()})
				handle(t, r)
				stop := b.start(r)
				b.publish(b.msg("k"))
				pass(time.Minute)
				stop()
				if w.lost == 0 || w.delivered != 1 {
					t.Errorf("%d settlements were lost and %d messages counted as delivered, want some and one", w.lost, w.delivered)
				}
			})
		})
	}
}

func TestObserverIsToldOfFailedOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		b := faulty(t, func(op string, done bool) error {
			if down.Load() && !done && (op == "Fetch" || op == "Heartbeat") {
				return errors.New("no database")
			}
			return nil
		})
		var w watcher
		k := &broker{}
		b.start(b.relay(relay.Config{Publisher: k, Observer: w.observer()}))
		pass(time.Second)
		down.Store(true)
		pass(20 * time.Second)
		down.Store(false)
		w.mu.Lock()
		if w.failed[observe.OperationFetch] == 0 || w.failed[observe.OperationLease] == 0 || w.leases[observe.LeaseExpired] != 4 {
			t.Errorf("failed operations %v, leases %v", w.failed, w.leases)
		}
		w.mu.Unlock()
		pass(time.Minute)
	})
}

func TestObserverThatPanicsIsCalledNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		k, calls := &broker{}, 0
		var log strings.Builder
		r, err := relay.New(b.store, relay.Config{
			Name: "r", Publisher: k, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: &observe.Relay{LeasesChanged: func(observe.LeaseChange, int) {
				calls++
				panic("observer")
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := b.start(r)
		pass(time.Second)
		b.publish(b.msg("a"))
		pass(time.Second)
		stop()
		if k.len() != 1 || calls != 1 || strings.Count(log.String(), "observer panicked") != 1 {
			t.Errorf("%d delivered, %d calls, log:\n%s", k.len(), calls, log.String())
		}
	})
}
