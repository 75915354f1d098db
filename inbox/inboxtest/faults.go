package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

func faultScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"DeadlockOfBatchesGivesEachMessageATransaction", deadlockOfBatches[Tx]},
		{"DeathAtAnyPointHasOneEffect", deathAtAnyPoint[Tx]},
		{"StoreFailureAtAnyStepHasOneEffect", storeFails[Tx]},
		{"StoreFailureWhileParkingLosesNothing", parkingFails[Tx]},
		{"NothingIsAcknowledgedThatCannotBeParked", nothingAcknowledged[Tx]},
		{"LostAckIsADuplicate", lostAck[Tx]},
		{"SlowHandlerKeepsItsMessage", slowHandler[Tx]},
		{"SlowKeyGoesOnInAnotherProcess", slowKeyHandedOver[Tx]},
		{"DeathWhileASlowKeyIsParkedHasOneEffect", slowKeyDeath[Tx]},
		{"LostPartitionStopsItsWork", lostPartition[Tx]},
		{"BrokerThatIsAwayIsWaitedFor", brokerAway[Tx]},
	}
}

// steps are the operations of a transaction for a fresh message.
var steps = []string{"Begin", "Claim", "Position", "MovePosition", "Savepoint", "Commit", "handler", "Ack"}

// deathAtAnyPoint kills a process at each step, before the step or after it took effect, and lets another continue.
func deathAtAnyPoint[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		for _, step := range steps {
			for _, done := range []bool{false, true} {
				w.dieAt(s, step, done)
			}
		}
	})
}

func (w *world[Tx]) dieAt(s setting[Tx], step string, done bool) {
	w.t.Helper()
	before := w.effects()
	var p *process[Tx]
	var died atomic.Bool
	at := func(op string, after bool) error {
		if op != step || after != done || !died.CompareAndSwap(false, true) {
			return nil
		}
		p.kill()
		return errCut
	}
	mortal := s
	mortal.fault = at
	mortal.source.SettleFault = func(op string, _ *postrider.Message) (error, error) { return at(op, false), at(op, true) }
	mortal.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := at("handler", false); err != nil {
			return err
		}
		return errors.Join(w.effect(ctx, tx, m), at("handler", true))
	}
	p = w.build(mortal)
	go func() { p.done <- p.Run(w.ctx) }()
	want := w.send("a", "b", "a", "")
	w.until("death or an end", func() bool { return died.Load() || len(w.unsettled()) == 0 })
	p.kill()
	q := w.start(s)
	w.untilEffects(append(before, want...)...)
	w.untilQuiet()
	if !s.queue && !w.t.Failed() {
		of := w.effectsOf("a")
		w.want(fmt.Sprintf("order after death at %s, done %v", step, done), of[len(of)-2:], []string{want[0], want[2]})
	}
	q.stop()
	if w.t.Failed() {
		w.t.Fatalf("after death at %s, done %v", step, done)
	}
}

// storeFails makes each step fail twice, also after it took effect: the response to a commit is lost.
func storeFails[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		for _, step := range steps {
			for _, done := range []bool{false, true} {
				before := w.effects()
				var left atomic.Int64
				left.Store(2)
				s.fault = func(op string, after bool) error {
					if op == step && after == done && left.Add(-1) >= 0 {
						return errCut
					}
					return nil
				}
				p := w.start(s)
				want := w.send("a", "b", "a", "")
				w.untilEffects(append(before, want...)...)
				w.untilQuiet()
				if !s.queue {
					of := w.effectsOf("a")
					w.want(fmt.Sprintf("order after %s failed, done %v", step, done), of[len(of)-2:], []string{want[0], want[2]})
				}
				p.stop()
			}
		}
	})
}

// parkingFails makes the operations that park and retry messages fail twice.
func parkingFails[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		for _, step := range []string{"Park", "Take", "Settle", "Due", "Heartbeat", "Acquire"} {
			for _, done := range []bool{false, true} {
				before := w.effects()
				var left atomic.Int64
				left.Store(2)
				s.fault = func(op string, after bool) error {
					if op == step && after == done && left.Add(-1) >= 0 {
						return errCut
					}
					return nil
				}
				var j journal
				dead := len(w.deadLetters(""))
				s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
					n := j.note(m)
					if err := w.effect(ctx, tx, m); err != nil {
						return err
					}
					if m.Key == "dead" {
						return postrider.Dead("refused", errBoom)
					}
					if n <= 4 {
						return errBoom
					}
					return nil
				}
				p := w.start(s)
				want := w.send("a", "a", "", "dead")
				w.untilEffects(append(before, want[:3]...)...)
				w.until("dead", func() bool { return len(w.deadLetters("")) == dead+1 })
				w.untilQuiet()
				if !s.queue {
					of := w.effectsOf("a")
					w.want(fmt.Sprintf("order after %s failed, done %v", step, done), of[len(of)-2:], want[:2])
				}
				p.stop()
			}
		}
	})
}

func nothingAcknowledged[Tx any](w *world[Tx]) {
	var away atomic.Bool
	away.Store(true)
	p := w.start(setting[Tx]{
		cfg: inbox.ConsumerConfig{MaxAttempts: 1},
		fault: func(op string, _ bool) error {
			if op == "Park" && away.Load() {
				return errCut
			}
			return nil
		},
		handler: func(context.Context, Tx, *postrider.Message) error { return errBoom },
	})
	want := w.send("a")
	w.until("it failed", func() bool { return p.Stats().Failed >= 1 })
	w.elapse(500 * time.Millisecond)
	w.want("unsettled", w.unsettled(), want)
	away.Store(false)
	w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
	w.untilQuiet()
}

func lostAck[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		if s.log {
			return // a log needs no acknowledgements
		}
		var lost atomic.Int64
		s.source.AckWait = 50 * time.Millisecond
		s.source.SettleFault = func(op string, _ *postrider.Message) (error, error) {
			if op == "Ack" && lost.Add(1) <= 3 {
				return errCut, nil
			}
			return nil, nil
		}
		want := w.send("a", "b", "a", "")
		p := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		if st := p.Stats(); st.Unacknowledged != 3 || st.Duplicates < 3 {
			w.t.Errorf("stats: %+v, want 3 that the broker did not hear of, and as many duplicates", st)
		}
		w.wantSet("effects", w.effects(), want)
		p.stop()
	})
}

func slowHandler[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		var j journal
		s.source.AckWait = 300 * time.Millisecond
		s.cfg.LeaseTTL = time.Minute // both messages of a batch fit into a third of it
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			j.note(m)
			w.elapse(time.Second)
			return w.effect(ctx, tx, m)
		}
		want := w.send("a", "a")
		p := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		if w.h.Bubble && len(j.all()) != 2 {
			w.t.Errorf("handled %v, want each once: the broker was to give more time", j.all())
		}
		p.stop()
	})
}

// lostPartition: while a handler runs, its partition moves to another process.
func lostPartition[Tx any](w *world[Tx]) {
	began := make(chan struct{})
	var once sync.Once
	var s setting[Tx]
	s.source.Partitions = 1
	first := s
	first.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := w.effect(ctx, tx, m); err != nil {
			return err
		}
		once.Do(func() { close(began) })
		<-ctx.Done()
		return nil // it ignores the cancellation
	}
	p := w.start(first)
	w.until("the first is ready", func() bool { return p.Ready() == nil })
	q := w.start(s)
	w.until("the second is ready", func() bool { return q.Ready() == nil })
	want := w.send("a", "a", "b")
	<-began
	w.broker.Rebalance(consumer)
	w.until("the right is lost", func() bool { return p.Stats().Lost == 3 })
	w.untilEffects(want...)
	w.want("order", w.effectsOf("a"), want[:2])
	w.untilQuiet()
	p.stop()
	q.stop()
}

func brokerAway[Tx any](w *world[Tx]) {
	w.broker.SetUnavailable(errCut)
	p := w.start(setting[Tx]{})
	w.until("not ready", func() bool { return p.Ready() != nil })
	w.broker.SetUnavailable(nil)
	want := w.send("a")
	w.untilEffects(want...)
	w.until("ready", func() bool { return p.Ready() == nil })
	w.broker.SetUnavailable(errCut)
	w.elapse(time.Second)
	w.broker.SetUnavailable(nil)
	want = append(want, w.send("a", "b")...)
	w.untilEffects(want...)
	w.untilQuiet()
}
