package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// pickyStore does not park some messages, e.g. because a parked message has more columns than its row may have bytes for.
type pickyStore struct {
	*memory.Store
	refused []string
}

func (s *pickyStore) Park(ctx context.Context, tx *memory.Tx, name string, failed []store.ParkRequest) error {
	for _, p := range failed {
		if p.Dead == nil && slices.Contains(s.refused, p.Message.ID) {
			return fmt.Errorf("park: %w", store.ErrUnstorable)
		}
	}
	return s.Store.Park(ctx, tx, name, failed)
}

// TestSlowKeyThatCannotBeParked: the database refuses to park a message of a slow key. It has not failed, so its handler runs on it, at its
// turn and for as long as it takes.
func TestSlowKeyThatCannotBeParked(t *testing.T) {
	t.Parallel()
	inEachWay(t, func(t *testing.T, source memorybroker.SubscriberConfig, batch int) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == "slow" {
				return wait(ctx, 20*time.Second)
			}
			return nil
		})
		s := &pickyStore{Store: w.store, refused: []string{"slow 0", "slow 5"}}
		c, log := run(t, s, w.b, source, inbox.ConsumerConfig{MaxInFlight: 64, Batch: batch}, w.handle)
		slow, others := w.send("slow", 100), w.send("other", 100)
		time.Sleep(time.Hour)
		w.want("slow", slow)
		w.want("other", others)
		if st := c.Stats(); st.Applied != 200 || st.Parked == 0 || st.Dead+st.Failed != 0 {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}

// TestParkingSaysNothingAboutHandlers: messages are parked fast, in full transactions. Then handlers that take long still share the workers,
// and the transactions of others are still small.
func TestParkingSaysNothingAboutHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			switch m.Key {
			case "held":
				return postrider.Snooze(time.Hour)
			case "many":
				return wait(ctx, 10*time.Millisecond)
			default:
				return wait(ctx, time.Second)
			}
		})
		run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{Concurrency: 4}, w.handle)
		var keys []string
		w.send("held", 1)
		w.send("first", 1)
		time.Sleep(2 * time.Second)
		w.send("held", 500)
		time.Sleep(time.Second)
		for i := range 4 {
			keys = append(keys, fmt.Sprint("k", i))
			w.send(keys[i], 1)
		}
		time.Sleep(1500 * time.Millisecond)
		for _, key := range keys {
			w.want(key, []string{key + " 0"})
		}
		many := w.send("many", 100)
		time.Sleep(200 * time.Millisecond)
		w.want("many", many[:16])
		time.Sleep(time.Second)
		w.want("many", many)
	})
}

// slowToPark is a store that takes its time to park messages.
type slowToPark struct{ *memory.Store }

func (s slowToPark) Park(ctx context.Context, tx *memory.Tx, name string, failed []store.ParkRequest) error {
	if err := wait(ctx, 10*time.Second); err != nil {
		return err
	}
	return s.Store.Park(ctx, tx, name, failed)
}

// TestParkedMessagesDoNotReachTheGate: while more messages of a slow key are parked than a gate lets through, those of other keys are handled.
func TestParkedMessagesDoNotReachTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == "slow" {
				return wait(ctx, 20*time.Second)
			}
			return nil
		})
		g := &gate{}
		g.free.Store(3)
		c, _ := run(t, slowToPark{w.store}, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 128, Gate: g}, w.handle)
		w.send("slow", 40)
		time.Sleep(12 * time.Second) // at 10 s, the first was interrupted
		others := w.send("other", 2)
		time.Sleep(time.Second)
		w.want("other", others)
		time.Sleep(time.Minute)
		if st := c.Stats(); st.Parked != 40 {
			t.Errorf("the key was not parked: %+v", st)
		}
	})
}

// TestSlowMessageThatFillsTheMemory: it is parked, although nothing of its key waits for it, since nothing else would be read.
func TestSlowMessageThatFillsTheMemory(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint("workers ", workers), func(t *testing.T) {
			t.Parallel()
			inEachWay(t, func(t *testing.T, source memorybroker.SubscriberConfig, batch int) {
				w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
					if m.Key == "slow" {
						return wait(ctx, 30*time.Second)
					}
					return nil
				})
				c, log := run(t, w.store, w.b, source, inbox.ConsumerConfig{MaxInFlightBytes: 10_000, Concurrency: workers, Batch: batch}, w.handle)
				slow := w.publish("slow", &postrider.Message{Payload: make([]byte, 8_000)})
				time.Sleep(time.Second)
				others := w.send("other", 100)
				time.Sleep(20 * time.Second)
				w.want("other", others)
				time.Sleep(time.Minute)
				w.want("slow", []string{slow})
				if st := c.Stats(); st.Parked != 1 || st.Failed != 0 {
					t.Errorf("stats: %+v\n%s", st, log)
				}
			})
		})
	}
}

// TestSlowMessagesOfManyKeys: large messages that take long are not interrupted for the little that a worker more could do.
func TestSlowMessagesOfManyKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, _ *postrider.Message) error { return wait(ctx, 20*time.Second) })
		c, log := run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlightBytes: 10_000, Batch: 1}, w.handle)
		for i := range 20 {
			w.publish(fmt.Sprint(i), &postrider.Message{Payload: make([]byte, 1_000)})
		}
		time.Sleep(10 * time.Minute)
		if st := c.Stats(); st.Applied != 20 || st.Parked != 0 {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}
