package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// TestOrderlyStopDeliversNothingTwice stops a relay, or lets another process take over half of its partitions, while messages
// of a slow key wait in memory before others that were delivered; the next process delivers the rest, and nothing else.
func TestOrderlyStopDeliversNothingTwice(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stop", "hand over"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				keys := keysIn(3, 2) // the highest partitions are handed over
				var slow, neighbours []string
				for i := range 300 {
					m, n := b.msg(keys[0]), b.msg(keys[1])
					slow, neighbours = append(slow, m.ID), append(neighbours, n.ID)
					b.publish(m, n, b.msg(fmt.Sprint(i)), b.msg(""))
				}
				h := func(ctx context.Context, m *postrider.Message) error {
					if m.Key == keys[0] {
						time.Sleep(200 * time.Millisecond)
					}
					return j.take(ctx, m)
				}
				one, two := b.relay(relay.Config{Concurrency: 4}), b.relay(relay.Config{Concurrency: 4})
				handle(t, one, h)
				handle(t, two, h)
				stop := b.start(one)
				pass(2 * time.Second)
				if way == "stop" {
					stop()
				}
				b.start(two)
				pass(5 * time.Minute)
				want(t, "slow key", j.of(keys[0]), slow)
				want(t, "key beside it in its partition", j.of(keys[1]), neighbours)
				if j.len() != 1200 {
					t.Errorf("%d deliveries of 1200 messages", j.len())
				}
				b.wantNothingLeft(two)
			})
		})
	}
}

// TestParkedMessageIsNotReadFromTheLogToo: a message without a key is parked for a retry while a message before it holds back
// the cursor, and the relay stops. The next process skips it in the log: it is delivered once, when it is due.
func TestParkedMessageIsNotReadFromTheLogToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		slow := keysIn(0, 1)[0]
		msgs := b.many(2, slow)
		retried := b.keyless(0)
		b.publish(append(msgs, retried)...)
		stopped := false
		h := func(ctx context.Context, m *postrider.Message) error {
			switch {
			case m.Key == slow:
				time.Sleep(4 * time.Second)
			case !stopped:
				return postrider.Retry(time.Minute, errBoom)
			}
			return j.take(ctx, m)
		}
		one, two := b.relay(relay.Config{}), b.relay(relay.Config{})
		handle(t, one, h)
		handle(t, two, h)
		stop := b.start(one)
		pass(time.Second)
		stop()
		stopped = true
		b.start(two)
		pass(10 * time.Minute)
		want(t, "retried", j.of(""), []string{retried.ID})
		want(t, "slow key", j.of(slow), []string{"m001", "m002"})
	})
}

// TestRetriedMessageIsNotReadFromTheLogToo: as before, but its second attempt is due before the relay stops. It waits until
// the cursor has passed the message, because once it is delivered nothing shows that it was parked.
func TestRetriedMessageIsNotReadFromTheLogToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		slow := keysIn(0, 1)[0]
		msgs := b.many(2, slow)
		retried := b.keyless(0)
		b.publish(append(msgs, retried)...)
		h := func(ctx context.Context, m *postrider.Message) error {
			switch {
			case m.Key == slow:
				time.Sleep(4 * time.Second)
			case m.Attempt == 1:
				return postrider.Retry(100*time.Millisecond, errBoom)
			}
			return j.take(ctx, m)
		}
		one, two := b.relay(relay.Config{}), b.relay(relay.Config{})
		handle(t, one, h)
		handle(t, two, h)
		stop := b.start(one)
		pass(time.Second)
		want(t, "retried, before the stop", j.of(""), nil)
		stop()
		b.start(two)
		pass(10 * time.Minute)
		want(t, "retried", j.of(""), []string{retried.ID})
		want(t, "slow key", j.of(slow), []string{"m001", "m002"})
		b.wantNothingLeft(two)
	})
}

// TestCursorAfterParkedMessagesIsRecorded: the second process delivers what the first one had parked, and later skips it in
// the log, with nothing else to record. It stops, and the third one finds the cursor after it.
func TestCursorAfterParkedMessagesIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		slow, parked := b.msg(keysIn(0, 1)[0]), b.keyless(0)
		b.publish(slow, parked)
		cfg := relay.Config{MaxInFlight: 2, StopTimeout: 100 * time.Millisecond} // one message from the log at a time
		one := b.relay(relay.Config{StopTimeout: 100 * time.Millisecond})
		handle(t, one, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == parked.ID {
				return postrider.Retry(2*time.Second, errBoom)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := one.Run(ctx); err == nil {
			t.Error("no call was cut off; the test shows nothing")
		}
		h := func(ctx context.Context, m *postrider.Message) error {
			if m.ID == slow.ID {
				time.Sleep(3 * time.Second)
			}
			return j.take(ctx, m)
		}
		for range 2 {
			r := b.relay(cfg)
			handle(t, r, h)
			stop := b.start(r)
			pass(4 * time.Second)
			stop()
		}
		want(t, "slow", j.of(slow.Key), []string{slow.ID})
		want(t, "parked", j.of(""), []string{parked.ID})
	})
}

// TestStopBetweenMessagesCommittedLate: a relay stops while the first of two messages of a key that were committed late is
// being worked on, or when it is recorded and nobody works on the second. The cursor passes both or neither, and yet neither
// is delivered twice.
func TestStopBetweenMessagesCommittedLate(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at work": time.Second, "recorded": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				keys := keysIn(3, 2)
				h := func(ctx context.Context, m *postrider.Message) error {
					if m.Key == keys[0] {
						time.Sleep(4 * time.Second)
					}
					return j.take(ctx, m)
				}
				one, two := b.relay(relay.Config{}), b.relay(relay.Config{})
				handle(t, one, h)
				handle(t, two, h)
				late, err := b.store.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := b.store.Insert(t.Context(), late, b.many(3, keys[0])); err != nil {
					t.Fatal(err)
				}
				stop := b.start(one)
				b.publish(b.msg(keys[1]))
				pass(time.Second)
				if err := b.store.Commit(t.Context(), late); err != nil {
					t.Fatal(err)
				}
				b.store.Wake()
				pass(after)
				stop()
				b.start(two)
				pass(10 * time.Minute)
				want(t, "delivered", j.of(keys[0]), []string{"m001", "m002", "m003"})
				b.wantNothingLeft(two)
			})
		})
	}
}

// TestLateMessageThatIsParkedIsNotReadFromTheLogToo: of two messages committed late, the process has snoozed or dead-lettered
// one, and works on the other when it is cut off. The next process reads both again and delivers only the other.
func TestLateMessageThatIsParkedIsNotReadFromTheLogToo(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"snoozed": postrider.Snooze(time.Hour), "dead": postrider.Dead("bad", nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				keys := keysIn(3, 2)
				late := []*postrider.Message{b.msg(keys[0]), b.keyless(3)}
				one, two := b.relay(relay.Config{ParkAfter: time.Hour, AttemptTimeout: -1}), b.relay(relay.Config{})
				handle(t, one, func(ctx context.Context, m *postrider.Message) error {
					switch m.Key {
					case keys[0]:
						<-ctx.Done()
						return ctx.Err()
					case "":
						return result
					}
					return nil
				})
				handle(t, two, j.take)
				tx, err := b.store.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := b.store.Insert(t.Context(), tx, late); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- one.Run(ctx) }()
				b.publish(b.msg(keys[1]))
				pass(time.Second)
				if err := b.store.Commit(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				b.store.Wake()
				pass(time.Second)
				cancel()
				if err := <-done; err == nil {
					t.Error("no call was cut off; the test shows nothing")
				}
				b.start(two)
				pass(10 * time.Minute)
				want(t, "worked on when it was cut off", j.of(keys[0]), []string{late[0].ID})
				want(t, "parked", j.of(""), nil)
			})
		})
	}
}

// TestSlowHandlerDoesNotStopAPartitionThatIsWanted: a second process wants its share, and a handler works for an hour in a
// partition that would be handed over. Other keys of that partition do not wait for it.
func TestSlowHandlerDoesNotStopAPartitionThatIsWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		keys := keysIn(3, 2)
		slow, other := keys[0], keys[1]
		h := func(ctx context.Context, m *postrider.Message) error {
			if m.Key == slow {
				time.Sleep(time.Hour)
			}
			return j.take(ctx, m)
		}
		one, two := b.relay(relay.Config{}), b.relay(relay.Config{})
		handle(t, one, h)
		handle(t, two, h)
		b.publish(b.msg(slow))
		b.start(one)
		pass(20 * time.Second)
		b.start(two)
		pass(20 * time.Second)
		b.publish(b.msg(other))
		pass(time.Minute)
		if len(j.of(other)) != 1 {
			t.Errorf("another key waits for more than a minute for a slow handler in its partition: %+v", one.Counters())
		}
		pass(time.Hour)
		want(t, "slow key", j.of(slow), []string{"m001"})
	})
}

// TestFromNowBeginsInAllPartitionsAtOnce: when the relay begins, another process that has died still counts as alive, so that
// half of the partitions are leased later. What is committed between the two moments is delivered too.
func TestFromNowBeginsInAllPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		if _, err := b.store.Heartbeat(t.Context(), "r", store.Owner{ID: "dead"}, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		b.publish(b.msg("before"))
		r := b.relay(relay.Config{Start: relay.FromNow})
		handle(t, r, j.take)
		b.start(r)
		pass(time.Second)
		for p := range 4 {
			b.publish(b.msgs(keysIn(p, 1)...)...)
		}
		pass(time.Minute)
		if j.len() != 4 || len(j.of("before")) != 0 {
			t.Errorf("delivered %d of 4 messages committed after the relay began, and %d of 0 from before; backlog %d",
				j.len(), len(j.of("before")), b.status().Backlog.N)
		}
	})
}
