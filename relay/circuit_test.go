package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// TestPoisonDoesNotCloseTheWayToOthers: messages that fail whenever they are published, alone in the outbox, look like a
// destination that is down. A message that the destination takes reaches it all the same.
func TestPoisonDoesNotCloseTheWayToOthers(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string][]string{"one": {"bad/1"}, "two in one batch": {"bad/1", "bad/2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, k := setup(t), &broker{refuse: func(m *postrider.Message) error {
					if strings.HasPrefix(m.Key, "bad/") {
						return errBoom
					}
					return nil
				}}
				b.publish(b.msgs(poison...)...)
				r := b.relay(relay.Config{Publisher: k})
				b.start(r)
				pass(10 * time.Minute)
				b.publish(b.msg("good"))
				pass(10 * time.Minute)
				if len(k.of("good")) != 1 {
					t.Errorf("a message of another key is not delivered in 10 minutes and %d calls: %+v", k.calls.Load(), r.Counters())
				}
			})
		})
	}
}

// TestUnansweredMessageDoesNotCloseTheWayToOthers: a message upon which the destination never answers looks like one that is
// down, to a publisher that has nothing else under way. A message that the destination takes reaches it all the same, as often
// as one comes.
func TestUnansweredMessageDoesNotCloseTheWayToOthers(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string][]string{
		"with a key": {"bad/1"}, "with followers": {"bad/1", "bad/1", "bad/1"}, "without a key": {""}, "two": {"bad/1", "bad/2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, k := setup(t), &broker{refuse: func(m *postrider.Message) error {
					if m.Key == "" || strings.HasPrefix(m.Key, "bad/") {
						return postrider.Unavailable(errBoom)
					}
					return nil
				}}
				b.publish(b.msgs(poison...)...)
				r := b.relay(relay.Config{Publisher: k})
				b.start(r)
				pass(10 * time.Minute)
				for n := range 3 {
					b.publish(b.msg("good"))
					pass(time.Minute)
					if len(k.of("good")) != n+1 {
						t.Fatalf("%d of %d messages of another key are delivered after %d calls: %+v", len(k.of("good")), n+1, k.calls.Load(), r.Counters())
					}
				}
			})
		})
	}
}

// TestProbesAfterItLostWhatItHeld: the destination is found unavailable, and then the process loses its leases and with
// them every message in memory, as one that was paused does. It still finds out that the destination is back, also when
// another process has delivered the fresh messages meanwhile.
func TestProbesAfterItLostWhatItHeld(t *testing.T) {
	t.Parallel()
	for name, onlyParkedLeft := range map[string]bool{"messages in the log": false, "parked messages only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cutOff atomic.Bool
				b, k := faulty(t, func(string, bool) error {
					if cutOff.Load() {
						return errBoom
					}
					return nil
				}), &broker{}
				now, later := b.msg("k"), b.msg("l")
				later.DeliverAfter = time.Minute
				b.publish(now, later)
				k.down.Store(true)
				cfg := relay.Config{Publisher: k, LeaseTTL: 3 * time.Second}
				b.start(b.relay(cfg))
				pass(time.Second)
				cutOff.Store(true)
				pass(10 * time.Second)
				k.down.Store(false)
				if onlyParkedLeft {
					other := &bundle{t: t, store: b.store.Reopen()}
					stop := other.start(other.relay(cfg))
					pass(10 * time.Second)
					stop()
				}
				cutOff.Store(false)
				pass(2 * time.Minute)
				want(t, "delivered", append(k.of("k"), k.of("l")...), []string{now.ID, later.ID})
			})
		})
	}
}

// TestDestinationStaysDownLongerThanTheLeasesAreLost: heartbeats fail until the leases have ended, and start again; the
// destination comes back only after that.
func TestDestinationStaysDownLongerThanTheLeasesAreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cutOff atomic.Bool
		b, k := faulty(t, func(op string, _ bool) error {
			if cutOff.Load() && op == "Heartbeat" {
				return errBoom
			}
			return nil
		}), &broker{}
		b.publish(b.msgs("a", "b")...)
		k.down.Store(true)
		r := b.relay(relay.Config{Publisher: k})
		b.start(r)
		pass(time.Second)
		cutOff.Store(true)
		pass(30 * time.Second)
		cutOff.Store(false)
		pass(30 * time.Second)
		k.down.Store(false)
		pass(time.Minute)
		if k.len() != 2 {
			t.Errorf("delivered %d of 2 in the minute after everything was back: %+v", k.len(), r.Counters())
		}
		b.wantNothingLeft(r)
	})
}

// TestDestinationDownDuringAHandover: while the destination is down, a second process takes over the partition of the only
// message in memory. Neither process is left waiting for a probe that nothing is there for.
func TestDestinationDownDuringAHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := setup(t), &broker{}
		b.publish(b.msgs(keysIn(3, 1)...)...) // the highest partitions are given up first
		k.down.Store(true)
		one, two := b.relay(relay.Config{Publisher: k}), b.relay(relay.Config{Publisher: k})
		b.start(one)
		pass(time.Second)
		b.start(two)
		pass(20 * time.Second)
		k.down.Store(false)
		pass(time.Minute)
		b.publish(b.msgs(keysIn(0, 1)...)...)
		pass(time.Minute)
		if k.len() != 2 {
			t.Errorf("delivered %d of 2 to a destination that is back; first process %+v, second %+v", k.len(), one.Counters(), two.Counters())
		}
	})
}

// TestUndecodableMessageDoesNotHideAnOutage: a batch in which every message fails is an outage, and no attempt of any of
// them, also when a stored row in it is no message and dies.
func TestUndecodableMessageDoesNotHideAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range 100 {
			b.publish(b.msg(fmt.Sprint(i)))
		}
		b.publishUndecodable(b.msg("bad"))
		refused := publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
			errs := make([]error, len(msgs))
			for i := range errs {
				errs[i] = errBoom
			}
			return errs
		})
		b.start(b.relay(relay.Config{Concurrency: 1, Publisher: refused}))
		pass(150 * time.Millisecond)
		// Counted are the row that is no message, and calls with a single message, such as probes, which look like its failure.
		if st := b.status(); st.Failed > 3 || st.Parked.N > 2 || st.Dead.N != 1 {
			t.Errorf("in an outage %d attempts failed, %d messages are parked and %d dead, want 3, 2 and 1 at most",
				st.Failed, st.Parked.N, st.Dead.N)
		}
	})
}
