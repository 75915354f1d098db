package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// txUndoneByTheDatabase: a handler ignores an error with which its effect was undone.
func txUndoneByTheDatabase[Tx any](w *txWorld[Tx]) {
	if w.h.Undo == nil {
		return
	}
	var j journal
	w.start(txSetting[Tx]{cfg: relay.Config{TxBatch: 1}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		n := j.note(m)
		if m.Key == "parked" && n == 1 {
			return errBoom
		}
		if err := w.apply(ctx, tx, m); err != nil {
			return err
		}
		if n <= 2 {
			_ = w.h.Undo(ctx, w.store, tx)
		}
		return nil
	}})
	w.untilApplied(w.commit("parked", "fresh")...)
	w.untilAtRest()
}

func txStoreFails[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		for _, step := range txSteps {
			for _, done := range []bool{false, true} {
				before := w.effects()
				var left, failed atomic.Int64
				left.Store(2)
				s.fault = func(op string, after bool) error {
					if op == step && after == done && left.Add(-1) >= 0 {
						return errCut
					}
					return nil
				}
				s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
					if err := w.apply(ctx, tx, m); err != nil || m.Key != "b" || failed.Add(1) > 1 {
						return err
					}
					return errBoom
				}
				p := w.start(s)
				want := w.commit("a", "b", "a", "")
				w.untilApplied(append(before, want...)...)
				w.untilAtRest()
				of := w.effectsOf("a")
				w.want(fmt.Sprintf("order after %s failed, done %v", step, done), of[len(of)-2:], []string{want[0], want[2]})
				p.stop()
			}
		}
	})
}

func txFailedMessage[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		var j journal
		var healed atomic.Bool
		want := w.commit("a", "b", "", "a", "b", "a", "c")
		bad := want[3]
		s.cfg.MaxAttempts = 1000
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			j.note(m)
			if err := w.apply(ctx, tx, m); err != nil || m.ID != bad || healed.Load() {
				return err
			}
			return errBoom
		}
		p := w.start(s)
		w.until("all others", func() bool { return len(w.effects()) == 5 })
		w.wantSet("effects while one fails", w.effects(), []string{want[0], want[1], want[2], want[4], want[6]})
		w.until("it is tried again", func() bool { return j.highest() >= 3 })
		held := w.held()
		if len(held) != 1 || held[0].Key != "a" || held[0].Parked != 2 || !strings.Contains(held[0].Cause, "boom") {
			w.t.Errorf("held: %+v, want key a with two parked messages and the cause", held)
		}
		healed.Store(true)
		w.untilApplied(want...)
		w.want("order", w.effectsOf("a"), []string{want[0], want[3], want[5]})
		w.untilAtRest()
		p.stop()
	})
}

func txOutcomes[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		outcomes := map[string]func() error{
			"error":       func() error { return errBoom },
			"retry":       func() error { return postrider.Retry(time.Millisecond, errBoom) },
			"snooze":      func() error { return postrider.Snooze(time.Millisecond) },
			"unavailable": func() error { return postrider.Unavailable(errBoom) },
			"panic":       func() error { panic("no") },
			"goexit":      func() error { runtime.Goexit(); return nil },
			"dead":        func() error { return postrider.Dead("refused", errBoom) },
		}
		var mu sync.Mutex
		seen := make(map[string]bool)
		s.cfg.MaxAttempts = 3
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.apply(ctx, tx, m); err != nil {
				return err
			}
			mu.Lock()
			first := !seen[m.ID] || m.Key == "dead"
			seen[m.ID] = m.Attempt > 0
			mu.Unlock()
			if v := outcomes[m.Key]; v != nil && (first || m.Attempt == 1 && m.Key != "snooze" && m.Key != "unavailable") {
				return v()
			}
			return nil
		}
		keys := []string{"a", "error", "retry", "b", "snooze", "unavailable", "panic", "goexit", "dead", "c"}
		ids := w.commit(keys...)
		p := w.start(s)
		w.untilApplied(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.HasSuffix(id, ":dead") })...)
		w.until("dead", func() bool { return len(w.deadLetters(store.DeadOpen)) == 1 })
		w.untilAtRest()
		if l := w.deadLetters(store.DeadOpen)[0]; l.Message.Key != "dead" || l.Reason != "refused" || l.Attempts != 1 {
			w.t.Errorf("dead letter: %+v", l)
		}
		_, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Relay: consumer}, "olga", 0)
		w.must(err, "redrive")
		outcomes["dead"] = nil
		p.stop()
		w.start(s)
		w.untilApplied(ids...)
		w.untilAtRest()
	})
}

// txTakenAway: while the handler of a parked message runs, an operator moves the message to the dead letters. The
// decision waits for the handler, and comes too late.
func txTakenAway[Tx any](w *txWorld[Tx]) {
	id := w.commit("a")[0]
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := txSetting[Tx]{handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Attempt == 1 {
			return errBoom
		}
		once.Do(func() { close(began) })
		<-release
		return w.apply(ctx, tx, m)
	}}
	w.start(s)
	<-began
	decided := make(chan error, 1)
	go func() { decided <- w.decide("a", store.VerbDeadAll) }()
	close(release)
	if err := <-decided; !errors.Is(err, held.ErrRefused) && !errors.Is(err, store.ErrNotHeld) {
		w.t.Errorf("decision about a message that was processed: %v, want %v", err, held.ErrRefused)
	}
	w.untilApplied(append(w.commit("a"), id)...)
	w.untilAtRest()
	if got := w.deadLetters(store.DeadOpen); len(got) != 0 {
		w.t.Errorf("dead letters: %+v, want none", got)
	}
}
