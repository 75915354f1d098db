package relay_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/relay"
)

// pause pauses the relay of a bundle.
func (b *bundle) pause(last time.Duration) {
	b.t.Helper()
	if _, err := pause.New(b.store).Pause(b.t.Context(), pause.Request{Relay: "r", By: "ann", Reason: "maintenance", For: last}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) resume() {
	b.t.Helper()
	if _, err := pause.New(b.store).Resume(b.t.Context(), "r"); err != nil {
		b.t.Fatal(err)
	}
}

// slow returns a relay whose handler takes 100 ms and notes its messages.
func (b *bundle) slow(j *journal, cfg relay.Config) *relay.Relay {
	b.t.Helper()
	r := b.relay(cfg)
	if err := r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
		time.Sleep(100 * time.Millisecond)
		j.note(m)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return r
}

// TestPause: within a heartbeat of a pause, no process of the relay starts anything; calls in progress end, leases stay, and nothing is
// parked. A process that joins starts nothing either. After the resumption all is delivered, in order.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		first, second, third := b.slow(j, relay.Config{}), b.slow(j, relay.Config{}), b.slow(j, relay.Config{})
		b.start(first)
		b.start(second)
		pass(time.Minute)
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			b.publish(b.many(100, key)...)
		}
		pass(time.Second)
		b.pause(0)
		pass(5*time.Second + 200*time.Millisecond) // a heartbeat, and the calls that were in progress
		done := j.len()
		b.publish(b.many(100, "g")...)
		pass(time.Hour)
		if st := b.status(); done == 0 || done > 360 || st.Parked.N != 0 || st.Failed != 0 || st.Paused == nil {
			t.Errorf("%d delivered before the pause; after an hour of it: %+v", done, st)
		}
		b.start(third)
		pass(time.Hour)
		leases := 0
		for i, r := range []*relay.Relay{first, second, third} {
			if u := r.Usage(); !u.Closed || u.Leases == 0 {
				t.Errorf("process %d: %+v", i, u)
			}
			leases += r.Usage().Leases
		}
		if j.len() != done || leases != 4 {
			t.Errorf("%d delivered during the pause, %d leases of 4", j.len()-done, leases)
		}
		b.resume()
		pass(5 * time.Minute)
		b.wantNothingLeft(first)
		if j.len() != 700 {
			t.Errorf("%d of 700 delivered", j.len())
		}
		for _, key := range []string{"a", "g"} {
			want(t, "delivered of "+key, j.of(key), slices.Sorted(slices.Values(j.of(key))))
		}
	})
}

// TestPauseWithAnEnd: a pause ends by itself, and the log says when it began and ended.
func TestPauseWithAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		r, log := b.logged(relay.Config{})
		if err := r.HandleFunc("t", j.take); err != nil {
			t.Fatal(err)
		}
		b.start(r)
		pass(time.Minute)
		b.pause(10 * time.Minute)
		pass(5 * time.Second)
		b.publish(b.msg("a"))
		pass(9 * time.Minute)
		if j.len() != 0 {
			t.Error("delivered during the pause")
		}
		pass(time.Minute + time.Second)
		if j.len() != 1 {
			t.Error("not delivered after the pause")
		}
		for _, line := range []string{"relay is paused and starts nothing", "by=ann", "reason=maintenance", "relay is no longer paused"} {
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("the log says %q %d times:\n%s", line, strings.Count(log.String(), line), log)
			}
		}
	})
}

// TestPauseThatCannotBeRead: a process that cannot find out whether the relay is paused starts nothing, and one that knows it continues
// as before.
func TestPauseThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		b, j := faulty(t, func(op string, _ bool) error {
			if op == "ReadPause" && failing.Load() {
				return errors.New("connection refused")
			}
			return nil
		}), &journal{}
		b.start(b.slow(j, relay.Config{}))
		b.publish(b.msg("a"))
		pass(time.Minute)
		if j.len() != 0 {
			t.Error("delivered although nothing is known about a pause")
		}
		failing.Store(false)
		pass(time.Minute)
		failing.Store(true)
		b.publish(b.msg("a"))
		pass(time.Minute)
		if j.len() != 2 {
			t.Errorf("%d of 2 delivered", j.len())
		}
	})
}

// TestPausedPublisher: nothing is published during a pause, not even a probe of a destination that is down.
func TestPausedPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		b := setup(t)
		r := b.relay(relay.Config{Publisher: publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
			calls.Add(1)
			return slices.Repeat([]error{postrider.Unavailable(errBoom)}, len(msgs))
		})})
		b.start(r)
		b.publish(b.many(10, "a")...)
		pass(time.Minute)
		b.pause(0)
		pass(11 * time.Second)
		before := calls.Load()
		pass(time.Hour)
		if calls.Load() != before || before == 0 {
			t.Errorf("%d calls before the pause, %d in an hour of it", before, calls.Load()-before)
		}
	})
}
