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
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestRetryHasTheTimeOfAnAttempt: a parked message's handler may take as long as that of one that arrives.
func TestRetryHasTheTimeOfAnAttempt(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"as configured": time.Hour, "without a limit": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, calls := newBroker(t), 0
				c, log := started(t, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{AttemptTimeout: timeout},
					func(ctx context.Context, _ *memory.Tx, _ *postrider.Message) error {
						if calls++; calls == 1 {
							return postrider.Unavailable(errors.New("not yet"))
						}
						select {
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-time.After(40 * time.Second):
							return nil
						}
					})
				publishKeys(t, b, "k")
				time.Sleep(2 * time.Minute)
				if s := c.Stats(); s.Parked != 1 || s.Applied != 1 || s.Failed != 0 || calls != 2 {
					t.Errorf("%d calls, %+v; want the retry applied\n%s", calls, s, log)
				}
			})
		})
	}
}

// TestVersionThatWaitsIsNotMissing: version 5 is parked since it came early, and 4, which came then, since its handler waits for something.
// However long that takes, 5 is not dead-lettered as if 4 had never come.
func TestVersionThatWaitsIsNotMissing(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]error{
		"unavailable": postrider.Unavailable(errors.New("not yet")), "snoozed": postrider.Snooze(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, b := memory.New(memory.Config{}), newBroker(t)
				until := time.Now().Add(10 * time.Minute)
				handled := ""
				_, log := startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{Versions: &inbox.VersionGuard{}},
					func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
						if m.AggregateVersion == 4 && time.Now().Before(until) {
							return wait
						}
						handled += fmt.Sprintf("[%d]", m.AggregateVersion)
						return nil
					})
				for _, version := range []int64{3, 5, 4} {
					m := &postrider.Message{
						ID: fmt.Sprint(version), AggregateVersion: version, Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(),
					}
					if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(15 * time.Minute)
				dead, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{})
				if handled != "[3][4][5]" || dead != 0 || err != nil {
					t.Errorf("handled %s, and %d are dead, %v; want [3][4][5]\n%s", handled, dead, err, log)
				}
			})
		})
	}
}
