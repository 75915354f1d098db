package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// storm publishes n messages of each of some keys. All of them fail until the returned switch is turned, and take a while
// each from then on. The handler records the messages that it does not refuse.
func (b *bundle) storm(keys, n, size int, j *journal, takes time.Duration) (h postrider.Handler, healed *atomic.Bool) {
	payload := make([]byte, size)
	for range n {
		for k := range keys {
			m := b.msg(fmt.Sprint("storm/", k))
			m.Payload = payload
			b.publish(m)
		}
	}
	healed = new(atomic.Bool)
	return func(ctx context.Context, m *postrider.Message) error {
		if m.Key != "fresh" {
			if !healed.Load() {
				return postrider.Retry(10*time.Minute, errBoom)
			}
			time.Sleep(takes)
		}
		return j.take(ctx, m)
	}, healed
}

// TestParkedMessagesKeepToTheBounds: many parked messages of many keys are due at once. No more of them are read into memory
// than MaxInFlight and MaxInFlightBytes allow.
func TestParkedMessagesKeepToTheBounds(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{
		"messages": {MaxInFlight: 64},
		"bytes":    {MaxInFlightBytes: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				const keys, each, size = 40, 20, 2 << 10
				h, healed := b.storm(keys, each, size, j, 500*time.Millisecond)
				r := b.relay(cfg)
				handle(t, r, h)
				b.start(r)
				pass(5 * time.Minute)
				healed.Store(true)
				var most relay.Counters
				for range 500 { // past the last retry, at 10 minutes
					pass(time.Second)
					c := r.Counters()
					most.InMemory, most.Bytes = max(most.InMemory, c.InMemory), max(most.Bytes, c.Bytes)
				}
				if limit := cfg.MaxInFlight; limit > 0 && most.InMemory > limit {
					t.Errorf("%d messages in memory, MaxInFlight is %d", most.InMemory, limit)
				}
				if limit := cfg.MaxInFlightBytes; limit > 0 && most.Bytes > limit+2*(size+100) { // one extra message of either kind
					t.Errorf("%d bytes in memory, MaxInFlightBytes is %d", most.Bytes, limit)
				}
				if j.len() != keys*each {
					t.Errorf("delivered %d messages of %d", j.len(), keys*each)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestRetryStormLeavesRoomForFreshMessages: large parked messages, many times what fits in memory, are due and slow. There is
// still room for a fresh message.
func TestRetryStormLeavesRoomForFreshMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		h, healed := b.storm(40, 16, 8<<10, j, 4*time.Second)
		r := b.relay(relay.Config{MaxInFlightBytes: 1 << 20})
		handle(t, r, h)
		b.start(r)
		pass(9 * time.Minute)
		healed.Store(true)
		pass(90 * time.Second)
		if c := r.Counters(); c.Out == 0 {
			t.Fatalf("the storm has not begun; the test shows nothing: %+v", c)
		}
		b.publish(b.msg("fresh"))
		pass(10 * time.Second)
		if len(j.of("fresh")) != 1 {
			t.Errorf("a fresh message waits for more than 10 seconds for retries: %+v", r.Counters())
		}
	})
}

// TestDrainEndsWhileOthersWrite: Drain waits for what was committed before it. Transactions that continue, whether they
// publish, roll back, or write what this relay skips, do not delay it.
func TestDrainEndsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"publish", "roll back", "write other topics"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := faulty(t, func(op string, done bool) error {
					if done && (op == "Fetch" || op == "Settle") {
						time.Sleep(2 * time.Millisecond) // a round trip
					}
					return nil
				}), &journal{}
				r := b.relay(relay.Config{Topics: []string{"t"}})
				handle(t, r, func(ctx context.Context, m *postrider.Message) error {
					time.Sleep(3 * time.Millisecond) // so that there is always unfinished work
					return j.take(ctx, m)
				})
				b.start(r)
				pass(time.Second)
				b.publish(b.msg("before"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						time.Sleep(time.Millisecond)
						b.write(way)
					}
				}()
				if err := r.Drain(ctx); err != nil {
					t.Errorf("Drain waits for more than a minute: %v", err)
				}
				want(t, "delivered when Drain returned", j.of("before"), []string{"m001"})
				cancel()
				pass(time.Second)
			})
		})
	}
}

// write runs one transaction in the given way.
func (b *bundle) write(way string) {
	m := b.msg("")
	if way == "write other topics" {
		m.Topic = "u"
	}
	if way != "roll back" {
		b.publish(m)
		return
	}
	ctx := context.Background()
	tx, err := b.store.Begin(ctx)
	if err == nil {
		err = b.store.Insert(ctx, tx, []*postrider.Message{m})
	}
	if err == nil {
		err = b.store.Rollback(ctx, tx)
	}
	if err != nil {
		b.t.Errorf("roll back: %v", err)
	}
	b.store.Wake()
}

// TestLooksAtParkedMessagesWhileTheCursorMoves: a message that must be retried waits until the cursor has passed it.
// Meanwhile the cursor moves a hundred times a second; parked messages are polled as if it did not.
func TestLooksAtParkedMessagesWhileTheCursorMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		b, j := faulty(t, func(op string, done bool) error {
			if op == "Due" && !done {
				looks.Add(1)
			}
			return nil
		}), &journal{}
		keys := keysIn(0, 2)
		b.publish(b.many(200, keys[0])...)
		b.publish(b.msg(keys[1]))
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			switch {
			case m.Key == keys[0]:
				time.Sleep(10 * time.Millisecond)
			case m.Attempt == 1:
				return postrider.Retry(time.Millisecond, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		pass(1900 * time.Millisecond)
		if n := looks.Load(); n > 10 {
			t.Errorf("%d looks at parked messages in two seconds", n)
		}
		pass(200 * time.Millisecond)
		if len(j.of(keys[1])) != 1 {
			t.Errorf("the message is not retried when the cursor has passed it: %+v", r.Counters())
		}
		b.wantNothingLeft(r)
	})
}

// TestSlowCallIsNotReadFarAhead: a call of a publisher hangs with two messages. What is delivered after them in their partition, which
// a crash would deliver again, is bounded, and other partitions continue.
func TestSlowCallIsNotReadFarAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j, hang := setup(t), &journal{}, make(chan struct{})
		const inFlight, after, most = 16, 1000, 9 * 16
		hung := keysIn(0, 2)
		r := b.relay(relay.Config{MaxInFlight: inFlight, AttemptTimeout: time.Hour, Publisher: publisherFunc(
			func(ctx context.Context, msgs []*postrider.Message) []error {
				if slices.ContainsFunc(msgs, func(m *postrider.Message) bool { return m.Key == hung[0] }) {
					<-hang
				}
				for _, m := range msgs {
					j.note(m)
				}
				return make([]error, len(msgs))
			})})
		b.publish(b.msgs(hung...)...)
		b.start(r)
		pass(time.Second)
		ahead, elsewhere := keysIn(0, 3)[2], keysIn(1, 1)[0]
		b.publish(append(b.many(after, ahead), b.many(after, elsewhere)...)...)
		pass(time.Minute)
		if n := len(j.of(ahead)); n == 0 || n > most {
			t.Errorf("%d messages were delivered after the call that hangs, want 1 to %d", n, most)
		}
		if n := r.Counters().Open; n > most {
			t.Errorf("%d messages are remembered, want at most %d", n, most)
		}
		if n := len(j.of(elsewhere)); n != after {
			t.Errorf("%d messages of another partition were delivered, want %d", n, after)
		}
		close(hang)
		pass(time.Minute)
		if n := j.len(); n != 2*after+len(hung) {
			t.Errorf("%d messages were delivered, want %d", n, 2*after+len(hung))
		}
		b.wantNothingLeft(r)
	})
}
