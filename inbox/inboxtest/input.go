package inboxtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// unreadableKeeps: what the broker delivers is not a message, but its key, ID, type and headers can be read.
func unreadableKeeps[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.cfg.OnDead = relay.HoldKey
		bad, next, other := w.message("a"), w.message("a"), w.message("b")
		bad.Headers, bad.Payload = map[string]string{"trace": "t", "binary": "\x00\xff"}, []byte("no message")
		w.broker.Poison(bad)
		w.publish(next, other)
		p := w.start(s)
		w.untilEffects(other.ID)
		w.until("the key is held", func() bool { h := w.held(); return len(h) == 1 && h[0].Key == "a" && h[0].NextAttempt.IsZero() })
		w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
		l := w.deadLetters("")[0]
		if m := l.Message; l.Reason != postrider.Undecodable || m.ID != bad.ID || m.Type != bad.Type || m.Key != "a" ||
			m.Headers["trace"] != "t" || m.Headers[inbox.OriginalHeader] == "" || string(m.Payload) != "no message" {
			w.t.Errorf("dead letter is %+v of %+v", l, m)
		}
		_, err := deadletter.New(w.store).EditDead(w.ctx, l.Number, store.Edit{Payload: []byte(`{}`), By: "olga", Why: "repaired"})
		w.must(err, "edit")
		n, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Relay: consumer}, "olga", 0)
		if n != 1 || err != nil {
			w.t.Fatalf("redrove %d, %v", n, err)
		}
		w.untilEffects(other.ID, bad.ID, next.ID)
		if !s.queue {
			w.want("order of the held key", w.effectsOf("a"), []string{bad.ID, next.ID})
		}
		w.untilQuiet()
		p.stop()
	})
}

// refusedInPart: the database refuses some messages when they are to be parked or dead-lettered, and takes what identifies them.
func refusedInPart[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.unstorable = func(m *postrider.Message) bool { return len(m.Payload) > 100 || len(m.Headers["large"]) > 100 }
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if strings.HasPrefix(m.Key, "bad") {
				return fmt.Errorf("%w: %s", errBoom, m.Key)
			}
			return w.effect(ctx, tx, m)
		}
		s.cfg.MaxAttempts = 2
		large, wide := w.message("bad ö"), w.message("bad b")
		large.Payload, wide.Headers = make([]byte, 200), map[string]string{"large": strings.Repeat("x", 200)}
		first := w.send("a", "")
		w.publish(large, wide)
		later := w.send("a", "b")
		p := w.start(s)
		w.untilEffects(append(first, later...)...)
		w.until("both are dead", func() bool { return len(w.deadLetters("")) == 2 })
		for _, l := range w.deadLetters("") {
			m, came := l.Message, large
			if m.ID == wide.ID {
				came = wide
			}
			if m.ID != came.ID || m.Key != came.Key || m.Type != came.Type || !m.Time.Equal(came.Time) || len(m.Payload) != 0 ||
				m.Headers["large"] != "" {
				w.t.Errorf("of %+v this is stored: %+v", came, m)
			}
			for _, text := range []string{"boom", store.ErrUnstorable.Error(), fmt.Sprintf("payload (%d bytes", len(came.Payload))} {
				if !strings.Contains(l.Cause, text) {
					w.t.Errorf("the cause of %s does not say %q: %s", m.ID, text, l.Cause)
				}
			}
		}
		w.untilQuiet()
		p.stop()
	})
}

// panicOutside: the user's function Context panics, or returns nothing.
func panicOutside[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.cfg.MaxAttempts = 3
		s.cfg.Context = func(ctx context.Context, m *postrider.Message) context.Context {
			switch m.Key {
			case "panic":
				panic("no tenant")
			case "nothing":
				return nil
			}
			return ctx
		}
		ids := w.send("a", "panic", "a", "nothing", "")
		p := w.start(s)
		w.untilEffects(ids[0], ids[2], ids[4])
		w.until("both are dead", func() bool { return len(w.deadLetters("")) == 2 })
		for _, l := range w.deadLetters("") {
			if l.Attempts != 3 || l.Reason != inbox.AttemptsExhausted {
				w.t.Errorf("dead letter is %+v", l)
			}
			if l.Message.Key == "panic" && !(strings.Contains(l.Cause, "no tenant") && strings.Contains(l.Cause, "inboxtest")) {
				w.t.Errorf("the cause of a panic is %q, without its stack", l.Cause)
			}
		}
		w.untilQuiet()
		p.stop()
	})
}

// typedNil is an error whose methods fail for a nil pointer, which is easily returned by mistake.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

func errorPanics[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.cfg.MaxAttempts = 3
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.Key == "bad" {
				var none *typedNil
				return none
			}
			return w.effect(ctx, tx, m)
		}
		ids := w.send("a", "bad", "a", "")
		p := w.start(s)
		w.untilEffects(ids[0], ids[2], ids[3])
		w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
		if l := w.deadLetters("")[0]; !strings.Contains(l.Cause, "typedNil") || l.Attempts != 3 {
			w.t.Errorf("dead letter is %+v", l)
		}
		w.untilQuiet()
		p.stop()
	})
}
