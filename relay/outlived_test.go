package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestCallThatOutlivesItsRelay: a relay is stopped while a handler ignores that its context has ended, and another relay of the
// same name takes over in the same process. What the handler works on waits for it, and nothing else does.
func TestCallThatOutlivesItsRelay(t *testing.T) {
	t.Parallel()
	keys := keysIn(0, 2)
	transaction := func(h func(ctx context.Context, m *postrider.Message) error) func(*testing.T, *relay.Relay) {
		return func(t *testing.T, r *relay.Relay) {
			t.Helper()
			err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return h(ctx, m) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		tx    bool
		key   string
		other int // the partition of the message that does not wait
	}{
		{"with a key", false, keys[0], 0},
		{"without a key", false, "", 0},
		{"with HandleTx", true, keys[0], 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				slow, other := b.keyless(0), b.msg(keysIn(c.other, 2)[1])
				slow.Key = c.key
				var done journal
				hangs, calls, atOnce, most := make(chan struct{}), 0, 0, 0
				handler := func(ctx context.Context, m *postrider.Message) error {
					if m.ID == slow.ID {
						atOnce++
						most = max(most, atOnce)
						defer func() { atOnce-- }()
						if calls++; calls == 1 {
							<-hangs
						}
					}
					return done.take(ctx, m)
				}
				work := func() *relay.Relay {
					r := b.relay(relay.Config{StopTimeout: time.Second})
					if c.tx {
						transaction(handler)(t, r)
					} else {
						handle(t, r, handler)
					}
					return r
				}
				first, second := work(), work()
				ended := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { ended <- first.Run(ctx) }()
				b.publish(slow)
				pass(time.Second)
				cancel()
				if err := <-ended; err == nil {
					t.Error("Run says nothing about the call that was cut short")
				}
				b.start(second)
				b.publish(other)
				pass(5 * time.Minute)
				want(t, "while the call is out", done.all, []string{other.ID})
				close(hangs)
				pass(5 * time.Minute)
				want(t, "in the end", done.all, []string{other.ID, slow.ID, slow.ID})
				if most != 1 {
					t.Errorf("%d calls of one message were out at once", most)
				}
				b.wantNothingLeft(second)
			})
		})
	}
}

// TestOthersDoNotWaitForACallThatOutlivesItsRelay: a relay of another name, and one on another store, have calls of their own.
func TestOthersDoNotWaitForACallThatOutlivesItsRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		hangs := make(chan struct{})
		defer close(hangs)
		r := b.relay(relay.Config{StopTimeout: time.Second})
		handle(t, r, func(context.Context, *postrider.Message) error { <-hangs; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		m := b.msg("k")
		b.publish(m)
		pass(time.Second)
		cancel()
		<-ended
		var named, elsewhere journal
		other := b.relay(relay.Config{Name: "other"})
		handle(t, other, named.take)
		b.start(other)
		second := setup(t)
		same := second.relay(relay.Config{})
		handle(t, same, elsewhere.take)
		second.start(same)
		second.publish(m)
		pass(time.Second)
		want(t, "relay of another name", named.all, []string{m.ID})
		want(t, "relay on another store", elsewhere.all, []string{m.ID})
	})
}
