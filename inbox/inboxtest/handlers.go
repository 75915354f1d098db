package inboxtest

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
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
	w.publish(one, two, three)
	w.untilEffects(one.ID, two.ID)
	if a, b := <-got, <-got; a != 1200 || b != 34 {
		w.t.Errorf("handled %d and %d, want 1200 and 34", a, b)
	}
	w.until("unknown version is dead", func() bool { return len(w.deadLetters("")) == 1 })
	if l := w.deadLetters("")[0]; l.Reason != inbox.UnknownSchemaVersion || l.Message.ID != three.ID {
		w.t.Errorf("dead letter is %+v", l)
	}
}
