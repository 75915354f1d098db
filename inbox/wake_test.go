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
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

// TestRelaysAreWokenForWhatIsThere: a transaction wakes the relays of its process if a handler published in it, or a message was parked, and
// otherwise not: each relay that is woken reads its outbox.
func TestRelaysAreWokenForWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		s := memory.New(memory.Config{})
		box, err := outbox.New(s, outbox.Config{Source: "shop"})
		must(err)
		in, err := inbox.New(s)
		must(err)
		broker := newBroker(t)
		source, err := broker.Subscriber(memorybroker.SubscriberConfig{Topics: []string{"t"}})
		must(err)
		c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "view"})
		must(err)
		handled := 0
		for messageType, handle := range map[string]inbox.Handler[*memory.Tx]{
			"quiet": func(context.Context, *memory.Tx, *postrider.Message) error { return nil },
			"publishes": func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
				_, err := box.Publish(ctx, tx, &postrider.Message{Type: "more", Topic: "more", Payload: []byte("{}")})
				return err
			},
			"waits": func(context.Context, *memory.Tx, *postrider.Message) error {
				return postrider.Snooze(24 * time.Hour)
			},
		} {
			must(c.HandleFunc(messageType, func(ctx context.Context, tx *memory.Tx, m *postrider.Message) error {
				handled++
				return handle(ctx, tx, m)
			}))
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		woken, unsubscribe := s.Subscribe()
		defer unsubscribe()
		for i, step := range []struct {
			messageType string
			wakes       bool
		}{{"quiet", false}, {"publishes", true}, {"quiet", false}, {"waits", true}} {
			m := &postrider.Message{ID: postrider.NewID(), Type: step.messageType, Topic: "t", Source: "test", Time: time.Now(), Payload: []byte("{}")}
			must(errors.Join(broker.Publish(ctx, []*postrider.Message{m})...))
			time.Sleep(time.Minute)
			select {
			case <-woken:
				if !step.wakes {
					t.Errorf("message %d, which %s, woke relays", i, step.messageType)
				}
			default:
				if step.wakes {
					t.Errorf("message %d, which %s, woke no relay", i, step.messageType)
				}
			}
			if handled != i+1 {
				t.Fatalf("%d messages handled, want %d", handled, i+1)
			}
		}
		stop()
		must(<-ended)
	})
}
