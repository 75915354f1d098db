package relay_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// commits is a store that asks before each commit of a handler's transaction, and rolls it back if the answer is no.
type commits struct {
	*memory.Store
	ask func(s store.Settlement) error
}

func (c *commits) CommitSettled(ctx context.Context, tx *memory.Tx, name string, s store.Settlement) ([]string, error) {
	if err := c.ask(s); err != nil {
		_ = c.Rollback(context.WithoutCancel(ctx), tx)
		return nil, err
	}
	return c.Store.CommitSettled(ctx, tx, name, s)
}

// handleTx registers a handler that ignores its transaction.
func handleTx(t *testing.T, r *relay.Relay, h func(m *postrider.Message) error) {
	t.Helper()
	err := relay.HandleTxFunc(r, "t", func(_ context.Context, _ *memory.Tx, m *postrider.Message) error { return h(m) })
	if err != nil {
		t.Fatal(err)
	}
}

// memorial is a store whose Due, once armed, returns its previous result again.
type memorial struct {
	*memory.Store
	armed atomic.Bool
	last  store.DueResult // with a run
}

func (s *memorial) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	if s.armed.CompareAndSwap(true, false) {
		return s.last, nil
	}
	res, err := s.Store.Due(ctx, name, req)
	if len(res.Runs) > 0 {
		s.last = res
	}
	return res, err
}

// TestParkedMessageDoesNotRunWithItsKey: what was read of a held key arrives when the next message of this key is in a
// transaction.
func TestParkedMessageDoesNotRunWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := &memorial{Store: b.store}
		var runs journal
		underWay, proceed := make(chan struct{}), make(chan struct{})
		r := b.relayOn(s, relay.Config{})
		handleTx(t, r, func(m *postrider.Message) error {
			runs.note(m)
			switch {
			case m.ID == "m001" && m.Attempt == 1:
				return errBoom
			case m.ID == "m002":
				close(underWay)
				<-proceed
			}
			return nil
		})
		b.start(r)
		b.publish(b.msg("k"))
		pass(10 * time.Second)
		b.publish(b.msg("k"))
		<-underWay
		s.armed.Store(true)
		b.store.Wake()
		pass(10 * time.Second)
		if s.armed.Load() || len(s.last.Runs) == 0 {
			t.Fatal("Due was not called, or never returned a run; the test shows nothing")
		}
		want(t, "runs", runs.of("k"), []string{"m001", "m001", "m002"})
		close(proceed)
	})
}

// TestRefusedCommitKeepsWhatWentAlong: a commit that includes the failure of another message is refused, because a message
// that it removes is no longer parked.
func TestRefusedCommitKeepsWhatWentAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 2)
		refused := false
		store := &commits{Store: b.store, ask: func(s store.Settlement) error {
			if len(s.Removed) > 0 && len(s.Held) > 0 && !refused {
				refused = true
				return store.ErrNotParked
			}
			return nil
		}}
		var done journal
		r := b.relayOn(store, relay.Config{})
		handleTx(t, r, func(m *postrider.Message) error {
			if m.Key == keys[1] && m.Attempt == 1 {
				time.Sleep(3 * time.Second) // until the delayed one waits after it
				return errBoom
			}
			done.note(m)
			return nil
		})
		b.start(r)
		delayed := b.msg(keys[0])
		delayed.DeliverAfter = 2 * time.Second
		b.publish(delayed)
		pass(time.Second)
		b.publish(b.msg(keys[1]))
		pass(time.Minute)
		if !refused {
			t.Fatal("no commit took the failure along; the test shows nothing")
		}
		want(t, "the one that failed", done.of(keys[1]), []string{"m002"})
		want(t, "the delayed one", done.of(keys[0]), []string{"m001", "m001"}) // the first time without a side effect
		b.wantNothingLeft(r)
	})
}

// TestNothingOfABatchRunsAfterAFailure: messages after a failed message of a transaction are not started.
func TestNothingOfABatchRunsAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(0, 2)
		var runs journal
		r := b.relay(relay.Config{TxBatch: 10})
		handleTx(t, r, func(m *postrider.Message) error {
			runs.note(m)
			if m.ID == "m002" && m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		b.publish(b.msgs(keys[0], keys[1], keys[1], keys[0])...)
		b.start(r)
		pass(time.Minute)
		want(t, "key of the failed one", runs.of(keys[1]), []string{"m002", "m002", "m002", "m003"})
		b.wantNothingLeft(r)
	})
}

// TestTransactionBeginsUnderALivingLease: the process was paused for longer than its lease, and no timer has fired yet.
func TestTransactionBeginsUnderALivingLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var mu sync.Mutex
		var tokens []string
		store := &commits{Store: b.store, ask: func(s store.Settlement) error {
			mu.Lock()
			defer mu.Unlock()
			tokens = append(tokens, s.Token)
			return nil
		}}
		underWay, proceed := make(chan struct{}), make(chan struct{})
		r := b.relayOn(store, relay.Config{TxBatch: 1})
		handleTx(t, r, func(m *postrider.Message) error {
			if m.ID == "m001" {
				close(underWay)
				<-proceed
			}
			return nil
		})
		key := keysIn(0, 1)[0]
		b.publish(b.msgs(key, key)...)
		b.start(r)
		<-underWay
		synctest.Wait()
		r.EndLease(0)
		close(proceed)
		pass(time.Minute)
		if len(tokens) != 2 || tokens[0] == tokens[1] {
			t.Errorf("committed under the tokens %v, want the second message under a new lease", tokens)
		}
		b.wantNothingLeft(r)
	})
}
