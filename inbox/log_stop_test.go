package inbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// TestStopKeepsTheLeaseOfATransaction: a process stops while a handler runs that takes longer than a lease lasts, and another process starts,
// as in a deployment. The first one commits, and the second has no part of it.
func TestStopKeepsTheLeaseOfATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b, calls := memory.New(memory.Config{}), newBroker(t), 0
		start := func() (*inbox.Consumer[*memory.Tx], *text) {
			return run(t, s, b, memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}, inbox.ConsumerConfig{},
				func(ctx context.Context, _ *memory.Tx, _ *postrider.Message) error {
					calls++
					time.Sleep(25 * time.Second)
					return ctx.Err()
				})
		}
		first, _ := start()
		publishTo(t, b, "1")
		time.Sleep(time.Second)
		second, log := start()
		if err := first.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		publishTo(t, b, "2")
		time.Sleep(time.Minute)
		if one, two := first.Stats(), second.Stats(); one.Applied != 1 || two.Applied != 1 || calls != 2 {
			t.Errorf("%d calls; first %+v, second %+v; want one call and one message for each\n%s", calls, one, two, log)
		}
	})
}
