package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

func causationChains[Tx any](w *world[Tx]) {
	m := w.message("a")
	m.CorrelationID, m.Tenant = "process-1", "acme"
	fails := true
	w.start(setting[Tx]{cfg: inbox.ConsumerConfig{LocalAttempts: 1}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if fails = !fails; !fails {
			return errBoom // the second attempt is of the parked message
		}
		_, err := w.outbox.Publish(ctx, tx, &postrider.Message{Type: "effect"})
		return err
	}})
	w.publish(m)
	w.until("effect", func() bool { return len(w.effects()) == 1 })
	if e := w.committed()[0]; e.CausationID != m.ID || e.CorrelationID != "process-1" || e.Tenant != "acme" {
		w.t.Errorf("published message is %+v, want cause, correlation and tenant of the handled one", e)
	}
}

type tenantKey struct{}

func tenantInContext[Tx any](w *world[Tx]) {
	m := w.message("a")
	m.Tenant = "acme"
	var j journal
	s := setting[Tx]{cfg: inbox.ConsumerConfig{
		Context: func(ctx context.Context, m *postrider.Message) context.Context {
			return context.WithValue(ctx, tenantKey{}, m.Tenant)
		},
		LocalAttempts: 1,
	}}
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if got := ctx.Value(tenantKey{}); got != "acme" || postrider.MessageFromContext(ctx).Tenant != "acme" {
			w.t.Errorf("tenant in the context is %v, want acme", got)
		}
		if j.note(m) == 1 {
			return errBoom
		}
		return w.effect(ctx, tx, m)
	}
	w.start(s)
	w.publish(m)
	w.untilEffects(m.ID)
}

// traced is a propagator that reads a trace from a header.
type traced struct{}

func (traced) Inject(context.Context, map[string]string) {}

func (traced) Extract(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traced{}, headers["trace"])
}

// surroundings: interceptors, outermost first, and the trace, for an incoming message and after parking.
func surroundings[Tx any](w *world[Tx]) {
	steps := make(chan string, 10)
	layer := func(name string) relay.Interceptor {
		return func(next postrider.Handler) postrider.Handler {
			return func(ctx context.Context, m *postrider.Message) error {
				steps <- name
				return next(ctx, m)
			}
		}
	}
	s := setting[Tx]{cfg: inbox.ConsumerConfig{
		LocalAttempts: 1, Propagator: traced{}, Interceptors: []relay.Interceptor{layer("outer"), layer("inner")},
	}}
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		steps <- fmt.Sprint(ctx.Value(traced{}), m.Attempt)
		if m.Attempt == 1 {
			return errBoom
		}
		return w.effect(ctx, tx, m)
	}
	w.start(s)
	m := w.message("a")
	m.Headers = map[string]string{"trace": "t"}
	w.publish(m)
	w.untilEffects(m.ID)
	var got []string
	for range 6 {
		got = append(got, <-steps)
	}
	w.want("steps", got, []string{"outer", "inner", "t1", "outer", "inner", "t2"})
}

func attemptTimeout[Tx any](w *world[Tx]) {
	var j journal
	p := w.start(setting[Tx]{cfg: inbox.ConsumerConfig{AttemptTimeout: 30 * time.Millisecond}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if j.note(m) <= 4 { // here, and after parking
			<-ctx.Done()
			return ctx.Err()
		}
		return w.effect(ctx, tx, m)
	}})
	want := w.send("a", "a")
	w.untilEffects(want...)
	w.want("order", w.effects(), want)
	if st := p.Stats(); st.Failed == 0 || st.Lost != 0 {
		w.t.Errorf("stats: %+v, want failed attempts and none lost", st)
	}
}

func panicAndGoexit[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.effect(ctx, tx, m); err != nil {
				return err
			}
			switch j.note(m) {
			case 1:
				panic("unlucky")
			case 2:
				runtime.Goexit()
			}
			return nil
		}
		want := w.send("a", "b", "a")
		p := w.start(s)
		w.untilEffects(want...)
		w.want("order", w.effectsOf("a"), []string{want[0], want[2]})
		p.stop()
	})
}

type placed1 struct{ Total string }

type placed2 struct{ Cents int }

func upcasts[Tx any](w *world[Tx]) {
	v1, v2 := postrider.Define[placed1](messageType), postrider.Define[placed2](messageType).WithSchemaVersion(2)
	got := make(chan int, 3)
	w.start(setting[Tx]{prepare: func(c *inbox.Consumer[Tx]) {
		w.must(inbox.Upcast(c, v1, v2, func(d placed1) (out placed2, err error) {
			_, err = fmt.Sscanf(d.Total, "%d", &out.Cents)
			out.Cents *= 100
			return out, err
		}), "upcast")
		w.must(inbox.Handle(c, v2, func(ctx context.Context, tx Tx, m postrider.Typed[placed2]) error {
			got <- m.Data.Cents
			return w.effect(ctx, tx, m.Message)
		}), "handle")
	}})
	one, two, three := w.message("a"), w.message("a"), w.message("a")
	one.Payload = []byte(`{"Total":"12"}`)
	two.Payload, two.SchemaVersion = []byte(`{"Cents":34}`), 2
	three.SchemaVersion = 3
	w.publish(one, two)
	w.untilEffects(one.ID, two.ID)
	if a, b := <-got, <-got; a != 1200 || b != 34 {
		w.t.Errorf("handled %d and %d, want 1200 and 34", a, b)
	}
}

// newerVersionWaits: an older process holds a message of a version that it does not know, also if it skips unknown types, and
// a process of a newer release handles it, and those after it, in order.
func newerVersionWaits[Tx any](w *world[Tx]) {
	type v1 struct{ Total string }
	type v2 struct{ Cents int }
	type v3 struct{ Millis int }
	one := postrider.Define[v1](messageType)
	two, three := postrider.Define[v2](messageType).WithSchemaVersion(2), postrider.Define[v3](messageType).WithSchemaVersion(3)
	old := w.start(setting[Tx]{
		prepare: func(c *inbox.Consumer[Tx]) {
			w.must(inbox.Handle(c, one, func(ctx context.Context, tx Tx, m postrider.Typed[v1]) error {
				return w.effect(ctx, tx, m.Message)
			}), "handle")
		},
		cfg: inbox.ConsumerConfig{Unhandled: inbox.SkipUnhandled},
	})
	newer, after, other := w.message("a"), w.message("a"), w.message("b")
	newer.Payload, newer.SchemaVersion = []byte(`{"Millis":7000}`), 3
	w.publish(newer, after, other)
	w.untilEffects(other.ID)
	w.until("the key is held", func() bool { return len(w.held()) == 1 && w.status().Parked.N == 2 })
	if h := w.held()[0]; h.Reason != store.ParkUnhandled || h.Attempts != 0 || !strings.Contains(h.Cause, "schema version 3") {
		w.t.Errorf("held key is %+v", h)
	}
	if n := len(w.deadLetters("")); n != 0 {
		w.t.Errorf("%d dead letters, want none", n)
	}
	old.stop()

	w.start(setting[Tx]{prepare: func(c *inbox.Consumer[Tx]) {
		w.must(inbox.Upcast(c, one, two, func(v1) (v2, error) { return v2{}, nil }), "upcast")
		w.must(inbox.Upcast(c, two, three, func(v2) (v3, error) { return v3{}, nil }), "upcast")
		w.must(inbox.Handle(c, three, func(ctx context.Context, tx Tx, m postrider.Typed[v3]) error {
			if m.SchemaVersion != 3 {
				return fmt.Errorf("handled version %d", m.SchemaVersion)
			}
			return w.effect(ctx, tx, m.Message)
		}), "handle")
	}})
	w.must(w.decide("a", store.VerbRetry), "retry")
	w.untilEffects(other.ID, newer.ID, after.ID)
	w.want("order", w.effectsOf("a"), []string{newer.ID, after.ID})
}

// discarded: on arrival and after it was parked, a discarded message is on record, its effect is undone, and its key goes on.
func discarded[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		msgs := []*postrider.Message{w.message("a"), w.message("a"), w.message("a"), w.message("")}
		s.cfg.OnDead = relay.HoldKey
		s.cfg.LocalAttempts = 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.effect(ctx, tx, m); err != nil {
				return err
			}
			switch m.ID {
			case msgs[0].ID, msgs[3].ID:
				return postrider.Discard("obsolete", errBoom)
			case msgs[1].ID:
				if m.Attempt == 1 {
					return errBoom
				}
				return postrider.Discard("obsolete", nil)
			}
			return nil
		}
		w.publish(msgs...)
		p := w.start(s)
		w.untilEffects(msgs[2].ID)
		w.until("all are on record", func() bool { return len(w.deadLetters(store.DeadDiscarded)) == 3 })
		for _, l := range w.deadLetters(store.DeadDiscarded) {
			if l.Reason != "obsolete" || l.ResolvedBy != consumer || l.Attempts != len(l.History) && l.Message.ID != msgs[1].ID {
				w.t.Errorf("discarded: %+v", l)
			}
		}
		w.untilQuiet()
		if n := len(w.deadLetters("")); n != 0 {
			w.t.Errorf("%d open dead letters, want none", n)
		}
		p.stop()
	})
}

// policies: a policy's number of attempts, wait and ignored errors apply to its types, on arrival and to parked messages, and
// handlers are told the number.
func policies[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		few, ignored, plain := w.message("a"), w.message("b"), w.message("c")
		few.Type, ignored.Type = "invoice.sent", "order.viewed"
		s.cfg.MaxAttempts = 4
		s.cfg.Policies = []relay.Policy{
			{Types: []string{"invoice.*"}, MaxAttempts: 2, Wait: relay.Fixed(time.Millisecond)},
			{Types: []string{ignored.Type}, Discard: func(err error) bool { return errors.Is(err, errIgnored) }},
		}
		limits := map[string]int{few.Type: 2, ignored.Type: 4, plain.Type: 4}
		s.prepare = func(c *inbox.Consumer[Tx]) {
			for _, messageType := range []string{few.Type, ignored.Type, plain.Type} {
				w.must(c.HandleFunc(messageType, func(ctx context.Context, _ Tx, m *postrider.Message) error {
					if n := postrider.MaxAttemptsFromContext(ctx); n != limits[m.Type] {
						w.t.Errorf("%s: told of %d attempts, want %d", m.Type, n, limits[m.Type])
					}
					if m.Type == ignored.Type && m.Attempt == 2 {
						return errIgnored
					}
					return errBoom
				}), "handle")
			}
		}
		w.publish(few, ignored, plain)
		p := w.start(s)
		w.until("all have ended", func() bool { return len(w.deadLetters(store.DeadAny)) == 3 })
		attempts := map[string]int{few.ID: 2, ignored.ID: 2, plain.ID: 4}
		for _, l := range w.deadLetters(store.DeadAny) {
			if l.Attempts != attempts[l.Message.ID] || (l.State == store.DeadDiscarded) != (l.Message.ID == ignored.ID) {
				w.t.Errorf("dead letter %+v, want %d attempts", l, attempts[l.Message.ID])
			}
		}
		w.untilQuiet()
		p.stop()
	})
}

var errIgnored = errors.New("the order was never viewed")
