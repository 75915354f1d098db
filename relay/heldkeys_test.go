package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// kinds runs a test with handlers without and with transactions.
func kinds(t *testing.T, test func(t *testing.T, b *bundle, tx bool, handle func(r *relay.Relay, h postrider.Handler))) {
	t.Helper()
	for name, tx := range map[string]bool{"Handle": false, "HandleTx": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := faulty(t, func(op string, done bool) error {
					switch { // so that much happens meanwhile
					case op == "FindHeld" && done:
						time.Sleep(30 * time.Millisecond)
					case op == "Fetch" || op == "Due" || op == "Settle":
						time.Sleep(time.Millisecond)
					}
					return nil
				})
				test(t, b, tx, func(r *relay.Relay, h postrider.Handler) {
					if !tx {
						handle(t, r, h)
						return
					}
					err := relay.HandleTxFunc(r, "t", func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return h(ctx, m) })
					if err != nil {
						t.Fatal(err)
					}
				})
			})
		})
	}
}

// TestMoreHeldKeysThanMemoryTakes: more keys are held than MaxHeldKeys. Other keys keep flowing, new messages of a held key
// wait for it, even when another process has taken over, and when the failing messages succeed, all are delivered in order.
func TestMoreHeldKeysThanMemoryTakes(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, _ bool, handle func(r *relay.Relay, h postrider.Handler)) {
		const keys, limit = 400, 40
		j := &journal{}
		var healed atomic.Bool
		h := func(ctx context.Context, m *postrider.Message) error {
			if m.Key != "other" && !healed.Load() {
				return postrider.Retry(10*time.Minute, errBoom)
			}
			return j.take(ctx, m)
		}
		want := make(map[string][]string)
		round := func() {
			for i := range keys {
				m := b.msg(fmt.Sprint("held/", i))
				want[m.Key] = append(want[m.Key], m.ID)
				b.publish(m)
			}
			pass(5 * time.Second)
		}
		for n := range 2 {
			r := b.relay(relay.Config{MaxHeldKeys: limit, MaxInFlight: 60})
			handle(r, h)
			stop := b.start(r)
			round()
			round()
			if got := b.status().Held.N; got != keys {
				t.Fatalf("%d keys are held, want %d", got, keys)
			}
			b.publish(b.msg("other"))
			pass(2 * time.Second)
			c := r.Counters()
			if len(j.of("other")) != n+1 {
				t.Errorf("a message of another key is not delivered in two seconds: %+v", c)
			}
			if c.HeldKeys > limit+1 || c.HeldKeys != c.Held {
				t.Errorf("%d held keys in memory, %d counted, want %d at most", c.Held, c.HeldKeys, limit+1)
			}
			stop()
		}
		if j.len() != 2 {
			t.Fatalf("%d messages are delivered, want those of the other key only: some have overtaken their key's first", j.len())
		}
		healed.Store(true)
		r := b.relay(relay.Config{MaxHeldKeys: limit, MaxInFlight: 60})
		handle(r, h)
		b.start(r)
		pass(time.Hour)
		for key, ids := range want {
			if got := j.of(key); !slices.Equal(got, ids) {
				t.Errorf("key %s: got %v, want %v", key, got, ids)
			}
		}
		b.wantNothingLeft(r)
	})
}

// leasedKeys is a store that counts the held keys that its leases bring.
type leasedKeys struct {
	*memory.Store
	most atomic.Int64 // in one answer
	more atomic.Bool
}

func (s *leasedKeys) Acquire(ctx context.Context, name string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	leases, err := s.Store.Acquire(ctx, name, o, req)
	n := 0
	for _, l := range leases {
		n += len(l.Parked.Keys)
		if l.Parked.More {
			s.more.Store(true)
		}
	}
	s.most.Store(max(s.most.Load(), int64(n)))
	return leases, err
}

// TestLeaseBringsFewHeldKeys: a process that takes over learns of no more held keys than it may have in memory. From its first fetch on,
// messages of the others wait for their keys too.
func TestLeaseBringsFewHeldKeys(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, _ bool, handle func(r *relay.Relay, h postrider.Handler)) {
		const keys, limit = 400, 40
		j := &journal{}
		var healed atomic.Bool
		h := func(ctx context.Context, m *postrider.Message) error {
			if m.Key != "other" && !healed.Load() {
				return postrider.Retry(10*time.Minute, errBoom)
			}
			return j.take(ctx, m)
		}
		want := make(map[string][]string)
		round := func() {
			for i := range keys {
				m := b.msg(fmt.Sprint("held/", i))
				want[m.Key] = append(want[m.Key], m.ID)
				b.publish(m)
			}
		}
		first := b.relay(relay.Config{MaxInFlight: 60})
		handle(first, h)
		stop := b.start(first)
		round()
		pass(5 * time.Second)
		stop()
		if got := b.status().Held.N; got != keys {
			t.Fatalf("%d keys are held, want %d", got, keys)
		}

		round() // nobody runs: what comes first is read with the first fetch
		healed.Store(true)
		b.publish(b.msg("other"))
		s := &leasedKeys{Store: b.store}
		r := b.relayOn(s, relay.Config{MaxHeldKeys: limit, MaxInFlight: 60})
		handle(r, h)
		b.start(r)
		pass(5 * time.Second) // less than until the next attempts
		if n := s.most.Load(); n == 0 || n > limit || !s.more.Load() {
			t.Errorf("the leases bring %d held keys, more: %t; want %d at most, and more", n, s.more.Load(), limit)
		}
		if c := r.Counters(); j.len() != 1 || len(j.of("other")) != 1 || c.HeldKeys > limit+1 {
			t.Fatalf("%d messages are delivered, %d of the other key, with %d held keys in memory; want only that one, and %d keys at most: "+
				"some have overtaken their key's first", j.len(), len(j.of("other")), c.HeldKeys, limit+1)
		}
		pass(time.Hour)
		for key, ids := range want {
			if got := j.of(key); !slices.Equal(got, ids) {
				t.Errorf("key %s: got %v, want %v", key, got, ids)
			}
		}
		b.wantNothingLeft(r)
	})
}

// TestHeldKeysAtRandom: keys fail and succeed at random while messages arrive, with fewer held keys in memory than there are.
// Every message is delivered once, in the order of its key.
func TestHeldKeysAtRandom(t *testing.T) {
	t.Parallel()
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			kinds(t, func(t *testing.T, b *bundle, tx bool, handle func(r *relay.Relay, h postrider.Handler)) {
				random := rand.New(rand.NewPCG(seed, 1))
				j := &journal{}
				var calls atomic.Uint64
				r := b.relay(relay.Config{
					MaxHeldKeys: 5, MaxInFlight: 30, MaxAttempts: 1 << 20, BackoffBase: 10 * time.Millisecond, BackoffMax: time.Second,
				})
				handle(r, func(ctx context.Context, m *postrider.Message) error {
					if calls.Add(1)%3 != 0 {
						return errBoom
					}
					return j.take(ctx, m)
				})
				b.start(r)
				want := make(map[string][]string)
				for range 1500 {
					m := b.msg(fmt.Sprint("k", random.IntN(60)))
					if random.IntN(10) == 0 {
						m.DeliverAfter = time.Duration(random.IntN(100)) * time.Millisecond
						m.Key = fmt.Sprint("later", random.IntN(1_000_000)) // it has no order relative to messages published after it
					}
					want[m.Key] = append(want[m.Key], m.ID)
					b.publish(m)
					time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
				}
				pass(30 * time.Minute)
				for key, ids := range want {
					got := j.of(key)
					if tx { // a handler runs again after a transaction that was rolled back
						got = slices.Compact(got)
					}
					if !slices.Equal(got, ids) {
						t.Errorf("key %s: got %v, want %v", key, got, ids)
					}
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestHeldKeysThroughAView: the relay of a consumer sees no optional method of its store. It does not keep more held keys in memory.
func TestHeldKeysThroughAView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		const keys, limit = 20, 2
		r := b.relayOn(struct{ store.Relay }{b.store}, relay.Config{MaxHeldKeys: limit})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.Attempt == 1 && m.Key != "other" {
				return postrider.Retry(time.Minute, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		for _, key := range append(keysIn(0, keys), "other") {
			b.publish(b.msg(key))
			pass(time.Second)
		}
		if c := r.Counters(); c.HeldKeys > limit+1 || len(j.of("other")) != 1 {
			t.Errorf("%d held keys in memory, want %d at most; delivered %d messages of another key, want 1", c.HeldKeys, limit+1, len(j.of("other")))
		}
		pass(time.Hour)
		b.wantNothingLeft(r)
	})
}

// TestHeldKeysAfterAFailover: between a fetch and the look for held keys, the database fails over to a server that has not seen the
// keys held. It says that they are not; their second messages do not overtake the first.
func TestHeldKeysAfterAFailover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failOver, failedOver atomic.Bool
		b := &bundle{t: t}
		b.store = memory.New(memory.Config{Partitions: 4, Unsynced: 100, Fault: func(op string, done bool) error {
			if op == "FindHeld" && !done && failOver.CompareAndSwap(true, false) {
				failedOver.Store(b.store.CrashLosing(100) > 0)
			}
			return nil
		}})
		j := &journal{}
		r := b.relay(relay.Config{MaxHeldKeys: 1})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if !failedOver.Load() {
				return postrider.Retry(time.Hour, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		keys := keysIn(0, 8)
		first := b.msgs(keys...)
		for _, m := range first { // one after another: those that the relay works on stay in memory
			b.publish(m)
			pass(time.Second)
		}
		second := b.msgs(keys...)
		failOver.Store(true)
		b.publish(second...)
		pass(2 * time.Hour)
		if !failedOver.Load() {
			t.Fatal("the relay did not look for held keys, or nothing was lost")
		}
		for i, key := range keys {
			if got := j.of(key); len(got) == 0 || got[0] != first[i].ID || got[len(got)-1] != second[i].ID {
				t.Errorf("key %s: delivered %v, want %s before %s", key, got, first[i].ID, second[i].ID)
			}
		}
		b.wantNothingLeft(r)
	})
}
