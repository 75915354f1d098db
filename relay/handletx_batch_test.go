package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// batches records what the batches of a test do, as words: "begin m001 m002", "m001", "end".
type batches struct{ steps []string }

func (b *batches) step(words ...string) error {
	b.steps = append(b.steps, strings.Join(words, " "))
	return nil
}

// begin begins a batch, as relay.HandleTxBatch asks for.
func (b *batches) begin(_ context.Context, _ *memory.Tx, msgs []*postrider.Message) (relay.Batch, error) {
	words := []string{"begin"}
	for _, m := range msgs {
		words = append(words, m.ID)
	}
	return b, b.step(words...)
}

func (b *batches) Handle(_ context.Context, m *postrider.Message) error { return b.step(m.ID) }
func (b *batches) End(context.Context) error                            { return b.step("end") }

// alone handles a message without a batch.
func (b *batches) alone(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
	return b.step("alone", m.ID)
}

// typed returns messages of these types in one partition, with the IDs m001 and so on. Those of a type with a + are not due.
func (b *bundle) typed(types ...string) []*postrider.Message {
	keys := keysIn(1, len(types))
	msgs := b.msgs(keys...)
	for i := range msgs {
		var notDue bool
		if msgs[i].Type, notDue = strings.CutSuffix(types[i], "+"); notDue {
			msgs[i].DeliverAfter = time.Minute
		}
	}
	return msgs
}

// TestMessagesOfABatch: messages of the types of one HandleTxBatch that follow one another are a batch, which ends before anything else
// is handled.
func TestMessagesOfABatch(t *testing.T) {
	t.Parallel()
	for types, want := range map[string][]string{
		"a":           {"begin m001", "m001", "end"},
		"a b a":       {"begin m001 m002 m003", "m001", "m002", "m003", "end"},
		"a c":         {"begin m001", "m001", "end", "begin m002", "m002", "end"},
		"a b d a":     {"begin m001 m002", "m001", "m002", "end", "alone m003", "begin m004", "m004", "end"},
		"d d":         {"alone m001", "alone m002"},
		"a a+ b d+ a": {"begin m001 m003 m005", "m001", "m003", "m005", "end"},
		"a+ a d+ d c": {"begin m002", "m002", "end", "alone m004", "begin m005", "m005", "end"},
		"d a unknown": {"alone m001", "begin m002", "m002", "end", "alone m001", "begin m002", "m002", "end"}, // again, without the third
	} {
		t.Run(types, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, did := setup(t), &batches{}
				b.transact(func(tx *memory.Tx) error { return b.store.Insert(t.Context(), tx, b.typed(strings.Fields(types)...)) })
				r := b.relay(relay.Config{})
				if err := errors.Join(relay.HandleTxBatch(r, []string{"a", "b"}, did.begin), relay.HandleTxBatch(r, []string{"c"}, did.begin),
					relay.HandleTxFunc(r, "d", did.alone)); err != nil {
					t.Fatal(err)
				}
				b.start(r)
				pass(time.Second)
				if !slices.Equal(did.steps, want) {
					t.Errorf("steps are %q, want %q", did.steps, want)
				}
			})
		})
	}
}

// TestBatchFails: while m002 is in a batch, its beginning, its end or its handling fails. Only m002 has attempts, and everything else takes effect,
// also if the messages were committed late, and so can only be settled together.
func TestBatchFails(t *testing.T) {
	t.Parallel()
	for _, failing := range []string{"begin", "m002", "end"} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %t", failing, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b, did := setup(t), &failingBatches{failing: failing}
					r := b.relay(relay.Config{MaxAttempts: 3})
					err := errors.Join(relay.HandleTxBatch(r, []string{"a"}, did.begin),
						relay.HandleTxFunc(r, "t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }))
					if err != nil {
						t.Fatal(err)
					}
					b.start(r)
					b.transact(func(tx *memory.Tx) error {
						err := b.store.Insert(t.Context(), tx, b.typed("a", "a", "a", "a"))
						if late {
							b.publish(b.msg(keysIn(1, 1)[0]))
							pass(time.Second)
						}
						return err
					})
					b.store.Wake()
					pass(time.Hour)
					did.mu.Lock()
					defer did.mu.Unlock()
					slices.Sort(did.ended)
					want(t, "handled in a batch that ended", did.ended, []string{"m001", "m003", "m004"})
					if st := b.status(); st.Failed != 3 || st.Dead.N != 1 {
						t.Errorf("%d failed attempts, %d dead letters; want 3 and 1", st.Failed, st.Dead.N)
					}
					b.wantNothingLeft(r)
				})
			})
		}
	}
}

// failingBatches are batches one step of which fails while m002 is in the batch: "begin", "m002" or "end".
type failingBatches struct {
	failing string
	mu      sync.Mutex
	ended   []string
}

type failingBatch struct {
	*failingBatches
	bad     bool
	handled []string
}

func (f *failingBatches) begin(_ context.Context, _ *memory.Tx, msgs []*postrider.Message) (relay.Batch, error) {
	b := &failingBatch{failingBatches: f, bad: slices.ContainsFunc(msgs, func(m *postrider.Message) bool { return m.ID == "m002" })}
	return b, b.fail("begin")
}

func (b *failingBatch) fail(step string) error {
	if b.bad && b.failing == step {
		return errBoom
	}
	return nil
}

func (b *failingBatch) Handle(_ context.Context, m *postrider.Message) error {
	b.handled = append(b.handled, m.ID)
	return b.fail(m.ID)
}

func (b *failingBatch) End(context.Context) error {
	if err := b.fail("end"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, b.handled...)
	return nil
}

// TestBatchHandlers: the types of a batch have no other handlers.
func TestBatchHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begin := (&batches{}).begin
	typed := func(messageType string) func(r *relay.Relay) error {
		return func(r *relay.Relay) error {
			return relay.HandleTx(r, postrider.Define[int](messageType), func(context.Context, *memory.Tx, postrider.Typed[int]) error { return nil })
		}
	}
	batch := func(types ...string) func(r *relay.Relay) error {
		return func(r *relay.Relay) error { return relay.HandleTxBatch(r, types, begin) }
	}
	upcast := func(r *relay.Relay) error {
		older, newer := postrider.Define[int]("a"), postrider.Define[int]("a").WithSchemaVersion(2)
		return relay.Upcast(r, older, newer, func(n int) (int, error) { return n, nil })
	}
	for name, add := range map[string][2]func(r *relay.Relay) error{
		"an upcast after a batch": {batch("a"), upcast},
		"a batch after an upcast": {upcast, batch("a")},
		"a batch after a handler": {typed("a"), batch("b", "a")},
		"a handler after a batch": {batch("a"), typed("a")},
		"two batches":             {batch("a"), batch("a")},
		"a type twice in a batch": {batch("b"), batch("a", "a")},
	} {
		r := b.relay(relay.Config{})
		if first, second := add[0](r), add[1](r); first != nil || !errors.Is(second, relay.ErrDuplicateHandler) {
			t.Errorf("%s: errors %v and %v, want none and %v", name, first, second, relay.ErrDuplicateHandler)
		}
	}
	if err := relay.HandleTxBatch[*memory.Tx](b.relay(relay.Config{}), []string{"a"}, nil); err == nil {
		t.Error("a batch without a function is taken")
	}
}

// TestSlowBatchIsHalved: one message makes each batch that it is in take all its time. The others of its transaction wait for that seven times
// at most, and not once for each of them.
func TestSlowBatchIsHalved(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"m001", "m033", "m064"} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			var did journal
			r := b.relay(relay.Config{TxBatch: 64, AttemptTimeout: time.Second, LeaseTTL: time.Minute})
			begin := func(ctx context.Context, _ *memory.Tx, msgs []*postrider.Message) (relay.Batch, error) {
				if slices.ContainsFunc(msgs, func(m *postrider.Message) bool { return m.ID == slow }) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				return notingBatch{&did}, nil
			}
			if err := relay.HandleTxBatch(r, []string{"t"}, begin); err != nil {
				t.Fatal(err)
			}
			b.transact(func(tx *memory.Tx) error { return b.store.Insert(t.Context(), tx, b.msgs(keysIn(1, 64)...)) })
			b.start(r)
			pass(7500 * time.Millisecond)
			if n := did.len(); n != 63 {
				t.Errorf("with %s slow, %d messages are handled within seven times its time, want 63", slow, n)
			}
		})
	}
}

// notingBatch notes the messages that it handles.
type notingBatch struct{ did *journal }

func (b notingBatch) Handle(_ context.Context, m *postrider.Message) error {
	b.did.note(m)
	return nil
}

func (b notingBatch) End(context.Context) error { return nil }
