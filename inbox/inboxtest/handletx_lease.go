package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// txSteps are the operations of a relay with transactions.
var txSteps = []string{"Begin", "handler", "CommitSettled", "Fetch", "Acquire", "Heartbeat", "Settle", "Due"}

// txDeaths kill a process at each step. Since every death waits for a lease to end, they do it side by side.
func txDeaths[Tx any]() (all []txScenario[Tx]) {
	for _, step := range txSteps {
		all = append(all, txScenario[Tx]{"DeathAtAnyPointHasOneEffect/" + step, func(w *txWorld[Tx]) {
			w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
				for _, done := range []bool{false, true} {
					w.txDieAt(s, step, done)
				}
			})
		}, slices.Contains([]string{"Begin", "handler", "CommitSettled"}, step)})
	}
	return all
}

func (w *txWorld[Tx]) txDieAt(s txSetting[Tx], step string, done bool) {
	w.t.Helper()
	before := w.effects()
	var p *txProcess[Tx]
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
	var failed atomic.Int64
	mortal.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := at("handler", false); err != nil {
			return err
		}
		if err := errors.Join(w.apply(ctx, tx, m), at("handler", true)); err != nil {
			return err
		}
		if m.Key == "b" && failed.Add(1) == 1 { // so that there is something to settle and something due
			return errBoom
		}
		return nil
	}
	p = w.build(mortal)
	go func() { p.done <- p.Run(w.ctx) }()
	want := w.commit("a", "b", "a", "", "b")
	w.until("death or an end", func() bool { return died.Load() || len(w.effects()) == len(before)+len(want) })
	p.kill()
	calm := s
	calm.cfg.LeaseTTL = w.keptLease()
	q := w.start(calm)
	w.untilApplied(append(before, want...)...)
	w.untilAtRest()
	for _, key := range []string{"a", "b"} {
		of := w.effectsOf(key)
		w.want(fmt.Sprintf("order after death at %s, done %v", step, done), of[len(of)-2:],
			slices.DeleteFunc(slices.Clone(want), func(id string) bool { return !strings.HasSuffix(id, ":"+key) }))
	}
	q.stop()
	if w.t.Failed() {
		w.t.Fatalf("after death at %s, done %v", step, done)
	}
}

// txLostLease: while a handler runs, its lease expires and another process takes over.
func txLostLease[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return // the other cannot work while the first has its transaction open
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		want := w.commit("a", "a")
		began, release := make(chan struct{}), make(chan struct{})
		var paused atomic.Bool
		var once sync.Once
		first := s
		first.fault = func(op string, _ bool) error {
			if paused.Load() && op == "Heartbeat" {
				return errCut
			}
			return nil
		}
		first.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			err := w.apply(ctx, tx, m)
			paused.Store(true)
			once.Do(func() { close(began) })
			<-release // it ignores the end of its context
			return err
		}
		p := w.build(first)
		go func() { p.done <- p.Run(w.ctx) }()
		<-began
		q := w.start(s)
		w.untilApplied(want...)
		close(release)
		_ = p.Stop(w.ctx)
		<-p.done
		w.untilAtRest()
		w.want("order", w.effectsOf("a"), want)
		q.stop()
	})
}

func (w *txWorld[Tx]) applied(id string) bool { return slices.Contains(w.effects(), id) }

// txGhost: a settlement whose response is lost takes effect much later, after later transactions.
func txGhost[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		keys := keysOf(0, 2)
		p := w.build(s)
		var ghost func()
		var mu sync.Mutex
		p.connection.delay = func(settle func()) bool {
			mu.Lock()
			defer mu.Unlock()
			if ghost != nil {
				return false
			}
			ghost = settle
			return true
		}
		go func() { p.done <- p.Run(w.ctx) }()
		delayed := w.message(keys[0])
		delayed.DeliverAfter = 50 * time.Millisecond
		w.inTx(delayed)
		w.until("a settlement is on its way", func() bool { mu.Lock(); defer mu.Unlock(); return ghost != nil })
		want := append(w.commit(keys[1], keys[1], keys[1]), delayed.ID)
		w.untilApplied(want...)
		ghost()
		p.kill()
		q := w.start(s)
		want = append(want, w.commit(keys[1])...)
		w.untilApplied(want...)
		w.untilAtRest()
		w.wantSet("effects", w.effects(), want)
		q.stop()
	})
}

// txLeaseEnds: a lease expires while a handler runs, and nobody else acquires it.
func txLeaseEnds[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return // heartbeats wait for the handler
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		want := w.commit("a", "a")
		var away atomic.Bool
		var runs atomic.Int64
		s.fault = func(op string, _ bool) error {
			if op == "Heartbeat" && away.Load() {
				return errCut
			}
			return nil
		}
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if runs.Add(1) == 1 {
				away.Store(true)
				<-ctx.Done() // it ignores the cancellation
				away.Store(false)
			}
			return w.apply(ctx, tx, m)
		}
		p := w.start(s)
		w.untilApplied(want...)
		w.untilAtRest()
		w.want("effects", w.effects(), want)
		p.stop()
	})
}

// txCommitRefused: a commit that includes one message always fails, as with a deferred constraint.
func txCommitRefused[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		want := w.commit("a", "b", "c", "a", "b")
		bad := want[1]
		var mu sync.Mutex
		broken := make(map[any]bool) // transactions
		var last any
		s.cfg.MaxAttempts, s.cfg.Concurrency = 3, 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			mu.Lock()
			defer mu.Unlock()
			last = tx
			broken[last] = broken[last] || m.ID == bad
			return w.apply(ctx, tx, m)
		}
		s.fault = func(op string, done bool) error {
			mu.Lock()
			defer mu.Unlock()
			if op == "CommitSettled" && !done && broken[last] {
				return errBoom
			}
			return nil
		}
		p := w.start(s)
		w.until("the others, and its death", func() bool { return len(w.effects()) == 4 && len(w.deadLetters("")) == 1 })
		w.wantSet("effects", w.effects(), []string{want[0], want[2], want[3], want[4]})
		if l := w.deadLetters("")[0]; l.Message.ID != bad || l.Reason != "attempts exhausted" || l.Attempts != 3 || !strings.Contains(l.Cause, "boom") {
			w.t.Errorf("dead letter: %+v", l)
		}
		w.untilAtRest()
		p.stop()
	})
}
