package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestNameOfAConsumerIsRefused: a relay does not deliver what is recorded under the name of a consumer, parked for it and
// due, whatever kind of relay it is.
func TestNameOfAConsumerIsRefused(t *testing.T) {
	t.Parallel()
	for name, destination := range map[string]func(t *testing.T, b *bundle, j *journal) *relay.Relay{
		"publisher": func(_ *testing.T, b *bundle, j *journal) *relay.Relay {
			return b.relay(relay.Config{Publisher: publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
				for _, m := range msgs {
					j.note(m)
				}
				return make([]error, len(msgs))
			})})
		},
		"handler": func(t *testing.T, b *bundle, j *journal) *relay.Relay {
			r := b.relay(relay.Config{})
			handle(t, r, j.take)
			return r
		},
		"handler with a transaction": func(t *testing.T, b *bundle, j *journal) *relay.Relay {
			r := b.relay(relay.Config{})
			handleTx(t, r, func(m *postrider.Message) error { j.note(m); return nil })
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				if err := b.store.Enroll(t.Context(), "r"); err != nil {
					t.Fatal(err)
				}
				b.transact(func(tx *memory.Tx) error {
					return b.store.Park(t.Context(), tx, "r", []store.ParkRequest{
						{Message: b.msg("k"), Reason: store.ParkRetry}, {Message: b.msg(""), Reason: store.ParkRedriven},
					})
				})
				b.publish(b.msgs("k", "l", "")...) // of the outbox, which is not for consumers
				var j journal
				r := destination(t, b, &j)
				if err := runFor(t, r, time.Minute); !errors.Is(err, store.ErrNameOfConsumer) {
					t.Errorf("Run: %v, want ErrNameTaken", err)
				}
				want(t, "delivered", j.all, nil)
				st := b.status()
				if st.Parked.N != 2 || st.Held.N != 1 || st.Delivered != 0 {
					t.Errorf("%d parked, %d keys held, %d delivered; want 2, 1 and 0", st.Parked.N, st.Held.N, st.Delivered)
				}
				for _, p := range st.Partitions {
					if p.Owner != "" {
						t.Errorf("partition %d is still held, by %s", p.Partition, p.Owner)
					}
				}
				if err := r.Ready(); err == nil {
					t.Error("the relay says that it is ready")
				}
			})
		})
	}
}

// runFor runs a relay until it ends by itself, or for the given time.
func runFor(t *testing.T, r *relay.Relay, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return r.Run(ctx)
}

// TestNameThatAConsumerTakesOver: an operator removes a relay whose process is cut off from the outbox, and a consumer begins
// under its name. When the process is back, it ends.
func TestNameThatAConsumerTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cutOff atomic.Bool
		b := faulty(t, func(op string, _ bool) error {
			if op == "Heartbeat" && cutOff.Load() {
				return errBoom
			}
			return nil
		})
		k := &broker{}
		r := b.relay(relay.Config{Publisher: k})
		ended := make(chan error, 1)
		go func() { ended <- runFor(t, r, time.Hour) }()
		b.publish(b.msgs("k", "l")...)
		pass(time.Second)
		cutOff.Store(true)
		pass(20 * time.Second)
		_, err := held.New(b.store).RemoveRelay(t.Context(), "r", "op", "the name is for a consumer", false)
		if err := errors.Join(err, b.store.Enroll(t.Context(), "r")); err != nil {
			t.Fatal(err)
		}
		b.publish(b.msgs("k", "l")...)
		cutOff.Store(false)
		if err := <-ended; !errors.Is(err, store.ErrNameOfConsumer) {
			t.Errorf("Run: %v, want ErrNameTaken", err)
		}
		if k.len() != 2 {
			t.Errorf("%d messages delivered, want the 2 from before the relay was removed", k.len())
		}
	})
}

func TestRelayNeedsADestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{})
		if err := runFor(t, r, time.Minute); !errors.Is(err, relay.ErrNoDestination) {
			t.Errorf("Run with neither publisher nor handler: %v, want ErrNoDestination", err)
		}
		var j journal
		handle(t, r, j.take)
		b.start(r)
		b.publish(b.msg("k"))
		pass(time.Second)
		want(t, "delivered once it has a handler", j.of("k"), []string{"m001"})
	})
}
