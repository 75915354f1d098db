package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestOrderlyStopDeliversNothingTwice stops a relay while the messages of a slow key wait in memory before others that
// were delivered; the next one delivers the rest, and only that.
func TestOrderlyStopDeliversNothingTwice(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stop", "hand over"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				var slow []string
				for i := range 300 {
					m := b.msg("slow")
					slow = append(slow, m.ID)
					b.publish(m, b.msg(fmt.Sprint(i)), b.msg(""))
				}
				h := func(_ context.Context, m *postrider.Message) error {
					if m.Key == "slow" {
						time.Sleep(200 * time.Millisecond)
					}
					j.note(m)
					return nil
				}
				one, two := b.relay(relay.Config{Concurrency: 4}), b.relay(relay.Config{Concurrency: 4})
				handle(t, one, h)
				handle(t, two, h)
				stop := b.start(one)
				time.Sleep(2 * time.Second)
				if way == "stop" {
					stop()
				}
				b.start(two)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				want(t, "slow key", j.of("slow"), slow)
				if j.len() != 900 {
					t.Errorf("%d deliveries of 900 messages", j.len())
				}
				if st := b.status(); st.Held.N+st.Parked.N+st.Backlog.N != 0 {
					t.Errorf("left over: %+v", st)
				}
			})
		})
	}
}

// TestFollowersWaitUntilADeathIsRecorded: a process that dies after a verdict, before the dead letter is written, has
// delivered nothing behind the dead message.
func TestFollowersWaitUntilADeathIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cutOff atomic.Bool
		b, j := setup(t), &journal{}
		b.store = memory.New(memory.Config{Partitions: 4, Fault: func(op string, _ bool) error {
			if op == "Settle" && cutOff.Load() {
				return errBoom
			}
			return nil
		}})
		b.publish(b.msgs("k", "k", "other")...)
		cutOff.Store(true)
		r := b.relay(relay.Config{})
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if m.ID == "m001" {
				return postrider.Dead("bad", nil)
			}
			j.note(m)
			return nil
		})
		b.start(r)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, "followers before it is recorded", j.of("k"), nil)
		want(t, "others", j.of("other"), []string{"m003"})
		cutOff.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, "followers", j.of("k"), []string{"m002"})
	})
}

func TestRunWithAnEndedContextIsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.relay(relay.Config{}).Run(ctx); err != nil {
		t.Error(err)
	}
}
