package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

type data1 struct{ Total string }

type data2 struct{ Cents int }

type data3 struct{ Amount, Currency string }

// The versions of a message type: "t" in the tests.
var (
	version1 = postrider.Define[data1]("t")
	version2 = postrider.Define[data2]("t").WithSchemaVersion(2)
	version3 = postrider.Define[data3]("t").WithSchemaVersion(3)
)

// TestNewerSchemaVersionIsHeld: a process that knows version 1 holds a message of version 2 and the key, and a process of the
// newer release delivers them in order.
func TestNewerSchemaVersionIsHeld(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(r *relay.Relay, h postrider.Handler) error{
		"Handle": func(r *relay.Relay, h postrider.Handler) error {
			return relay.Handle(r, version1, func(ctx context.Context, m postrider.Typed[data1]) error { return h(ctx, m.Message) })
		},
		"HandleTx": func(r *relay.Relay, h postrider.Handler) error {
			return relay.HandleTx(r, version1, func(ctx context.Context, _ *memory.Tx, m postrider.Typed[data1]) error { return h(ctx, m.Message) })
		},
		"HandleFunc that decodes": func(r *relay.Relay, h postrider.Handler) error {
			return r.HandleFunc("t", version1.Handler(func(ctx context.Context, m postrider.Typed[data1]) error { return h(ctx, m.Message) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				newer := b.msg("k")
				newer.SchemaVersion = 2
				b.publish(newer, b.msg("k"), b.msg("other"))
				old := b.relay(relay.Config{})
				must(t, register(old, j.take))
				stop := b.start(old)
				pass(time.Hour)
				want(t, "other key", j.of("other"), []string{"m003"})
				want(t, "key of the newer version", j.of("k"), nil)
				st := b.status()
				if st.Dead.N != 0 || st.Held.N != 1 || st.Failed != 0 {
					t.Errorf("dead %d, held %d, failed %d, want one held", st.Dead.N, st.Held.N, st.Failed)
				}
				if h := b.held(t); len(h) != 1 || h[0].Reason != store.ParkUnhandled || h[0].Attempts != 0 || h[0].Cause == "" {
					t.Errorf("held keys: %+v", h)
				}
				stop()

				newest := b.relay(relay.Config{})
				handle(t, newest, j.take)
				b.start(newest)
				pass(6 * time.Minute)
				want(t, "key after the upgrade", j.of("k"), []string{"m001", "m002"})
			})
		})
	}
}

// TestNewerSchemaVersionIsDeadAfterUnhandledFor: the time limit is that of unhandled types.
func TestNewerSchemaVersionIsDeadAfterUnhandledFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		newer := b.msg("k")
		newer.SchemaVersion = 2
		b.publish(newer, b.msg("k"))
		r := b.relay(relay.Config{UnhandledFor: time.Minute})
		must(t, relay.Handle(r, version1, func(ctx context.Context, m postrider.Typed[data1]) error { return j.take(ctx, m.Message) }))
		b.start(r)
		pass(30 * time.Second)
		if st := b.status(); st.Dead.N != 0 || st.Held.N != 1 {
			t.Errorf("dead %d, held %d before the limit", st.Dead.N, st.Held.N)
		}
		pass(10 * time.Minute)
		if st := b.status(); st.Dead.N != 1 || st.Held.N != 0 {
			t.Errorf("dead %d, held %d after the limit", st.Dead.N, st.Held.N)
		}
		want(t, "key", j.of("k"), []string{"m002"})
	})
}

// TestUpcastersChain: older versions reach the handler of the newest one, with its version, and the envelope as published.
func TestUpcastersChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{})
		register := errors.Join(
			relay.Upcast(r, version1, version2, func(d data1) (out data2, err error) {
				_, err = fmt.Sscanf(d.Total, "%d", &out.Cents)
				out.Cents *= 100
				return out, err
			}),
			relay.Upcast(r, version2, version3, func(d data2) (data3, error) {
				return data3{Amount: fmt.Sprintf("%d.%02d", d.Cents/100, d.Cents%100), Currency: "EUR"}, nil
			}),
		)
		must(t, register)
		if err := relay.Upcast(r, version2, version1, func(data2) (data1, error) { return data1{}, nil }); err == nil {
			t.Error("an upcaster to an older version was accepted")
		}
		again := relay.Upcast(r, version1, version3, func(data1) (data3, error) { return data3{}, nil })
		if !errors.Is(again, postrider.ErrDuplicateDefinition) {
			t.Errorf("second upcaster of a version: %v", again)
		}
		got := make(map[string]data3)
		must(t, relay.Handle(r, version3, func(ctx context.Context, m postrider.Typed[data3]) error {
			if m.SchemaVersion != 3 || m.Attempt != 1 || postrider.MessageFromContext(ctx) != m.Message {
				t.Errorf("message %+v, in the context %+v", m.Message, postrider.MessageFromContext(ctx))
			}
			got[m.ID] = m.Data
			return nil
		}))
		one, two, three, bad := b.msg("k"), b.msg("k"), b.msg("k"), b.msg("bad")
		one.Payload = []byte(`{"Total":"12"}`)
		two.Payload, two.SchemaVersion = []byte(`{"Cents":345}`), 2
		three.Payload, three.SchemaVersion = []byte(`{"Amount":"6.00","Currency":"CHF"}`), 3
		bad.Payload = []byte(`{"Total":[]}`)
		b.publish(one, two, three, bad)
		b.start(r)
		pass(time.Second)
		for id, data := range map[string]data3{one.ID: {"12.00", "EUR"}, two.ID: {"3.45", "EUR"}, three.ID: {"6.00", "CHF"}} {
			if got[id] != data {
				t.Errorf("message %s: handled %+v, want %+v", id, got[id], data)
			}
		}
		if st := b.status(); st.Dead.N != 1 || st.Held.N != 0 {
			t.Errorf("dead %d, held %d, want the undecodable message dead", st.Dead.N, st.Held.N)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// held returns the held keys of relay r.
func (b *bundle) held(t *testing.T) (keys []store.HeldInfo) {
	t.Helper()
	for h, err := range held.New(b.store).ListHeld(t.Context(), "r") {
		must(t, err)
		keys = append(keys, h)
	}
	return keys
}
