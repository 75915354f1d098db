package inboxtest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

func parkingScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"FailedAttemptLeavesNothing", failedAttemptLeavesNothing[Tx]},
		{"QueuedMessagesWaitAndOthersFlow", queuedWait[Tx]},
		{"HeldKeyIsSeenByEveryProcess", heldSeenByAll[Tx]},
		{"EveryVerdictDoesWhatItSays", everyOutcome[Tx]},
		{"DeadLetterIsExplained", deadLetterIsExplained[Tx]},
		{"DiscardedMessageIsOnRecord", discarded[Tx]},
		{"PoliciesApplyToTheirTypes", policies[Tx]},
		{"RedriveRunsThisConsumerAndIsNotSwallowed", redriveRuns[Tx]},
		{"DeadHeadHoldsItsKeyIfAsked", deadHeadHolds[Tx]},
		{"FailedMessageOfAHeldKeyWaitsForItsTurn", failedAtItsTurn[Tx]},
		{"OperatorsDecideAboutHeldKeys", operatorsDecide[Tx]},
		{"UnhandledWaitsForAProcessThatKnowsIt", unhandledWaits[Tx]},
		{"UnhandledIsPassedOverIfAsked", unhandledSkipped[Tx]},
		{"ParkedWorkIsTakenOverFromADeadProcess", parkedTakenOver[Tx]},
		{"RetryWithoutItsLeaseCommitsNothing", retryFenced[Tx]},
		{"SlowKeyIsParkedAndOthersAreRead", slowKeyParked[Tx]},
		{"BadMessagesOfASlowKeyEndAtTheirTurn", slowKeyOfBadMessages[Tx]},
	}
}

// failing returns a handler that writes its effect and then fails for messages of a key until it is healed.
func (w *world[Tx]) failing(key string, j *journal) (h inbox.Handler[Tx], heal func()) {
	var healed atomic.Bool
	return func(ctx context.Context, tx Tx, m *postrider.Message) error {
		j.note(m)
		if err := w.effect(ctx, tx, m); err != nil {
			return err
		}
		if m.Key == key && !healed.Load() {
			return errBoom
		}
		return nil
	}, func() { healed.Store(true) }
}

func failedAttemptLeavesNothing[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.effect(ctx, tx, m); err != nil {
				return err
			}
			j.note(m)
			if m.Attempt < 5 {
				return errBoom
			}
			return nil
		}
		want := w.send("a", "", "a")
		p := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		for _, id := range want {
			if j.count(id) < 5 { // more if a deadlock undid a transaction, or a lease was lost
				w.t.Errorf("%s was tried %d times, want 5", id, j.count(id))
			}
		}
		if j.highest() != 5 {
			w.t.Errorf("the last attempt had the number %d, want 5", j.max)
		}
		p.stop()
	})
}

func queuedWait[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		var heal func()
		s.handler, heal = w.failing("a", &j)
		s.cfg.MaxAttempts = 10_000
		first := w.send("a", "b", "a", "")
		p := w.start(s)
		w.until("the others", func() bool { return len(w.effects()) == 2 })
		w.until("queued messages are parked and acknowledged", func() bool { return len(w.unsettled()) == 0 })
		more := w.send("a", "c", "a")
		w.until("the others", func() bool { return len(w.effects()) == 3 })
		w.until("queued messages are parked", func() bool { return w.status().Parked.N == 4 })
		if !s.queue {
			for _, id := range []string{first[2], more[0], more[2]} {
				if j.count(id) != 0 {
					w.t.Errorf("follower %s was tried before the head had its effect", id)
				}
			}
		}
		heal()
		w.until("all effects", func() bool { return len(w.effects()) == 7 })
		if !s.queue {
			w.want("order", w.effectsOf("a"), []string{first[0], first[2], more[0], more[2]})
		}
		w.untilQuiet()
		last := w.send("a")
		w.until("the released key flows", func() bool { return len(w.effects()) == 8 })
		w.want("last effect", w.effects()[7:], last)
		p.stop()
	})
}

func heldSeenByAll[Tx any](w *world[Tx]) {
	var j journal
	h, heal := w.failing("a", &j)
	s := setting[Tx]{handler: h, cfg: inbox.ConsumerConfig{MaxAttempts: 10_000}}
	p := w.start(s)
	head := w.send("a")
	w.until("the key is held", func() bool { return len(w.held()) == 1 })
	p.stop()
	w.start(s)
	w.start(s)
	queued := w.send("a", "a", "a")
	w.until("queued messages are parked", func() bool { return w.status().Parked.N == 4 })
	heal()
	w.untilEffects(append(head, queued...)...)
	w.want("order", w.effectsOf("a"), append(head, queued...))
}

func everyOutcome[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			n := j.note(m)
			switch {
			case m.Key == "retry" && n == 1:
				return postrider.Retry(40*time.Millisecond, errBoom)
			case m.Key == "snooze" && n <= 3:
				return postrider.Snooze(20 * time.Millisecond)
			case m.Key == "away" && n == 1:
				return postrider.Unavailable(errBoom)
			case m.Key == "dead":
				return postrider.Dead("not wanted", errBoom)
			}
			if m.Key != "retry" && m.Attempt != 1 {
				w.t.Errorf("attempt %d of %s, although none counted", m.Attempt, m.ID)
			}
			return w.effect(ctx, tx, m)
		}
		s.cfg.MaxAttempts = 2
		want := w.send("retry", "snooze", "away", "dead")
		p := w.start(s)
		w.untilEffects(want[:3]...)
		w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
		if l := w.deadLetters("")[0]; l.Reason != "not wanted" || l.Attempts != 1 || l.Cause != "dead: not wanted: boom" && l.Cause != "boom" {
			w.t.Errorf("dead letter is %+v", l)
		}
		w.untilQuiet()
		p.stop()
	})
}

func deadLetterIsExplained[Tx any](w *world[Tx]) {
	m := w.message("a")
	m.CorrelationID, m.CausationID, m.Tenant, m.Headers = "corr", "cause", "acme", map[string]string{"h": "v"}
	s := setting[Tx]{cfg: inbox.ConsumerConfig{MaxAttempts: 5}, handler: func(context.Context, Tx, *postrider.Message) error {
		panic("the end of the world")
	}}
	s.source.Partitions = 1
	w.start(s)
	w.publish(m)
	w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
	l := w.deadLetters("")[0]
	if l.Relay != consumer || l.Reason != inbox.AttemptsExhausted || l.Attempts != 5 || len(l.History) != 5 ||
		!strings.Contains(l.Cause, "the end of the world") || !strings.Contains(l.Cause, "inboxtest") {
		w.t.Errorf("dead letter is %+v, want five attempts and the stack of the panic", l)
	}
	got := l.Message
	if got.ID != m.ID || got.CorrelationID != "corr" || got.CausationID != "cause" || got.Tenant != "acme" || got.Headers["h"] != "v" ||
		got.Headers[inbox.PositionHeader] != `{"Epoch":"0","Partition":"orders/0","Offset":0,"Mark":"1"}` {
		w.t.Errorf("its message is %+v", got)
	}
	w.untilQuiet()
}

func redriveRuns[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j, other journal
		var heal func()
		s.handler, heal = w.failing("a", &j)
		inner := s.handler
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.Headers[inbox.PositionHeader] != "" {
				w.t.Error("the handler sees the position header")
			}
			return inner(ctx, tx, m)
		}
		s.cfg.MaxAttempts = 4
		o := s
		o.cfg.Name = "other"
		o.handler = func(_ context.Context, _ Tx, m *postrider.Message) error { other.note(m); return nil }
		p, q := w.start(s), w.start(o)
		id := w.send("a")[0]
		for redrives := range 3 {
			w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
			l := w.deadLetters("")[0]
			if l.Redrives != redrives || l.Attempts != 4 {
				w.t.Errorf("letter is %+v, want %d redrives and 4 attempts", l, redrives)
			}
			if redrives == 2 {
				heal()
			}
			n, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Numbers: []int64{l.Number}}, "olga", 0)
			if n != 1 || err != nil {
				w.t.Fatalf("redrove %d, %v", n, err)
			}
			if _, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Numbers: []int64{l.Number}}, "otto", 0); !errors.Is(err, deadletter.ErrResolved) {
				w.t.Errorf("second redrive: %v, want ErrResolved", err)
			}
		}
		w.untilEffects(id)
		w.untilQuiet()
		w.until("the other consumer", func() bool { return other.count(id) == 1 })
		if other.count(id) != 1 {
			w.t.Errorf("the other consumer saw it %d times", other.count(id))
		}
		p.stop()
		q.stop()
	})
}

func deadHeadHolds[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		var heal func()
		s.handler, heal = w.failing("a", &j)
		bad := s.handler
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := bad(ctx, tx, m); err != nil {
				return postrider.Dead("refused", err)
			}
			return nil
		}
		s.cfg.OnDead = relay.HoldKey
		first := w.send("a")
		p := w.start(s)
		w.until("held for a decision", func() bool { h := w.held(); return len(h) == 1 && h[0].NextAttempt.IsZero() })
		queued := w.send("a", "a")
		w.until("queued messages are parked", func() bool { return w.status().Parked.N == 2 })
		heal()
		w.elapse(2 * time.Second)
		w.want("effects before the decision", w.effects(), nil)
		if n, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Relay: consumer}, "olga", 0); n != 1 || err != nil {
			w.t.Fatalf("redrove %d, %v", n, err)
		}
		all := append(first, queued...)
		w.untilEffects(all...)
		if !s.queue {
			w.want("order", w.effects(), all)
		}
		w.untilQuiet()
		p.stop()
	})
}

func operatorsDecide[Tx any](w *world[Tx]) {
	var j journal
	h, heal := w.failing("a", &j)
	w.start(setting[Tx]{handler: h, cfg: inbox.ConsumerConfig{
		MaxAttempts: 100, LocalAttempts: 1, BackoffBase: time.Hour, BackoffMax: time.Hour,
	}})
	want := w.send("a", "a", "a")
	w.until("all are parked", func() bool { return w.status().Parked.N == 3 })
	w.until("the head has settled", func() bool { h := w.held(); return len(h) == 1 })
	w.must(w.decide("a", store.VerbSkip), "skip")
	w.until("the second has failed", func() bool { return j.count(want[1]) >= 1 })
	heal()
	w.until("the others", func() bool {
		err := w.decide("a", store.VerbRetry)
		return len(w.effects()) == 2 && (err == nil || errors.Is(err, store.ErrNotHeld))
	})
	w.want("effects", w.effects(), want[1:])
	w.untilQuiet()
	if l := w.deadLetters(store.DeadDiscarded); len(l) != 1 || l[0].Message.ID != want[0] {
		w.t.Errorf("discarded: %+v, want the skipped head", l)
	}
}

func unhandledWaits[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		old := s
		old.prepare = func(c *inbox.Consumer[Tx]) { w.must(c.HandleFunc("something else", w.effect), "handle") }
		p := w.start(old)
		want := w.send("a", "a")
		w.until("held", func() bool { h := w.held(); return len(h) == 1 && h[0].Parked == 2 })
		if h := w.held()[0]; h.Reason != store.ParkUnhandled || h.Attempts != 0 || h.Cause == "" {
			w.t.Errorf("held: %+v, want for want of a handler", h)
		}
		p.stop()
		q := w.start(s)
		w.must(w.decide("a", store.VerbRetry), "retry")
		w.untilEffects(want...)
		w.untilQuiet()
		q.stop()
	})
}

func unhandledSkipped[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.cfg.Unhandled = inbox.SkipUnhandled
		other, mine := w.message("a"), w.message("a")
		other.Type = "order.shipped"
		w.publish(other, mine)
		p := w.start(s)
		w.untilEffects(mine.ID)
		w.untilQuiet()
		if st := p.Stats(); st.Skipped != 1 || st.Applied != 1 {
			w.t.Errorf("stats: %+v, want one applied and one skipped", st)
		}
		p.stop()
	})
}

// parkedTakenOver: the process that works on parked messages is killed while it does.
func parkedTakenOver[Tx any](w *world[Tx]) {
	var j journal
	var p *process[Tx]
	killed := make(chan struct{})
	p = w.build(setting[Tx]{cfg: inbox.ConsumerConfig{LocalAttempts: 1}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := w.effect(ctx, tx, m); err != nil {
			return err
		}
		if m.Attempt == 1 && j.note(m) == 1 {
			return errBoom
		}
		if m.Key == "a" {
			p.kill()
			close(killed)
		}
		return nil
	}})
	go func() { p.done <- p.Run(w.ctx) }()
	want := w.send("a", "a")
	<-killed
	w.start(setting[Tx]{})
	w.untilEffects(want...)
	w.want("order", w.effectsOf("a"), want)
	w.untilQuiet()
}
