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

// TestHangingProbeIsNotTheLast: the broker is down, and the call that probes never returns, whatever happens to its context. Others probe,
// and find that it is back.
func TestHangingProbeIsNotTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		h, hanging, release := j.hang()
		var once atomic.Bool
		r := b.relay(relay.Config{Publisher: publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
			if once.CompareAndSwap(false, true) {
				return fail(len(msgs), postrider.Unavailable(errBoom))
			}
			for _, m := range msgs {
				if err := h(ctx, m); err != nil {
					return fail(len(msgs), err)
				}
			}
			return nil
		})})
		b.publish(b.msg("hang/"))
		b.start(r)
		t.Cleanup(release)
		pass(time.Second)
		b.publish(b.msgs("good", "good")...)
		pass(time.Minute)
		if n := hanging.Load(); n != 1 {
			t.Fatalf("%d calls hang, want the one that probes", n)
		}
		if n := len(j.of("good")); n != 2 {
			t.Errorf("%d of 2 messages of another key are delivered in a minute: %+v", n, r.Counters())
		}
	})
}

func fail(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// TestSilenceParksNothing: the broker takes calls and never answers. However long each of them waits, no message is parked, and no key held.
func TestSilenceParksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := setup(t), &broker{}
		var answers atomic.Bool
		r := b.relay(relay.Config{MaxBatch: 1, Publisher: publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
			if answers.Load() {
				return k.Publish(ctx, msgs)
			}
			<-ctx.Done()
			return fail(len(msgs), ctx.Err())
		})})
		b.start(r)
		b.publish(b.msg("first"))
		pass(time.Minute)
		if c := r.Counters(); !c.CircuitOpen {
			t.Fatalf("the destination is not found down: %+v", c)
		}
		before := b.status().Parked.N
		b.publish(b.msgs("a", "b", "a", "", "c")...)
		pass(10 * time.Minute)
		if now := b.status().Parked.N; now > before {
			t.Errorf("%d messages are parked, want the %d from before the circuit opened", now, before)
		}
		answers.Store(true)
		pass(10 * time.Minute)
		b.wantNothingLeft(r)
	})
}

// TestHandlersDoNotProbe: the database begins no transaction, and then it does. What the handler does in the transaction that has found it,
// which is to hang, keeps no other partition waiting.
func TestHandlersDoNotProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		b, j := faulty(t, func(op string, _ bool) error {
			if down.Load() && op == "Begin" {
				return errBoom
			}
			return nil
		}), &journal{}
		r := b.relay(relay.Config{})
		h, hanging, release := j.hang()
		err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return h(ctx, m) })
		if err != nil {
			t.Fatal(err)
		}
		key := "hang/"
		for i := 0; postrider.PartitionOf(key, "", 4) != 0; i++ {
			key = fmt.Sprint("hang/", i)
		}
		other := keysIn(3, 1)[0]
		b.publish(b.msg(key))
		down.Store(true)
		b.start(r)
		t.Cleanup(release)
		pass(time.Minute)
		if c := r.Counters(); !c.CircuitOpen {
			t.Fatalf("the database is not found down: %+v", c)
		}
		down.Store(false)
		pass(time.Minute)
		if hanging.Load() != 1 {
			t.Fatalf("%d handlers hang, want 1", hanging.Load())
		}
		b.publish(b.msg(other))
		pass(time.Second)
		if len(j.of(other)) != 1 {
			t.Errorf("a message of another partition is not delivered in a second: %+v", r.Counters())
		}
	})
}

// TestCommitWhileMemoryIsFull: messages that were committed when there was no room for them are read when there is, not at the next poll.
func TestCommitWhileMemoryIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		free := make(chan struct{})
		r := b.relay(relay.Config{MaxInFlight: 16, PollMin: time.Hour, PollMax: time.Hour, ParkAfter: 2 * time.Hour, AttemptTimeout: -1,
			LeaseTTL: 24 * time.Hour})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			<-free
			return j.take(ctx, m)
		})
		b.start(r)
		pass(time.Second)
		b.publish(b.many(10, "k")...) // no room is left that is worth a read
		pass(time.Second)
		b.publish(b.msg("late"))
		pass(time.Second)
		close(free)
		pass(time.Minute)
		if n := j.len(); n != 11 {
			t.Errorf("%d of 11 messages are delivered before the next poll: %+v", n, r.Counters())
		}
	})
}

// TestLateProbeIsNotTheProbe: a call that probed returns, without an answer, when another message probes. There is still one probe at a time.
func TestLateProbeIsNotTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, release := setup(t), make(chan struct{})
		var calls, probes, most atomic.Int32
		r := b.relay(relay.Config{AttemptTimeout: 10 * time.Second, Publisher: publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
			switch calls.Add(1) {
			case 1:
				return fail(len(msgs), postrider.Unavailable(errBoom))
			case 2: // it ignores the end of its context
				<-release
				return fail(len(msgs), postrider.Unavailable(errBoom))
			}
			most.Store(max(most.Load(), probes.Add(1)))
			defer probes.Add(-1)
			<-ctx.Done()
			return fail(len(msgs), ctx.Err())
		})})
		b.publish(b.msgs("a", "b", "c", "d")...)
		b.start(r)
		for range 60 {
			pass(time.Second)
			if probes.Load() == 1 {
				break
			}
		}
		if probes.Load() != 1 || calls.Load() != 3 {
			t.Fatalf("%d calls, %d probes; want another probe while the first hangs", calls.Load(), probes.Load())
		}
		close(release)
		pass(8 * time.Second)
		if n := most.Load(); n != 1 {
			t.Errorf("%d messages probe at the same time", n)
		}
	})
}

// TestLateBeginIsNotTheProbe: a transaction that probed is not begun after all, when another one probes. There is still one probe at a time.
func TestLateBeginIsNotTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var counts atomic.Bool
		var calls, probes, most atomic.Int32
		release, end := make(chan struct{}), make(chan struct{})
		b := faulty(t, func(op string, done bool) error {
			if op != "Begin" || done || !counts.Load() {
				return nil
			}
			switch calls.Add(1) {
			case 1:
				return errBoom
			case 2:
				<-release
				return errBoom
			}
			most.Store(max(most.Load(), probes.Add(1)))
			defer probes.Add(-1)
			<-end
			return errBoom
		})
		r := b.relay(relay.Config{AttemptTimeout: time.Second})
		if err := relay.HandleTxFunc(r, "t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }); err != nil {
			t.Fatal(err)
		}
		b.publish(b.msg(keysIn(0, 1)[0]))
		counts.Store(true)
		b.start(r)
		t.Cleanup(func() { counts.Store(false); close(end) })
		pass(time.Second)
		counts.Store(false)
		b.publish(b.msg(keysIn(1, 1)[0]), b.msg(keysIn(2, 1)[0]), b.msg(keysIn(3, 1)[0]))
		counts.Store(true)
		for range 60 {
			pass(time.Second / 2)
			if probes.Load() == 1 {
				break
			}
		}
		if probes.Load() != 1 || calls.Load() != 3 {
			t.Fatalf("%d transactions, %d probes; want another probe while the first hangs", calls.Load(), probes.Load())
		}
		close(release)
		pass(3 * time.Second)
		if n := most.Load(); n != 1 {
			t.Errorf("%d transactions probe at the same time", n)
		}
	})
}
