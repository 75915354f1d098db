package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// TestPoisonDoesNotCloseTheWayToOthers: the only messages in the outbox fail whenever they are published. A message that the
// destination accepts still reaches it.
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

// TestUnansweredMessageDoesNotCloseTheWayToOthers: the destination never answers for one message. To a publisher with nothing
// else in progress it looks as if it were down. Messages that the destination accepts still reach it, every time.
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

// TestProbesAfterItLostWhatItHeld: the destination is found unavailable, and then the process loses its leases and with them
// every message in memory, as after a pause. It still notices when the destination is back, even if another process has
// delivered the fresh messages meanwhile.
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

// TestDestinationStaysDownLongerThanTheLeasesAreLost: heartbeats fail until the leases have ended, and then succeed again;
// the destination comes back only after that.
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
// message in memory. Neither process is left waiting for a probe for which it has no message.
func TestDestinationDownDuringAHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := setup(t), &broker{}
		b.publish(b.msgs(keysIn(3, 1)...)...) // the highest partitions are handed over first
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

// TestUndecodableMessageDoesNotHideAnOutage: a batch in which every message is unavailable is an outage and counts no
// attempts, even if it also contains an undecodable row, which is dead-lettered.
func TestUndecodableMessageDoesNotHideAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := setup(t), &broker{}
		for i := range 100 {
			b.publish(b.msg(fmt.Sprint(i)))
		}
		b.publishUndecodable(b.msg("bad"))
		k.down.Store(true)
		b.start(b.relay(relay.Config{Concurrency: 1, Publisher: k}))
		pass(150 * time.Millisecond)
		if st := b.status(); st.Failed > 1 || st.Parked.N > 0 || st.Dead.N != 1 {
			t.Errorf("in an outage %d attempts failed, %d messages are parked and %d dead, want those of one row that is no message",
				st.Failed, st.Parked.N, st.Dead.N)
		}
	})
}

// TestManyPoisonedKeysDoNotCloseTheRoute: the destination answers every message of 1,500 keys with a failure, forever, and
// accepts those of all other keys, which keep coming.
func TestManyPoisonedKeysDoNotCloseTheRoute(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{
		"batches":    {},
		"one by one": {MaxBatch: 1, Concurrency: 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var took sync.Map
				cfg.MaxAttempts = 1 << 20
				cfg.Publisher = publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
					time.Sleep(20 * time.Millisecond)
					errs := make([]error, len(msgs))
					for i, m := range msgs {
						if strings.HasPrefix(m.Key, "bad/") {
							errs[i] = postrider.Retry(0, errBoom)
						} else {
							took.Store(m.ID, time.Since(m.Time))
						}
					}
					return errs
				})
				for i := range 1500 {
					b.publish(b.msg(fmt.Sprint("bad/", i)))
				}
				r := b.relay(cfg)
				b.start(r)
				for i := range 60 {
					m := b.msg(fmt.Sprint("good/", i))
					b.publish(m)
					pass(time.Second)
					if _, ok := took.Load(m.ID); !ok && i > 5 { // the first attempts of the poisoned keys come before it
						t.Fatalf("message %d of another key is not delivered in a second: %+v", i, r.Counters())
					}
				}
				if c := r.Counters(); c.CircuitOpen {
					t.Errorf("the circuit is open though the destination answers: %+v", c)
				}
			})
		})
	}
}

// TestNewMessagesAreAmongTheProbes: the messages of 150 keys wait for their next attempt, and the destination now seems to be down for
// each of them. The message of another key does not wait until all of them have been probes, which takes 12 minutes.
func TestNewMessagesAreAmongTheProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, down := setup(t), atomic.Bool{}
		k := &broker{refuse: func(m *postrider.Message) error {
			switch {
			case !strings.HasPrefix(m.Key, "bad/"):
				return nil
			case down.Load():
				return postrider.Unavailable(errBoom)
			default:
				return postrider.Retry(0, errBoom)
			}
		}}
		for i := range 150 {
			b.publish(b.msg(fmt.Sprint("bad/", i)))
		}
		r := b.relay(relay.Config{Publisher: k, MaxAttempts: 1 << 20})
		b.start(r)
		pass(10 * time.Minute)
		down.Store(true)
		pass(10 * time.Minute)
		if c := r.Counters(); !c.CircuitOpen {
			t.Errorf("the circuit is not open: %+v", c)
		}
		b.publish(b.msg("good"))
		pass(30 * time.Second)
		if len(k.of("good")) != 1 {
			t.Errorf("a message of another key is not delivered in 30 seconds: %+v", r.Counters())
		}
	})
}

// TestCallThatBreaksIsNoAttemptOfOthers: a publisher panics on one message. Messages of other keys in the call are not
// charged an attempt, and are delivered; the message that breaks the call is dead-lettered after its attempts.
func TestCallThatBreaksIsNoAttemptOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		for i := range 50 {
			b.publish(b.msg(fmt.Sprint(i)))
		}
		b.publish(b.msg("bad"))
		r := b.relay(relay.Config{MaxAttempts: 3, Publisher: publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
			for _, m := range msgs {
				if m.Key == "bad" {
					panic("bad message")
				}
			}
			for _, m := range msgs {
				if m.Attempt != 1 {
					t.Errorf("message of key %s at attempt %d", m.Key, m.Attempt)
				}
				j.note(m)
			}
			return nil
		})})
		b.start(r)
		pass(10 * time.Minute)
		if st := b.status(); j.len() != 50 || st.Dead.N != 1 {
			t.Errorf("delivered %d, dead %d, want 50 and 1: %+v", j.len(), st.Dead.N, r.Counters())
		}
	})
}

// TestDestinationThatSaysForHowLong: a destination that is unavailable for ten minutes, and says so, is not probed before. Operators see
// when the next try is. Nothing is counted.
func TestDestinationThatSaysForHowLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b, k := setup(t), &broker{}
		k.refuse = func(*postrider.Message) error {
			if left := 10*time.Minute - time.Since(began); left > 0 {
				return postrider.UnavailableFor(left, errBoom)
			}
			return nil
		}
		b.publish(b.msgs("a", "b", "c")...)
		b.start(b.relay(relay.Config{Publisher: k, MaxAttempts: 1}))
		pass(9 * time.Minute)
		calls := k.calls.Load()
		st := b.status()
		if d := st.DestinationOf(); calls != 1 || d.State != store.DestinationDown || d.NextTry < 30*time.Second || d.NextTry > 2*time.Minute {
			t.Errorf("%d calls in 9 minutes, destination %+v", calls, d)
		}
		pass(2 * time.Minute)
		if st := b.status(); len(k.of("a")) != 1 || len(k.of("c")) != 1 || st.Failed != 0 || st.DestinationOf().State != store.DestinationUp {
			t.Errorf("%d calls, %+v", k.calls.Load(), st)
		}
	})
}
