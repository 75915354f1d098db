package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
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
