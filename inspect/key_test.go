package inspect_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

func TestStatesOfAKey(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		arrange func(b bundle)
		state   inspect.State
		next    inspect.NextCode
		check   func(p inspect.Place) bool
	}{
		"held": {
			func(b bundle) { b.publish("k", "m-1", "m-2"); b.settle("r", hold); b.lease("r", worker) }, inspect.Held, inspect.NextAttempt,
			func(p inspect.Place) bool {
				return p.HeldKey.Parked == 2 && p.Attempts == 3 && p.Actions[0].Kind == inspect.ActionRetry && p.Actions[2].MessageID == "m-1"
			},
		},
		"held for a decision": {
			func(b bundle) { b.publish("k", "m-1", "m-2"); b.settle("r", holdForDead) }, inspect.Held, inspect.NextDecision,
			func(p inspect.Place) bool {
				return p.HeldKey.NextAttempt.IsZero() && p.Actions[0].Kind == inspect.ActionRedrive && p.Load.Dead.N == 1
			},
		},
		"not held": {
			func(b bundle) { b.lease("r", worker); b.publish("k", "m-1"); time.Sleep(time.Minute) }, inspect.NotHeld, inspect.NextDelivery,
			func(p inspect.Place) bool {
				return p.Load.Backlog.N == 1 && p.Load.BacklogAgeSeconds == 60 && p.Owner == "host-1"
			},
		},
		"not held, without a process": {
			func(b bundle) { b.settle("r", deliver) }, inspect.NotHeld, inspect.NextProcess,
			func(p inspect.Place) bool { return p.Actions[0].Kind == inspect.ActionStart },
		},
		"not held by a consumer": {
			func(b bundle) { b.enroll("r", nil) }, inspect.NotHeld, inspect.NextUnknown, nil,
		},
		"not begun": {
			func(b bundle) {
				_, err := b.Heartbeat(b.t.Context(), "r", worker, time.Hour)
				b.must(err)
			}, inspect.NotBegun, inspect.NextProcess, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				tt.arrange(b)
				e, err := inspect.Key(t.Context(), b, "k")
				b.must(err)
				p := place(t, e, "r")
				if e.Key.Key != "k" || p.State != tt.state || p.Next.Code != tt.next || p.Next.Text == "" || tt.check != nil && !tt.check(p) {
					t.Errorf("explained: %+v, load %+v, held key %+v; want %s, next %s", p, p.Load, p.HeldKey, tt.state, tt.next)
				}
			})
		})
	}
}

func TestStatesOfARelay(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		arrange func(b bundle)
		state   inspect.State
		next    inspect.NextCode
		load    inspect.Load
	}{
		"idle":                               {func(b bundle) { b.settle("r", deliver) }, inspect.Idle, inspect.NextNothing, inspect.Load{}},
		"working":                            {func(b bundle) { b.lease("r", worker); b.publish("", "m-1") }, inspect.Working, inspect.NextDelivery, inspect.Load{Backlog: store.Count{N: 1}, Processes: 1}},
		"down":                               {func(b bundle) { b.lease("r", ofDownDestination()); b.publish("", "m-1") }, inspect.Down, inspect.NextAnswer, inspect.Load{Backlog: store.Count{N: 1}, Processes: 1}},
		"stopped":                            {func(b bundle) { b.publish("k", "m-1"); b.settle("r", hold) }, inspect.Stopped, inspect.NextProcess, inspect.Load{Parked: store.Count{N: 1}, Held: store.Count{N: 1}}},
		"a consumer that has parked nothing": {func(b bundle) { b.enroll("r", nil) }, inspect.Idle, inspect.NextNothing, inspect.Load{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				tt.arrange(b)
				e, err := inspect.Relay(t.Context(), b, "r")
				b.must(err)
				if p := place(t, e, "r"); e.Relay != "r" || p.State != tt.state || p.Next.Code != tt.next || p.Next.Text == "" || *p.Load != tt.load {
					t.Errorf("explained: %+v, load %+v; want %s, next %s, load %+v", p, *p.Load, tt.state, tt.next, tt.load)
				}
			})
		})
	}
	if _, err := inspect.Relay(t.Context(), setup(t), "r"); !errors.Is(err, store.ErrUnknownRelay) {
		t.Errorf("an unknown relay: %v", err)
	}
}

// ofDownDestination is a process whose destination does not answer.
func ofDownDestination() store.Owner {
	o := worker
	o.Destination = store.Destination{State: store.DestinationDown, For: time.Minute, Error: "webhook answered 503", NextTry: 2 * time.Second}
	return o
}

// TestExplainsAnOutage: a relay, a message and a key that wait for a destination say so, since when, why, and when it is tried again.
func TestExplainsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.lease("r", ofDownDestination())
		b.publish("k", "m-1")
		message, err := inspect.Message(t.Context(), b, "m-1")
		b.must(err)
		key, err := inspect.Key(t.Context(), b, "k")
		b.must(err)
		relay, err := inspect.Relay(t.Context(), b, "r")
		b.must(err)
		for what, e := range map[string]inspect.Explanation{"message": message, "key": key, "relay": relay} {
			p := place(t, e, "r")
			if p.Next.Code != inspect.NextAnswer || !p.Next.At.Equal(e.Now.Add(2*time.Second)) || strings.Contains(p.Next.Text, "webhook answered 503") ||
				p.Down == nil || p.Down.Cause != "webhook answered 503" || !p.Down.Since.Equal(e.Now.Add(-time.Minute)) {
				t.Errorf("%s: %+v, down %+v", what, p.Next, p.Down)
			}
		}
	})
}
