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
		ended := make(chan error, 3)
		commands := counting{s: s, box: box, publishes: "replies"}
		replies, all := counting{s: s, box: box}, counting{s: s, box: box}
		go func() { ended <- commands.relay(t, "commands", "commands.*").Run(ctx) }()
		go func() { ended <- replies.relay(t, "replies", "replies").Run(ctx) }()
		go func() { ended <- all.relay(t, "all", "*").Run(ctx) }()
		pass(time.Minute) // they have their leases, and found nothing
		for range messages {
			_, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error { return publish(ctx, box, tx, "commands.stock") })
			must(t, err)
			pass(time.Minute)
		}
		commands.expect(t, "commands", messages, messages) // InTx wakes all, and the handler's reply does not wake this one
		replies.expect(t, "commands", 2*messages, messages)
		all.expect(t, "commands", 2*messages, 2*messages)
		box.Wake("commands.card", "others")
		pass(time.Minute)
		commands.expect(t, "a topic of a pattern", 1, 0)
		replies.expect(t, "a topic of a pattern", 0, 0)
		all.expect(t, "a topic of a pattern", 1, 0)
		box.Wake()
		pass(time.Minute)
		commands.expect(t, "no topic", 1, 0)
		replies.expect(t, "no topic", 1, 0)
		stop()
		for range 3 {
			must(t, <-ended)
		}
	})
}

func publish(ctx context.Context, box *outbox.Outbox[*memory.Tx], tx *memory.Tx, topic string) error {
	_, err := box.Publish(ctx, tx, &postrider.Message{Type: "m", Topic: topic, Payload: []byte("{}")})
	return err
}

// counting is a relay that counts what it reads because of a commit, and what it handles. Its handler may publish to a topic.
type counting struct {
	s             *memory.Store
	box           *outbox.Outbox[*memory.Tx]
	publishes     string
	read, handled atomic.Int64
}

func (c *counting) relay(t *testing.T, name, topics string) *relay.Relay {
	t.Helper()
	r, err := relay.New(c.s, relay.Config{
		Name: name, Topics: []string{topics}, PollMin: 24 * time.Hour, PollMax: 24 * time.Hour,
		Observer: &observe.Relay{Fetched: func(f observe.Fetched) {
			if f.WokenBy == observe.WokenByCommit {
				c.read.Add(1)
			}
		}},
	})
	must(t, err)
	must(t, relay.HandleTxFunc(r, "m", func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
		c.handled.Add(1)
		if c.publishes == "" {
			return nil
		}
		return publish(ctx, c.box, tx, c.publishes)
	}))
	return r
}

func (c *counting) expect(t *testing.T, after string, read, handled int64) {
	t.Helper()
	if n, m := c.read.Swap(0), c.handled.Swap(0); n != read || m != handled {
		t.Errorf("after %s, the log was read %d times and %d messages were handled, want %d and %d", after, n, m, read, handled)
	}
}
