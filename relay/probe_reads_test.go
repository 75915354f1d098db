package relay_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
)

// TestAnOutageReadsLittle: while the destination is down, the relay reads messages only to probe with them, not all that are published or
// due.
func TestAnOutageReadsLittle(t *testing.T) {
	t.Parallel()
	for name, parked := range map[string]bool{"the log": false, "parked messages": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var reads atomic.Int64
				var down atomic.Bool
				k := &broker{refuse: func(*postrider.Message) error {
					if down.Load() {
						return postrider.Unavailable(errBoom)
					}
					return postrider.Retry(time.Hour, errBoom)
				}}
				publish := func(n int) {
					for i := range n {
						b.publish(b.msg(fmt.Sprint(i)))
					}
				}
				b.start(b.relay(relay.Config{Publisher: k, MaxAttempts: 1 << 20, Observer: &observe.Relay{Fetched: func(f observe.Fetched) {
					if f.Parked == parked && f.Messages > 0 {
						reads.Add(1)
					}
				}}}))
				if parked {
					publish(500)
					pass(59 * time.Minute)
				}
				down.Store(true)
				for i := range 10 {
					b.publish(b.msg(fmt.Sprint("early/", i)))
				}
				pass(30 * time.Second)
				if !parked {
					publish(500)
				}
				before, calls := reads.Load(), k.calls.Load()
				pass(2 * time.Minute)
				if n, probes := reads.Load()-before, k.calls.Load()-calls; n == 0 || n > int64(probes) || probes > 30 {
					t.Errorf("%d reads for %d probes", n, probes)
				}
			})
		})
	}
}
