package inboxtest

import (
	"context"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// failedAtItsTurn: a message that is none arrives while its key is held for a message that failed, at another process. What was received
// first is handled first, nothing is handled past the open dead letter, and nothing waits for a decision about a later message.
func failedAtItsTurn[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		if s.queue {
			return // the source has no order
		}
		var j journal
		inner, heal := w.failing("a", &j)
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.Headers[inbox.DeadHeader] != "" {
				w.t.Error("the handler sees why the message failed on arrival")
			}
			return inner(ctx, tx, m)
		}
		s.cfg.OnDead, s.cfg.MaxAttempts = relay.HoldKey, 10_000
		p := w.start(s)
		head := w.send("a")[0]
		w.until("the key is held", func() bool { return len(w.held()) == 1 })
		p.stop()
		bad := w.message("a")
		w.broker.Poison(bad)
		last := w.send("a")[0]
		p = w.start(s)
		w.until("all are parked", func() bool { return w.status().Parked.N == 3 })
		if n := len(w.deadLetters("")); n > 0 {
			w.t.Errorf("%d dead letters before the turn of the message", n)
		}
		heal()
		w.until("the key waits for a decision", func() bool { h := w.held(); return len(h) == 1 && h[0].NextAttempt.IsZero() })
		w.want("effects before the decision", w.effects(), []string{head})
		l := w.deadLetters("")[0]
		if m := l.Message; m.ID != bad.ID || l.Reason != postrider.Undecodable || l.Cause == "" || len(l.History) == 0 ||
			!strings.Contains(l.History[0].Cause, l.Cause) {
			w.t.Errorf("dead letter is %+v of %+v", l, m)
		}
		_, err := deadletter.New(w.store).EditDead(w.ctx, l.Number, store.Edit{Payload: []byte(`{}`), By: "olga", Why: "repaired"})
		w.must(err, "edit")
		if n, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Relay: consumer}, "olga", 0); n != 1 || err != nil {
			w.t.Fatalf("redrove %d, %v", n, err)
		}
		w.untilEffects(head, bad.ID, last)
		w.want("order of the key", w.effectsOf("a"), []string{head, bad.ID, last})
		w.untilQuiet()
		p.stop()
	})
}
