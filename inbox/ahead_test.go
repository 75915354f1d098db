package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// publishVersions publishes messages of one key with these versions, which are their IDs too.
func publishVersions(t *testing.T, b *memorybroker.Broker, versions ...int64) {
	t.Helper()
	for _, v := range versions {
		m := &postrider.Message{ID: fmt.Sprint(v), Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(), Payload: []byte("{}"), AggregateVersion: v}
		if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeadLetterAheadOfItsKey: version 2, for which version 3 waits, is dead at once, so that somebody can repair it. If nothing holds the
// key by then, it does.
func TestDeadLetterAheadOfItsKey(t *testing.T) {
	for name, skipped := range map[string]bool{"version 3 waits": false, "version 3 was skipped meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b := memory.New(memory.Config{}), newBroker(t)
				repaired := false
				var handled []string
				startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{OnDead: relay.HoldKey, Versions: &inbox.VersionGuard{WaitFor: 4 * time.Hour}},
					func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error {
						if m.AggregateVersion == 2 && !repaired {
							if skipped {
								if _, err := held.Decide(ctx, s, store.Decision{Relay: "view", Key: "k", Verb: store.VerbSkip, By: "olga", Reason: "no use"}); err != nil {
									t.Error(err)
								}
								time.Sleep(10 * time.Second) // the key is released
							}
							return postrider.Dead("refused", nil)
						}
						handled = append(handled, m.ID)
						return nil
					})
				publishVersions(t, b, 1, 3)
				time.Sleep(time.Minute)
				publishVersions(t, b, 2)
				time.Sleep(time.Minute)
				if skipped {
					publishVersions(t, b, 4)
					time.Sleep(time.Minute)
				}
				dead := deadletter.New(s)
				if n, err := dead.CountDead(t.Context(), store.DeadFilter{MessageID: "2"}); n != 1 || err != nil {
					t.Errorf("%d dead letters of version 2, %v; want one at once", n, err)
				}
				keys := 0
				for h, err := range held.New(s).ListHeld(t.Context(), "view") {
					if keys++; err != nil || h.NextAttempt.IsZero() != skipped {
						t.Errorf("held: %+v, %v", h, err)
					}
				}
				if keys != 1 {
					t.Errorf("%d keys are held, want one", keys)
				}
				repaired = true
				if n, err := dead.RedriveDead(t.Context(), store.DeadFilter{}, "olga", 0); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				time.Sleep(3 * time.Hour)
				if want := map[bool]string{false: "[1 2 3]", true: "[1 2]"}[skipped]; fmt.Sprint(handled) != want {
					t.Errorf("handled %v, want %s", handled, want)
				}
			})
		})
	}
}

// TestPoisonAheadOfItsKey: version 2, for which version 3 waits, cannot be decoded. It is dead at once, so that somebody can repair it: at its
// turn after version 3, it would be when that has waited in vain.
func TestPoisonAheadOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := memory.New(memory.Config{}), newBroker(t)
		var handled []string
		startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{OnDead: relay.HoldKey, Versions: &inbox.VersionGuard{WaitFor: 4 * time.Hour}},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				handled = append(handled, m.ID)
				return nil
			})
		publishVersions(t, b, 1, 3)
		time.Sleep(time.Minute)
		b.Poison(&postrider.Message{ID: "2", Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(), Payload: []byte("no message"), AggregateVersion: 2})
		time.Sleep(time.Minute)
		dead := deadletter.New(s)
		for l, err := range dead.ListDead(t.Context(), store.DeadFilter{MessageID: "2"}, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := dead.EditDead(t.Context(), l.Number, store.Edit{Payload: []byte("{}"), By: "olga", Why: "repaired"}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := dead.RedriveDead(t.Context(), store.DeadFilter{}, "olga", 0); n != 1 || err != nil {
			t.Errorf("%d dead letters are redriven, %v; want version 2", n, err)
		}
		time.Sleep(3 * time.Hour)
		if fmt.Sprint(handled) != "[1 2 3]" {
			t.Errorf("handled %v, want [1 2 3]", handled)
		}
	})
}
