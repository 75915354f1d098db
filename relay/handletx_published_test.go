package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestMessageOfAHandlerWakesRelays: what a handler publishes in its transaction is delivered at once, not at the next poll.
func TestMessageOfAHandlerWakesRelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := memory.New(memory.Config{})
		box, err := outbox.New(s, outbox.Config{Source: "shop"})
		must(t, err)
		publish := func(ctx context.Context, tx *memory.Tx, topic string) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: topic, Topic: topic, Key: "k", Payload: []byte("{}")})
			return err
		}
		var published time.Time
		took := make(chan time.Duration, 1)
		ended := make(chan error, 2)
		for topic, handle := range map[string]func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error{
			"first": func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
				published = time.Now()
				return publish(ctx, tx, "second")
			},
			"second": func(context.Context, *memory.Tx, *postrider.Message) error {
				took <- time.Since(published)
				return nil
			},
		} {
			r, err := relay.New(s, relay.Config{Name: topic, Topics: []string{topic}, PollMin: time.Hour, PollMax: time.Hour})
			must(t, err)
			must(t, relay.HandleTxFunc(r, topic, handle))
			go func() { ended <- r.Run(ctx) }()
		}
		time.Sleep(time.Minute) // both have their leases, and found nothing
		_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error { return publish(ctx, tx, "first") })
		must(t, err)
		if d := <-took; d > time.Second {
			t.Errorf("the message of the handler was handled %s later", d)
		}
		stop()
		for range 2 {
			must(t, <-ended)
		}
	})
}
