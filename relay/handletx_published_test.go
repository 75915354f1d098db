package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
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

// TestOnlyRelaysOfTheTopicAreWoken: what a handler publishes makes only those relays of its process read the log that take its topic. Whoever
// wakes without a topic wakes all.
func TestOnlyRelaysOfTheTopicAreWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const messages = 20
		ctx, stop := context.WithCancel(t.Context())
		s := memory.New(memory.Config{})
		box, err := outbox.New(s, outbox.Config{Source: "shop"})
		must(t, err)
		publish := func(ctx context.Context, tx *memory.Tx, topic string) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: "m", Topic: topic, Payload: []byte("{}")})
			return err
		}
		reads, handled := make(map[string]*atomic.Int64), make(map[string]*atomic.Int64)
		ended := make(chan error, 3)
		for name, c := range map[string]struct{ topics, publishes string }{
			"commands": {"commands.*", "replies"}, "replies": {"replies", ""}, "all": {"*", ""},
		} {
			read, done := new(atomic.Int64), new(atomic.Int64)
			reads[name], handled[name] = read, done
			r, err := relay.New(s, relay.Config{Name: name, Topics: []string{c.topics}, PollMin: 24 * time.Hour, PollMax: 24 * time.Hour,
				Observer: &observe.Relay{Fetched: func(f observe.Fetched) {
					if f.WokenBy == observe.WokenByCommit {
						read.Add(1)
					}
				}}})
			must(t, err)
			must(t, relay.HandleTxFunc(r, "m", func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
				done.Add(1)
				if c.publishes == "" {
					return nil
				}
				return publish(ctx, tx, c.publishes)
			}))
			go func() { ended <- r.Run(ctx) }()
		}
		pass(time.Minute) // they have their leases, and found nothing
		expect := func(what, name string, wantReads, wantHandled int64) {
			t.Helper()
			if n, m := reads[name].Swap(0), handled[name].Swap(0); n != wantReads || m != wantHandled {
				t.Errorf("%s: relay %s read the log %d times and handled %d messages, want %d and %d", what, name, n, m, wantReads, wantHandled)
			}
		}
		for range messages {
			_, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error { return publish(ctx, tx, "commands.stock") })
			must(t, err)
			pass(time.Minute)
		}
		expect("commands", "commands", messages, messages) // InTx wakes all, and the handler's reply does not wake this one
		expect("commands", "replies", 2*messages, messages)
		expect("commands", "all", 2*messages, 2*messages)
		box.Wake("commands.card", "others")
		pass(time.Minute)
		expect("a topic of a pattern", "commands", 1, 0)
		expect("a topic of a pattern", "replies", 0, 0)
		expect("a topic of a pattern", "all", 1, 0)
		box.Wake()
		pass(time.Minute)
		expect("no topic", "commands", 1, 0)
		expect("no topic", "replies", 1, 0)
		stop()
		for range 3 {
			must(t, <-ended)
		}
	})
}
