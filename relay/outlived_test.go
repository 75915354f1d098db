package relay_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestCallThatOutlivesItsRelay: a relay is stopped while a handler ignores that its context has ended, and another relay of the
// same name takes over in the same process. What the handler works on waits for it, and nothing else does.
func TestCallThatOutlivesItsRelay(t *testing.T) {
	t.Parallel()
	key := keysIn(0, 1)[0]
	for _, c := range []struct {
		name  string
		tx    bool
		key   string
		other int // the partition of the message that does not wait
	}{
		{"with a key", false, key, 0},
		{"without a key", false, "", 0},
		{"with HandleTx", true, key, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				slow, other := b.keyless(0), b.msg(keysIn(c.other, 2)[1])
				slow.Key = c.key
				h := &hanging{id: slow.ID, hangs: make(chan struct{})}
				b.publish(slow)
				b.runShortly(b.outlived(c.tx, h.handle))
				second := b.outlived(c.tx, h.handle)
				b.start(second)
				b.publish(other)
				pass(5 * time.Minute)
				want(t, "while the call is out", h.all, []string{other.ID})
				close(h.hangs)
				pass(5 * time.Minute)
				want(t, "in the end", h.all, []string{other.ID, slow.ID, slow.ID})
				if h.most != 1 {
					t.Errorf("%d calls of one message were out at once", h.most)
				}
				b.wantNothingLeft(second)
			})
		})
	}
}

// hanging is a handler whose first call for a message hangs.
type hanging struct {
	journal
	id                  string
	hangs               chan struct{}
	calls, atOnce, most int
}

func (h *hanging) handle(ctx context.Context, m *postrider.Message) error {
	if m.ID == h.id {
		h.atOnce++
		h.most = max(h.most, h.atOnce)
		defer func() { h.atOnce-- }()
		if h.calls++; h.calls == 1 {
			<-h.hangs
		}
	}
	return h.take(ctx, m)
}

// outlived returns a relay that does not wait for long when it stops; tx: with HandleTx.
func (b *bundle) outlived(tx bool, h postrider.Handler) *relay.Relay {
	b.t.Helper()
	r := b.relay(relay.Config{StopTimeout: time.Second})
	if !tx {
		handle(b.t, r, h)
		return r
	}
	err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return h(ctx, m) })
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// runShortly runs a relay for a second, until a call of it hangs.
func (b *bundle) runShortly(r *relay.Relay) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	pass(time.Second)
	cancel()
	if err := <-ended; err == nil {
		b.t.Error("Run says nothing about the call that was cut short")
	}
}

// TestFetchThatAnswersAfterTheRelayLeft: a fetch is in progress while a stop cuts a call short and releases the leases, and
// answers that they are lost. The call counts once among those that have outlived their relay, so its return ends the wait.
func TestFetchThatAnswersAfterTheRelayLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waits atomic.Bool
		left := make(chan struct{})
		leave := sync.OnceFunc(func() { close(left); time.Sleep(time.Millisecond) }) // for the fetch to be processed
		b := faulty(t, func(op string, done bool) error {
			switch {
			case op == "Fetch" && !done && waits.CompareAndSwap(true, false):
				<-left
			case op == "Leave" && done:
				leave()
			}
			return nil
		})
		m := b.msg("k")
		h := &hanging{id: m.ID, hangs: make(chan struct{})}
		var lost atomic.Int64
		first := b.relay(relay.Config{StopTimeout: time.Second, Observer: &observe.Relay{LeasesChanged: func(c observe.LeaseChange, n int) {
			if c == observe.LeaseLost {
				lost.Add(int64(n))
			}
		}}})
		handle(t, first, h.handle)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- first.Run(ctx) }()
		b.publish(m)
		pass(time.Second)
		waits.Store(true)
		b.publish(b.msg("other"))
		pass(2 * time.Second)
		if waits.Load() {
			t.Fatal("nothing is fetched")
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("Run says nothing about the call that was cut short")
		}
		close(h.hangs)
		second := b.outlived(false, h.handle)
		b.start(second)
		pass(time.Minute)
		want(t, "of the key", h.of("k"), []string{m.ID, m.ID})
		b.wantNothingLeft(second)
		if lost.Load() > 0 {
			t.Errorf("%d leases were observed as lost after the relay had released them", lost.Load())
		}
	})
}

// TestOthersDoNotWaitForACallThatOutlivesItsRelay: a relay of another name, and one on another store, have calls of their own.
func TestOthersDoNotWaitForACallThatOutlivesItsRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		hangs := make(chan struct{})
		defer close(hangs)
		m := b.msg("k")
		b.publish(m)
		b.runShortly(b.outlived(false, func(context.Context, *postrider.Message) error { <-hangs; return nil }))
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
