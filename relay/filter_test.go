package relay_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// on returns n messages of a topic, each with its own key.
func (b *bundle) on(topic string, n int) []*postrider.Message {
	out := make([]*postrider.Message, n)
	for i := range out {
		out[i] = b.msg("")
		out[i].Key, out[i].Topic, out[i].Type = out[i].ID, topic, topic
	}
	return out
}

// filtered returns a relay for topics, with a handler for each of them that records what it takes.
func (b *bundle) filtered(j *journal, topics ...string) *relay.Relay {
	b.t.Helper()
	r := b.relay(relay.Config{Topics: topics, BackoffMax: time.Second})
	for _, topic := range topics {
		mustHandle(b.t, r, topic, j.take)
	}
	return r
}

func mustHandle(t *testing.T, r *relay.Relay, messageType string, h postrider.Handler) {
	t.Helper()
	if err := r.HandleFunc(messageType, h); err != nil {
		t.Fatal(err)
	}
}

// TestRollingDeploymentSkipsNothing: two processes of the old version share the partitions; one of the new version, which
// takes another topic, joins; then the old ones restart one after the other, as in a slow deployment.
func TestRollingDeploymentSkipsNothing(t *testing.T) {
	t.Parallel()
	for _, publishes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			var j journal
			old := func() func() { return b.start(b.filtered(&j, "a")) }
			newer := func() func() { return b.start(b.filtered(&j, "a", "b")) }
			if publishes {
				take := publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
					for _, m := range msgs {
						j.note(m)
					}
					return nil
				})
				old = func() func() { return b.start(b.relay(relay.Config{Topics: []string{"a"}, Publisher: take})) }
				newer = func() func() { return b.start(b.relay(relay.Config{Topics: []string{"b", "a"}, Publisher: take})) }
			}
			stops := []func(){old(), old()}
			pass(time.Minute)
			var sent []string
			send := func() {
				for _, topic := range []string{"a", "b"} {
					msgs := b.on(topic, 20)
					b.publish(msgs...)
					for _, m := range msgs {
						sent = append(sent, m.ID)
					}
				}
			}
			newer()
			synctest.Wait() // it has registered, and the old ones hold what they held
			send()
			pass(time.Minute)
			for i := range stops {
				send()
				stops[i]()
				send()
				stops[i] = old() // it restarts while the deployment continues
				synctest.Wait()
				send()
				pass(time.Minute)
			}
			for _, stop := range stops {
				stop()
			}
			pass(10 * time.Minute) // for what the old ones parked
			got := slices.Compact(slices.Sorted(slices.Values(j.delivered())))
			slices.Sort(sent)
			want(t, "delivered messages", got, sent)
			if st := b.status(); st.Backlog.N+st.Parked.N+st.Dead.N != 0 || !slices.Equal(st.Topics, []string{"a", "b"}) {
				t.Errorf("status at the end: %+v", st)
			}
			if all := b.unrouted(); len(all) != 0 {
				t.Errorf("unrouted: %+v", all)
			}
		})
	}
}

// TestFilterAfterACrashAndARollback: the filter of a new version that crashed counts for an hour; one that stopped in an
// orderly way no longer counts.
func TestFilterAfterACrashAndARollback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var j journal
		b.start(b.filtered(&j, "a"))
		pass(time.Minute)
		inEffect := func(when string, topics ...string) {
			t.Helper()
			pass(time.Minute)
			want(t, "topics in effect "+when, b.status().Topics, topics)
			msgs := b.on("b", 1)
			b.publish(msgs...)
			pass(time.Minute)
			if parked := b.status().Parked.N > 0; parked != (len(topics) == 2) {
				t.Errorf("a message of the new topic is parked %s: %v", when, parked)
			}
		}
		inEffect("before the new version", "a")
		owner := store.Owner{ID: "crashing", Topics: []string{"a", "b"}}
		heartbeat := func() {
			if _, err := b.store.Heartbeat(t.Context(), "r", owner, 15*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		heartbeat()
		inEffect("after a crash of the new version", "a", "b")
		pass(store.FilterKept)
		if got := b.status().Topics; !slices.Equal(got, []string{"a"}) {
			t.Errorf("topics in effect an hour after the crash: %v", got)
		}
		heartbeat()
		if err := b.store.Leave(t.Context(), "r", owner); err != nil {
			t.Fatal(err)
		}
		if got := b.status().Topics; !slices.Equal(got, []string{"a"}) {
			t.Errorf("topics in effect after the new version stopped: %v", got)
		}
	})
}

// TestUnroutedMessagesAreCounted: neither of two relays takes a topic; each skips its messages, and they are counted once.
func TestUnroutedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := &trap{op: "Settle", done: true, spring: func() error { return errBoom }}
		b := faulty(t, lost.fault)
		var j journal
		stop := b.start(b.filtered(&j, "a"))
		other := b.relay(relay.Config{Name: "other", Topics: []string{"b*"}})
		mustHandle(t, other, "b", j.take)
		stopOther := b.start(other)
		pass(time.Minute)
		b.publish(slices.Concat(b.on("a", 3), b.on("b", 3), b.on("c", 5))...)
		lost.armed.Store(true) // the settlement is repeated, and counts once
		pass(time.Minute)
		b.publish(b.on("c", 2)...)
		pass(time.Minute)
		if lost.armed.Load() {
			t.Fatal("no settlement lost its answer")
		}
		all := b.unrouted()
		if len(all) != 1 || all[0].Topic != "c" || all[0].Count != 7 || all[0].LastAt.Sub(all[0].FirstAt) < time.Minute-time.Second {
			t.Errorf("unrouted: %+v, want 7 of topic c", all)
		}
		if n := j.len(); n != 6 {
			t.Errorf("%d messages were delivered, want 6", n)
		}
		stop()
		stopOther()
		pass(store.UnroutedKept) // a relay that polls for a week takes a minute
		b.start(b.filtered(&j, "a"))
		pass(time.Hour)
		if all := b.unrouted(); len(all) != 0 {
			t.Errorf("unrouted after a week: %+v", all)
		}
	})
}

// TestUnroutedMessagesAreCountedWithTransactions: the same with HandleTx, where transactions move the cursor.
func TestUnroutedMessagesAreCountedWithTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{Topics: []string{"a"}})
		var j journal
		h := func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return j.take(ctx, m) }
		if err := relay.HandleTxFunc(r, "a", h); err != nil {
			t.Fatal(err)
		}
		b.start(r)
		pass(time.Minute)
		var msgs []*postrider.Message
		for range 50 {
			msgs = slices.Concat(msgs, b.on("a", 2), b.on("c", 3))
		}
		b.publish(msgs...)
		pass(time.Minute)
		all := b.unrouted()
		if len(all) != 1 || all[0].Topic != "c" || all[0].Count != 150 || j.len() != 100 {
			t.Errorf("unrouted: %+v, and %d delivered; want 150 of topic c and 100", all, j.len())
		}
	})
}

// TestTooManyUnroutedTopics: a settlement names a limited number of topics, and counts all messages.
func TestTooManyUnroutedTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var j journal
		b.start(b.filtered(&j, "a"))
		pass(time.Minute)
		b.transact(func(tx *memory.Tx) error {
			var msgs []*postrider.Message
			for range 2 * 4 * store.MaxUnroutedTopics {
				m := b.on("c", 1)[0]
				m.Topic = m.ID
				msgs = append(msgs, m)
			}
			return b.store.Insert(t.Context(), tx, msgs)
		})
		pass(time.Minute)
		all := b.unrouted()
		if len(all) != store.MaxUnroutedTopics || all[0].Topic != "" || all[0].Count < 4*store.MaxUnroutedTopics {
			t.Errorf("%d topics are unrouted, the first is %+v", len(all), all[:min(1, len(all))])
		}
	})
}

// TestRelayWithoutAFilterTakesEverything: nothing is unrouted while one relay takes everything.
func TestRelayWithoutAFilterTakesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var j journal
		stop := b.start(b.relay(relay.Config{Name: "all", Publisher: new(broker)}))
		stopFiltered := b.start(b.filtered(&j, "a"))
		pass(time.Minute)
		stop() // it will start again at some point
		stopFiltered()
		pass(2 * store.FilterKept)
		b.start(b.filtered(&j, "a"))
		b.publish(b.on("c", 5)...)
		pass(time.Minute)
		if all := b.unrouted(); len(all) != 0 {
			t.Errorf("unrouted: %+v", all)
		}
	})
}

func (b *bundle) unrouted() []store.UnroutedTopic {
	b.t.Helper()
	st, err := b.store.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return st.Unrouted
}

func (j *journal) delivered() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// TestUnroutedMessagesAreCountedWhenTheCursorPassesThem: and not before, or another process that reads them again would count
// them twice.
func TestUnroutedMessagesAreCountedWhenTheCursorPassesThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{Topics: []string{"a"}, ParkAfter: time.Hour, AttemptTimeout: time.Hour})
		blocked, first := make(chan struct{}), true
		mustHandle(t, r, "a", func(context.Context, *postrider.Message) error {
			if first {
				first = false
				<-blocked
			}
			return nil
		})
		b.start(r)
		pass(time.Minute)
		keys := keysIn(0, 3)
		msgs := slices.Concat(b.on("a", 1), b.on("c", 1), b.on("a", 1))
		for i, m := range msgs {
			m.Key = keys[i]
		}
		b.publish(msgs[0])
		pass(time.Second)
		b.publish(msgs[1:]...)
		pass(time.Minute)
		if all := b.unrouted(); len(all) != 0 || b.status().Delivered != 0 {
			t.Errorf("after a message that is not settled: unrouted %+v, delivered %d", all, b.status().Delivered)
		}
		close(blocked)
		pass(time.Minute)
		if all := b.unrouted(); len(all) != 1 || all[0].Count != 1 || b.status().Delivered != 2 {
			t.Errorf("unrouted: %+v, want 1; delivered %d, want 2", all, b.status().Delivered)
		}
	})
}

// TestOldProcessDoesNotHandleANewTopic: even if it has a handler for the type.
func TestOldProcessDoesNotHandleANewTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{Topics: []string{"a"}})
		var j journal
		mustHandle(t, r, "b", j.take)
		b.start(r)
		pass(time.Minute)
		owner := store.Owner{ID: "newer", Topics: []string{"a", "b"}}
		if _, err := b.store.Heartbeat(t.Context(), "r", owner, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		b.publish(b.on("b", 1)...)
		pass(time.Minute)
		if n := j.len(); n != 0 || b.status().Parked.N != 1 {
			t.Errorf("%d handled and %d parked, want 0 and 1", n, b.status().Parked.N)
		}
	})
}
