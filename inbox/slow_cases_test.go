package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

var slowLog = memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}

// TestLongMessageAmongManyOthers: a message takes long, in a transaction with those of another key, of which there are many. It is
// interrupted once, and then runs by itself. No key is parked: the others are fast, and nothing waits for it.
func TestLongMessageAmongManyOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == "slow" {
				runs++
				return wait(ctx, time.Minute)
			}
			return nil
		})
		slow, others := w.send("slow", 1), w.send("other", 60)
		c, log := run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 64}, w.handle)
		time.Sleep(20 * time.Second)
		w.want("other", others)
		time.Sleep(2 * time.Minute)
		w.want("slow", slow)
		if st := c.Stats(); runs != 2 || st.Parked != 0 || st.Failed != 0 {
			t.Errorf("the handler ran %d times, want twice: %+v\n%s", runs, st, log)
		}
	})
}

// TestHandlerThatIgnoresItsInterruption: it has no effect when it returns nil, however late, and the message has it once, at its turn.
func TestHandlerThatIgnoresItsInterruption(t *testing.T) {
	t.Parallel()
	inEachWay(t, func(t *testing.T, source memorybroker.SubscriberConfig, batch int) {
		var ignored atomic.Bool
		w := newSlowWorld(t, func(_ context.Context, m *postrider.Message) error {
			if m.Key == "slow" && !ignored.Swap(true) {
				time.Sleep(time.Minute)
			}
			return nil
		})
		c, _ := run(t, w.store, w.b, source, inbox.ConsumerConfig{MaxInFlight: 64, Batch: batch}, w.handle)
		slow, others := w.send("slow", 100), w.send("other", 100)
		time.Sleep(2 * time.Minute)
		w.want("slow", slow)
		w.want("other", others)
		if st := c.Stats(); st.Parked == 0 {
			t.Errorf("nothing was parked: %+v", st)
		}
	})
}

// unansweredStore is a store on which one commit takes effect and is not answered until its context ends.
type unansweredStore struct {
	*memory.Store
	armed atomic.Bool
}

func (s *unansweredStore) answer(ctx context.Context, err error) error {
	if err != nil || !s.armed.Swap(false) {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *unansweredStore) Commit(ctx context.Context, tx *memory.Tx) error {
	return s.answer(ctx, s.Store.Commit(ctx, tx))
}

func (s *unansweredStore) CommitSettled(ctx context.Context, tx *memory.Tx, name string, st store.Settlement) ([]string, error) {
	released, err := s.Store.CommitSettled(ctx, tx, name, st)
	return released, s.answer(ctx, err)
}

// TestInterruptedCommit: the commit that is interrupted has taken effect. What it committed is not parked, and what follows is.
func TestInterruptedCommit(t *testing.T) {
	t.Parallel()
	inEachWay(t, func(t *testing.T, source memorybroker.SubscriberConfig, batch int) {
		var s *unansweredStore
		w := newSlowWorld(t, func(_ context.Context, m *postrider.Message) error {
			if m.ID == "slow 0" {
				s.armed.Store(true)
			}
			return nil
		})
		s = &unansweredStore{Store: w.store}
		c, _ := run(t, s, w.b, source, inbox.ConsumerConfig{MaxInFlight: 64, Batch: batch}, w.handle)
		slow := w.send("slow", 100)
		time.Sleep(time.Minute)
		w.want("slow", slow)
		if st := c.Stats(); st.Parked == 0 || st.Duplicates == 0 || st.Failed != 0 {
			t.Errorf("stats: %+v", st)
		}
	})
}

// TestNothingIsSlowWhileEverythingStops: a handler is not interrupted, and nothing parked, while the consumer is paused or stopping.
func TestNothingIsSlowWhileEverythingStops(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, w *slowWorld, c *inbox.Consumer[*memory.Tx]){
		"paused": func(t *testing.T, w *slowWorld, _ *inbox.Consumer[*memory.Tx]) {
			if _, err := pause.New(w.store).Pause(t.Context(), pause.Request{Relay: "view", By: "ann", Reason: "r"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		},
		"stopping": func(t *testing.T, _ *slowWorld, c *inbox.Consumer[*memory.Tx]) {
			if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error { return wait(ctx, 17*time.Second) })
				c, log := run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 64, Batch: 1}, w.handle)
				slow := w.send("slow", 100)
				time.Sleep(time.Second)
				stop(t, w, c)
				if st := c.Stats(); st.Parked != 0 || st.Applied != 1 {
					t.Errorf("stats: %+v\n%s", st, log)
				}
				w.want("slow", slow[:1])
			})
		})
	}
}

// TestSlowHandlersMakeNoKeySlow: every worker has a key to work on, so it would not help to read on.
func TestSlowHandlersMakeNoKeySlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error { return wait(ctx, 20*time.Second) })
		for range 20 {
			for _, key := range []string{"a", "b", "c"} {
				m := &postrider.Message{ID: postrider.NewID(), Type: "t", Topic: "t", Source: "s", Key: key, Time: time.Now(), Payload: []byte("{}")}
				if err := errors.Join(w.b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
					t.Fatal(err)
				}
			}
		}
		c, log := run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 64, Concurrency: 2, Batch: 1}, w.handle)
		time.Sleep(5 * time.Minute)
		if st := c.Stats(); st.Parked != 0 || st.Applied < 28 {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}

// awayForClaims does not begin transactions for messages while it is away.
type awayForClaims struct {
	*memory.Store
	away atomic.Bool
}

func (s *awayForClaims) Claim(ctx context.Context, tx *memory.Tx, name string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	if s.away.Load() {
		return nil, errNoConnection
	}
	return s.Store.Claim(ctx, tx, name, msgs)
}

// TestOutageMakesNoKeySlow: when the database is back, messages are handled, and not parked because they have waited.
func TestOutageMakesNoKeySlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(context.Context, *postrider.Message) error { return nil })
		s := &awayForClaims{Store: w.store}
		s.away.Store(true)
		c, log := run(t, s, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 64}, w.handle)
		ids := w.send("key", 100)
		time.Sleep(time.Hour)
		s.away.Store(false)
		time.Sleep(time.Minute)
		w.want("key", ids)
		if st := c.Stats(); st.Parked != 0 {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}

// TestSlowKeyOfLargeMessages: a few large messages fill the memory as well.
func TestSlowKeyOfLargeMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == "slow" {
				return wait(ctx, 30*time.Second)
			}
			return nil
		})
		run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlightBytes: 10_000}, w.handle)
		for range 10 {
			w.publish("slow", &postrider.Message{Payload: make([]byte, 4_000)})
		}
		others := w.send("other", 10)
		time.Sleep(25 * time.Second)
		w.want("other", others)
	})
}

// TestSkippedMessagesOfASlowKeyAreNotParked: no handler would ever take them from there.
func TestSkippedMessagesOfASlowKeyAreNotParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error { return wait(ctx, 30*time.Second) })
		c, log := run(t, w.store, w.b, slowLog, inbox.ConsumerConfig{MaxInFlight: 64, Unhandled: inbox.SkipUnhandled}, w.handle)
		var want []string
		for i := range 60 {
			if i%2 == 1 {
				w.publish("slow", &postrider.Message{Type: "unknown"})
			} else {
				want = append(want, w.publish("slow", new(postrider.Message)))
			}
		}
		time.Sleep(20 * time.Minute)
		w.want("slow", want)
		if st := c.Stats(); st.Skipped != 30 || st.Parked != 30 || st.Held != 29 {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}

// TestSlowBatch: a handler of batches takes long for all of its messages.
func TestSlowBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.Key == "slow" {
				return wait(ctx, 30*time.Second)
			}
			return nil
		})
		subscriber, err := w.b.Subscriber(slowLog)
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(w.store)
		if err != nil {
			t.Fatal(err)
		}
		log := &text{}
		c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "view", MaxInFlight: 64, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleBatch([]string{"t"}, func(_ context.Context, tx *memory.Tx, _ []*postrider.Message) (relay.Batch, error) {
			return &slowBatch{w: w, tx: tx}, nil
		}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(context.Background()) }()
		slow, others := w.send("slow", 100), w.send("other", 100)
		time.Sleep(30 * time.Second)
		w.want("other", others)
		time.Sleep(time.Hour)
		w.want("slow", slow)
		if err := errors.Join(c.Stop(context.Background()), <-ended); err != nil {
			t.Error(err)
		}
		if st := c.Stats(); st.Parked == 0 || st.Applied != 200 || strings.Contains(log.String(), "key=other") {
			t.Errorf("stats: %+v\n%s", st, log)
		}
	})
}

// slowBatch does the work of its messages in its End.
type slowBatch struct {
	w    *slowWorld
	tx   *memory.Tx
	msgs []*postrider.Message
}

func (b *slowBatch) Handle(_ context.Context, m *postrider.Message) error {
	b.msgs = append(b.msgs, m)
	return nil
}

func (b *slowBatch) End(ctx context.Context) error {
	for _, m := range b.msgs {
		if err := b.w.handle(ctx, b.tx, m); err != nil {
			return err
		}
	}
	return nil
}
