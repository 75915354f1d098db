package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// slowSetting is a process in whose memory a few messages of a key are much, and whose first handler of key a hangs: until its context
// ends, or, if it ignores that, until release is closed.
func (w *world[Tx]) slowSetting(s setting[Tx], release <-chan struct{}) (_ setting[Tx], hung *atomic.Bool) {
	s.cfg.MaxInFlight, s.cfg.ParkAfter, s.cfg.Concurrency, hung = 8, 100*time.Millisecond, 3, new(atomic.Bool)
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Attempt != 1 {
			w.t.Errorf("attempt %d of %s, although none has failed", m.Attempt, m.ID)
		}
		if err := w.effect(ctx, tx, m); err != nil {
			return err
		}
		if m.Key != "a" || hung.Swap(true) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-release:
		}
		if release != nil {
			<-release
			return nil // as if it had not noticed
		}
		return ctx.Err()
	}
	return s, hung
}

// sendSlow publishes more messages of key a than the memory takes, and then one of another.
func (w *world[Tx]) sendSlow() (slow, other []string) {
	w.t.Helper()
	var keys []string
	for range 20 {
		keys = append(keys, "a")
	}
	return w.send(keys...), w.send("b")
}

// slowKeyParked: a key fills the memory while the handler of its first message takes long. Others are read, and the key goes on in order.
func slowKeyParked[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		if s.queue {
			s.cfg.Concurrency = 1
		}
		s.source.Partitions = 1
		s, _ = w.slowSetting(s, nil)
		slow, other := w.sendSlow()
		p := w.start(s)
		w.untilEffects(append(slow, other...)...)
		if !s.queue {
			w.want("order", w.effectsOf("a"), slow)
		}
		w.untilQuiet()
		if st := p.Stats(); st.Parked == 0 || st.Applied != 21 || st.Failed+st.Dead != 0 {
			w.t.Errorf("stats: %+v", st)
		}
		p.stop()
	})
}

// slowKeyHandedOver: the process of the slow key dies while a handler still runs that ignores the end of its context: before the message is
// parked, and after. That handler has no effect when it returns.
func slowKeyHandedOver[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.source.Partitions = 1
		release := make(chan struct{})
		done := sync.OnceFunc(func() { close(release) })
		defer done()
		first, hung := w.slowSetting(s, release)
		slow, other := w.sendSlow()
		p := w.start(first)
		w.until("a handler hangs", hung.Load)
		w.elapse(3 * first.cfg.ParkAfter)
		p.kill()
		second, _ := w.slowSetting(s, nil)
		q := w.start(second)
		w.untilEffects(append(slow, other...)...)
		done()
		w.untilQuiet()
		w.wantSet("effects", w.effects(), append(slow, other...))
		if !s.queue {
			w.want("order", w.effectsOf("a"), slow)
		}
		q.stop()
	})
}

// slowSteps are the operations from the interruption of a slow key to the end of its messages.
var slowSteps = []string{"Begin", "Claim", "Park", "Commit", "Ack", "Due", "Take", "Settle"}

// slowKeyDeath kills a process at each step of parking a slow key and of the retries after it, before the step or after it took effect. In
// real time, each takes as long as a lease.
func slowKeyDeath[Tx any](w *world[Tx]) {
	each := func(w *world[Tx], s setting[Tx]) {
		for _, step := range slowSteps {
			for _, done := range []bool{false, true} {
				w.slowDeath(s, step, done)
			}
		}
	}
	if w.h.Bubble {
		w.inEveryMode(each)
		return
	}
	each(w, modes[Tx]()["log by position"])
}

func (w *world[Tx]) slowDeath(s setting[Tx], step string, done bool) {
	w.t.Helper()
	before, of := w.effects(), len(w.effectsOf("a"))
	s.source.Partitions = 1
	mortal, hung := w.slowSetting(s, nil)
	var p *process[Tx]
	var interrupted, died atomic.Bool
	inner := mortal.handler
	mortal.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		began := hung.Load()
		err := inner(ctx, tx, m)
		if !began && m.Key == "a" {
			interrupted.Store(true)
		}
		return err
	}
	at := func(op string, after bool) error {
		if op != step || after != done || !interrupted.Load() || !died.CompareAndSwap(false, true) {
			return nil
		}
		p.kill()
		return errCut
	}
	mortal.fault = at
	mortal.source.SettleFault = func(op string, _ *postrider.Message) (error, error) { return at(op, false), at(op, true) }
	p = w.build(mortal)
	go func() { p.done <- p.Run(w.ctx) }()
	slow, other := w.sendSlow()
	w.until("death or an end", func() bool {
		return died.Load() || interrupted.Load() && len(w.unsettled()) == 0 && len(w.effects()) == len(before)+len(slow)+len(other)
	})
	p.kill()
	q := w.start(s)
	w.untilEffects(append(append(before, slow...), other...)...)
	w.untilQuiet()
	if !s.queue && !w.t.Failed() {
		w.want(fmt.Sprintf("order after death at %s, done %v", step, done), w.effectsOf("a")[of:], slow)
	}
	q.stop()
	if w.t.Failed() {
		w.t.Fatalf("after death at %s, done %v", step, done)
	}
}

// slowKeyOfBadMessages: messages of a slow key are no messages, fail, or are given twice. Each has its end, at its turn.
func slowKeyOfBadMessages[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		if s.queue {
			return // the source has no order
		}
		s.source.Partitions = 1
		s.cfg.OnDead = relay.HoldKey
		s, _ = w.slowSetting(s, nil)
		var healed atomic.Bool
		inner, failing, poison, dead := s.handler, "", "", deadletter.New(w.store)
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.ID == failing && !healed.Load() {
				return postrider.Dead("refused", errBoom)
			}
			return inner(ctx, tx, m)
		}
		var want []string
		for i := range 20 {
			m := w.message("a")
			switch i {
			case 5:
				failing = m.ID
			case 8:
				poison = m.ID
				w.broker.Poison(m)
				continue
			}
			w.publish(m)
			if i%4 == 0 {
				w.publish(m) // again
			}
			want = append(want, m.ID)
		}
		p := w.start(s)
		w.until("the key waits for a decision", func() bool { h := w.held(); return len(h) == 1 && h[0].NextAttempt.IsZero() })
		w.want("effects before the decision", w.effectsOf("a"), want[:5])
		healed.Store(true)
		w.until("all effects", func() bool {
			_, redriven := dead.RedriveDead(w.ctx, store.DeadFilter{MessageID: failing}, "olga", 0)
			_, discarded := dead.DiscardDead(w.ctx, store.DeadFilter{MessageID: poison}, "olga", "no message", 0)
			w.must(errors.Join(redriven, discarded), "decide about the dead letters")
			return len(w.effects()) >= len(want)
		})
		w.want("order", w.effectsOf("a"), want)
		w.untilQuiet()
		p.stop()
	})
}
