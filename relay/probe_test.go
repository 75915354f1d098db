package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestProbesAfterItLostWhatItHeld: the destination is found unavailable, and then the process loses its leases and with
// them every message in memory, as one that was paused does. It still finds out that the destination is back.
func TestProbesAfterItLostWhatItHeld(t *testing.T) {
	t.Parallel()
	for name, onlyParkedLeft := range map[string]bool{"messages in the log": false, "parked messages only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var down, cutOff atomic.Bool
				b, j := setup(t), &journal{}
				b.store = memory.New(memory.Config{Partitions: 4, Fault: func(string, bool) error {
					if cutOff.Load() {
						return errBoom
					}
					return nil
				}})
				publisher := publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
					if down.Load() {
						errs := make([]error, len(msgs))
						for i := range errs {
							errs[i] = postrider.Unavailable(errBoom)
						}
						return errs
					}
					for _, m := range msgs {
						j.note(m)
					}
					return nil
				})
				now, later := b.msg("k"), b.msg("l")
				later.DeliverAfter = time.Minute
				b.publish(now, later)
				down.Store(true)
				b.start(b.relay(relay.Config{Publisher: publisher, LeaseTTL: 3 * time.Second}))
				time.Sleep(time.Second)
				cutOff.Store(true)
				time.Sleep(10 * time.Second)
				down.Store(false)
				if onlyParkedLeft {
					other := &bundle{t: t, store: b.store.Reopen()}
					stop := other.start(other.relay(relay.Config{Publisher: publisher, LeaseTTL: 3 * time.Second}))
					time.Sleep(10 * time.Second)
					stop()
				}
				cutOff.Store(false)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				want(t, "delivered", append(j.of("k"), j.of("l")...), []string{now.ID, later.ID})
			})
		})
	}
}
