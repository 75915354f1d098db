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
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestSlowMessageThatIsDoneBeforeItsParkingIsRecorded: a message is parked while it is being worked on, and its outcome
// arrives before that is recorded: both are in one settlement. The message is delivered once and does not stay parked.
func TestSlowMessageThatIsDoneBeforeItsParkingIsRecorded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, key string
		outage    bool          // settlements fail until the message is done; otherwise it is done right after it is parked
		takes     time.Duration // work on the message
	}{
		{"with a key, store away", "k", true, 7 * time.Second},
		{"without a key, store away", "", true, 7 * time.Second},
		{"with a key", "k", false, 5*time.Second + 502*time.Millisecond},
		{"without a key", "", false, 5*time.Second + 502*time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				b, j := faulty(t, func(op string, done bool) error {
					if op == "Settle" && !done && broken.Load() {
						return errBoom
					}
					return nil
				}), &journal{}
				r := b.relay(relay.Config{})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					if m.ID == "m001" {
						time.Sleep(c.takes)
					}
					return j.take(ctx, m)
				})
				broken.Store(c.outage)
				b.start(r)
				pass(750 * time.Millisecond) // slow work is checked for every 1.25 s: work that begins now is parked after 5.5 s
				b.publish(b.msg(c.key), b.msg("other"))
				pass(8 * time.Second) // less than a lease
				broken.Store(false)
				pass(10 * time.Minute)
				want(t, "delivered", j.of(c.key), []string{"m001"})
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestSlowKeyDoesNotFillTheMemory: a key with a deep backlog is worked on slowly, with one worker of many. The messages
// queued for it leave room in memory for messages of other keys in its partition.
func TestSlowKeyDoesNotFillTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		keys := keysIn(0, 2)
		slow, other := keys[0], keys[1]
		b.publish(b.many(2000, slow)...)
		r := b.relay(relay.Config{MaxInFlight: 1500})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == slow {
				time.Sleep(time.Second)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(time.Second)
		b.publish(b.msg(other))
		pass(time.Minute)
		if len(j.of(other)) != 1 {
			t.Errorf("a message of another key waits for more than a minute, with 15 of 16 workers idle: %+v", r.Counters())
		}
	})
}

// TestWaitingForASlowKeyDoesNotHoldTheCursorBack: the messages of a key wait for each other for longer than ParkAfter,
// although each is fast. What is delivered of other keys meanwhile is recorded, so that a crash repeats little of it.
func TestWaitingForASlowKeyDoesNotHoldTheCursorBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const others = 1000
		b, j := setup(t), &journal{}
		keys := keysIn(0, 2)
		slow, other := keys[0], keys[1]
		b.publish(b.many(1000, slow)...)
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == slow {
				time.Sleep(4 * time.Second)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		for range others {
			time.Sleep(time.Second)
			b.publish(b.msg(other))
		}
		pass(time.Second)
		if n := len(j.of(other)); n != others {
			t.Errorf("delivered %d messages of the other key, want %d", n, others)
		}
		if st := b.status(); st.Backlog.N > others/5 {
			t.Errorf("the cursor stands %d messages back, %s old, though only the slow key's are undelivered: %+v",
				st.Backlog.N, st.Age, r.Counters())
		}
	})
}

// TestWaitingForASlowKeyDoesNotHoldBackRetries: the messages of a key wait for each other, as before, and a later message of
// another key must be retried. The retry waits for the cursor, but not until all messages of the slow key are delivered.
func TestWaitingForASlowKeyDoesNotHoldBackRetries(t *testing.T) {
	t.Parallel()
	for _, delayed := range []int{0, 50} { // number of messages that were parked as delayed
		t.Run(fmt.Sprint(delayed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				keys := keysIn(0, 2)
				slow, other := keys[0], keys[1]
				early := b.many(delayed, slow)
				for _, m := range early {
					m.DeliverAfter = time.Minute
				}
				b.publish(early...)
				r := b.relay(relay.Config{})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					switch {
					case m.Key == slow:
						time.Sleep(4 * time.Second)
					case m.Attempt == 1:
						return postrider.Retry(100*time.Millisecond, errBoom)
					}
					return j.take(ctx, m)
				})
				b.start(r)
				pass(62 * time.Second)
				b.publish(b.many(51-delayed, slow)...)
				b.publish(b.msg(other))
				pass(10 * time.Second)
				if len(j.of(other)) != 1 {
					t.Errorf("a retry of another key waits for more than 10 s: %+v", r.Counters())
				}
				pass(10 * time.Minute)
				if n := len(j.of(slow)); n != 51 {
					t.Errorf("delivered %d messages of the slow key, want 51", n)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestSlowDelayedMessageDoesNotHoldTheCursorBack: a delayed message is worked on slowly once it is due. Fresh messages of its
// key, few or many, are parked after it: they hold back neither the cursor nor other keys.
func TestSlowDelayedMessageDoesNotHoldTheCursorBack(t *testing.T) {
	t.Parallel()
	for _, followers := range []int{5, 200} {
		t.Run(fmt.Sprint(followers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				delayed := b.msg("k")
				delayed.DeliverAfter = time.Minute
				b.publish(delayed)
				r := b.relay(relay.Config{MaxInFlight: 100})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					if m.ID == delayed.ID {
						time.Sleep(10 * time.Minute)
					}
					return j.take(ctx, m)
				})
				b.start(r)
				pass(2 * time.Minute)
				b.publish(b.many(followers, "k")...)
				pass(10 * time.Second)
				b.publish(b.msg("other"))
				pass(time.Minute)
				if st := b.status(); st.Backlog.N != 0 || len(j.of("other")) != 1 {
					t.Errorf("backlog %d, %s old, after a slow message; of another key delivered %d, want 1: %+v",
						st.Backlog.N, st.Age, len(j.of("other")), r.Counters())
				}
				pass(10 * time.Minute)
				if got := j.of("k"); len(got) != 1+followers || got[0] != delayed.ID {
					t.Errorf("delivered %d messages of the key, the first %q, want %d and %s",
						len(got), got[:min(1, len(got))], 1+followers, delayed.ID)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// hang returns a handler that waits for release, whatever happens to its context, for messages of keys that begin with
// "hang/".
func (j *journal) hang() (h postrider.Handler, hanging *atomic.Int32, release func()) {
	released := make(chan struct{})
	hanging = new(atomic.Int32)
	return func(ctx context.Context, m *postrider.Message) error {
		if strings.HasPrefix(m.Key, "hang/") {
			hanging.Add(1)
			<-released
		}
		return j.take(ctx, m)
	}, hanging, func() { close(released) }
}

// TestHangingHandlersDoNotStopOtherKeys: as many handlers as there are workers, and more, hang forever and ignore their
// context. Messages of other keys flow. The number of hanging handlers is bounded.
func TestHangingHandlersDoNotStopOtherKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hanging, most int }{{16, 16}, {64, 64}, {1000, 5 * 16}} {
		t.Run(fmt.Sprint(c.hanging), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				for i := range c.hanging {
					b.publish(b.msg(fmt.Sprint("hang/", i)))
				}
				r := b.relay(relay.Config{})
				h, hanging, release := j.hang()
				handle(t, r, h)
				b.start(r)
				t.Cleanup(release)
				pass(2 * time.Minute)
				if n := int(hanging.Load()); n != c.most {
					t.Errorf("%d handlers hang, want %d", n, c.most)
				}
				b.publish(b.msgs("other", "other", "")...)
				pass(time.Second)
				if n := len(j.of("other")) + len(j.of("")); c.hanging == c.most && n != 3 {
					t.Errorf("delivered %d of 3 messages of other keys in a second: %+v", n, r.Counters())
				}
			})
		})
	}
}

// TestSlowCallsGiveTheirWorkersBack: after slow calls have returned, no more than Concurrency run.
func TestSlowCallsGiveTheirWorkersBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		var running, most atomic.Int32
		for i := range 40 {
			b.publish(b.msg(fmt.Sprint("slow/", i)))
		}
		r := b.relay(relay.Config{Concurrency: 4})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			n := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), n))
			if strings.HasPrefix(m.Key, "slow/") {
				time.Sleep(20 * time.Second)
			} else {
				time.Sleep(time.Second)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(5 * time.Minute)
		if n := most.Load(); n <= 4 || n > 4+4*4 {
			t.Errorf("%d calls were under way at once, want more than 4 and 20 at most", n)
		}
		most.Store(0)
		for i := range 100 {
			b.publish(b.msg(fmt.Sprint("quick/", i)))
		}
		pass(time.Minute)
		if n := most.Load(); n != 4 {
			t.Errorf("%d calls were under way at once when no call was slow, want Concurrency, 4", n)
		}
		if j.len() != 140 {
			t.Errorf("delivered %d, want 140", j.len())
		}
		b.wantNothingLeft(r)
	})
}

// TestAttemptsEndByDefault: an attempt that does not end fails after AttemptTimeout, and its message is dead-lettered after
// its attempts.
func TestAttemptsEndByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{MaxAttempts: 2})
		handle(t, r, func(ctx context.Context, _ *postrider.Message) error { <-ctx.Done(); return ctx.Err() })
		b.start(r)
		pass(2 * time.Minute)
		if st := b.status(); st.Dead.N != 1 {
			t.Errorf("dead %d, want 1, after two attempts of %s: %+v", st.Dead.N, relay.DefaultAttemptTimeout, r.Counters())
		}
	})
}

// TestHangingTransactionsDoNotStopOtherPartitions: handlers of HandleTx in two of four partitions hang and ignore their
// context. The others flow.
func TestHangingTransactionsDoNotStopOtherPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		r := b.relay(relay.Config{Concurrency: 2, MaxSlowCalls: 2})
		h, _, release := j.hang()
		err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return h(ctx, m) })
		if err != nil {
			t.Fatal(err)
		}
		for partition := range 2 {
			key := "hang/"
			for i := 0; postrider.PartitionOf(key, "", 4) != partition; i++ {
				key = fmt.Sprint("hang/", i)
			}
			b.publish(b.msg(key))
		}
		b.start(r)
		t.Cleanup(release)
		pass(time.Minute)
		other := keysIn(3, 1)[0]
		b.publish(b.msg(other))
		pass(time.Second)
		if len(j.of(other)) != 1 {
			t.Errorf("a message of another partition is not delivered in a second: %+v", r.Counters())
		}
	})
}

// TestRedrivenAfterASlowCall: a delayed message takes longer than ParkAfter, the destination is down, and an operator moves
// the message to the dead letters. After a redrive it is delivered.
func TestRedrivenAfterASlowCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, down := setup(t), true
		var done journal
		m := b.msg("k")
		m.DeliverAfter = time.Second
		r := b.relay(relay.Config{ParkAfter: 100 * time.Millisecond, Publisher: publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
			time.Sleep(time.Second)
			if down {
				return []error{postrider.Unavailable(errBoom)}
			}
			for _, m := range msgs {
				done.note(m)
			}
			return nil
		})})
		b.start(r)
		b.publish(m)
		pass(3 * time.Second)
		if err := decide(b.store, "k", store.VerbDead); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		down = false
		if n, err := deadletter.New(b.store).RedriveDead(t.Context(), store.DeadFilter{}, "op", 0); n != 1 || err != nil {
			t.Fatalf("%d messages redriven: %v", n, err)
		}
		pass(time.Minute)
		want(t, "delivered", done.of("k"), []string{m.ID})
		b.wantNothingLeft(r)
	})
}
