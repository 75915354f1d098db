package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

// waking runs a consumer on s whose messages are quiet, publish something, or are parked, by their type, and counts them.
func waking(t *testing.T, s *memory.Store, broker *memorybroker.Broker, handled *int) *inbox.Consumer[*memory.Tx] {
	t.Helper()
	box, boxErr := outbox.New(s, outbox.Config{Source: "shop"})
	in, inErr := inbox.New(s)
	source, sourceErr := broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{"t"}})
	if err := errors.Join(boxErr, inErr, sourceErr); err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "view"})
	if err != nil {
		t.Fatal(err)
	}
	for messageType, handle := range map[string]inbox.Handler[*memory.Tx]{
		"quiet": func(context.Context, *memory.Tx, *postrider.Message) error { return nil },
		"publishes": func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: "more", Topic: "more", Payload: []byte("{}")})
			return err
		},
		"waits": func(context.Context, *memory.Tx, *postrider.Message) error { return postrider.Snooze(24 * time.Hour) },
	} {
		if err := c.HandleFunc(messageType, func(ctx context.Context, tx *memory.Tx, m *postrider.Message) error {
			*handled++
			return handle(ctx, tx, m)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestRelaysAreWokenForWhatIsThere: a transaction wakes the relays of its process if a handler published in it, or a message was parked, and
// otherwise not: each relay that is woken reads its outbox.
func TestRelaysAreWokenForWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, broker, handled := memory.New(memory.Config{}), newBroker(t), 0
		c := waking(t, s, broker, &handled)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		woken, unsubscribe := s.Subscribe(nil)
		defer unsubscribe()
		for i, step := range []struct {
			messageType string
			wakes       bool
		}{{"quiet", false}, {"publishes", true}, {"quiet", false}, {"waits", true}} {
			m := &postrider.Message{ID: postrider.NewID(), Type: step.messageType, Topic: "t", Source: "test", Time: time.Now(), Payload: []byte("{}")}
			if err := errors.Join(broker.Publish(ctx, []*postrider.Message{m})...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			signaled := false
			select {
			case <-woken:
				signaled = true
			default:
			}
			if signaled != step.wakes || handled != i+1 {
				t.Errorf("message %d, %s: relays were woken: %t, want %t; %d messages handled", i, step.messageType, signaled, step.wakes, handled)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type wakes struct{ woken int }

func (w *wakes) Wake(...string) { w.woken++ }

// TestNobodyIsWokenForWhatWasUndone: what a handler leaves to be done after the commit is not done if its savepoint was rolled back, though the
// transaction commits.
func TestNobodyIsWokenForWhatWasUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, broker := memory.New(memory.Config{}), newBroker(t)
		in, inErr := inbox.New(s)
		source, sourceErr := broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{"t"}})
		if err := errors.Join(inErr, sourceErr); err != nil {
			t.Fatal(err)
		}
		c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "view"})
		if err != nil {
			t.Fatal(err)
		}
		undone, kept := new(wakes), new(wakes)
		var msgs []*postrider.Message
		for messageType, end := range map[string]error{"fails": postrider.Snooze(24 * time.Hour), "works": nil} {
			if err := c.HandleFunc(messageType, func(ctx context.Context, _ *memory.Tx, _ *postrider.Message) error {
				w := kept
				if end != nil {
					w = undone
				}
				signal.AfterOf(ctx).Add(w)
				return end
			}); err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, &postrider.Message{ID: postrider.NewID(), Type: messageType, Topic: "t", Source: "test", Time: time.Now(), Payload: []byte("{}")})
		}
		ctx, stop := context.WithCancel(t.Context())
		if err := errors.Join(broker.Publish(ctx, msgs)...); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if undone.woken != 0 || kept.woken != 1 {
			t.Errorf("woken %d times for what was undone and %d times for what was kept, want 0 and 1", undone.woken, kept.woken)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
