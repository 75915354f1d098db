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
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
)

// HandleTx tests that relays whose handlers have transactions (relay.HandleTx) keep their guarantees: every message is
// processed exactly once and in order per key, without deduplication records, whatever crashes or fails. The store that
// h.Open returns must be a relay.TxStore too.
func HandleTx[Tx any](t *testing.T, h Harness[Tx]) {
	for _, s := range []struct {
		name string
		run  func(w *txWorld[Tx])
	}{
		{"EveryMessageHasItsEffectOnce", txEveryMessageOnce[Tx]},
		{"WhatAHandlerPublishesNamesItsCause", txCausation[Tx]},
		{"DeathAtAnyPointHasOneEffect", txDeathAtAnyPoint[Tx]},
		{"StoreFailureAtAnyStepHasOneEffect", txStoreFails[Tx]},
		{"FailedMessageHoldsItsKeyOnly", txFailedMessage[Tx]},
		{"EveryVerdictUndoesTheEffect", txVerdicts[Tx]},
		{"LostLeaseUndoesTheEffect", txLostLease[Tx]},
		{"LateMessagesShareATransaction", txLate[Tx]},
		{"FailureAmongLateMessages", txLateFails[Tx]},
		{"DeathAfterTheFirstOfLateMessages", txLateDies[Tx]},
		{"LeaseThatEndsUndoesTheEffect", txLeaseEnds[Tx]},
		{"SettlementThatComesLateChangesNothing", txGhost[Tx]},
		{"LateMessagesThatWerePutAsideStayThere", txLateAside[Tx]},
		{"CommitThatIsRefusedIsAFailedAttempt", txCommitRefused[Tx]},
		{"NothingIsSettledWithoutItsEffect", txUndoneByTheDatabase[Tx]},
		{"WhatAnOperatorTakesAwayHasNoEffect", txTakenAway[Tx]},
		{"DelayedMessagesHaveTheirTime", txDelayed[Tx]},
		{"StopWaitsForTheTransaction", txStop[Tx]},
		{"HandlersAreOfOneKind", txOneKind[Tx]},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h.tx(t, s.run)
		})
	}
}

func (h Harness[Tx]) tx(t *testing.T, f func(w *txWorld[Tx])) {
	body := func(t *testing.T) { f(newTxWorld(t, h)) }
	if h.Bubble {
		synctest.Test(t, body)
		return
	}
	body(t)
}

// sizes are the batch sizes: single messages and several; in real time only the latter.
func (w *world[Tx]) sizes() []int {
	if w.h.Bubble {
		return []int{1, 7}
	}
	return []int{7}
}

// eachBatch runs a scenario for single messages and for batches, each in a separate world.
func (w *txWorld[Tx]) eachBatch(f func(w *txWorld[Tx], s txSetting[Tx])) {
	for _, n := range w.sizes() {
		f(newTxWorld(w.t, w.h), txSetting[Tx]{cfg: relay.Config{TxBatch: n}})
		if w.t.Failed() {
			w.t.Fatalf("in transactions of %d", n)
		}
	}
}

func txEveryMessageOnce[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		want := w.commit("a", "b", "", "a", "c", "a", "", "b")
		p := w.start(s)
		w.untilApplied(want...)
		want = append(want, w.commit("a", "", "c")...)
		w.untilApplied(want...)
		w.untilAtRest()
		w.must(p.Drain(w.ctx), "drain")
		w.want("order of key a", w.effectsOf("a"), []string{"1:a", "4:a", "6:a", "9:a"})
		p.stop()
		q := w.start(s)
		want = append(want, w.commit("a")...)
		w.untilApplied(want...)
		q.stop()
	})
}

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

func txCausation[Tx any](w *txWorld[Tx]) {
	id := w.commit("a")[0]
	w.start(txSetting[Tx]{})
	w.untilApplied(id)
	for _, m := range w.committed() {
		if m.Type == effectType && (m.CausationID != id || m.CorrelationID != id) {
			w.t.Errorf("the effect names %s as its cause and %s as its process, want %s", m.CausationID, m.CorrelationID, id)
		}
	}
}

// txSteps are the operations of a relay with transactions.
var txSteps = []string{"Begin", "handler", "CommitSettled", "Fetch", "LoadParked", "Acquire", "Heartbeat", "Settle", "Due"}

func txDeathAtAnyPoint[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		for _, step := range txSteps {
			for _, done := range []bool{false, true} {
				w.txDieAt(s, step, done)
			}
		}
	})
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

func txVerdicts[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		verdicts := map[string]func() error{
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
			if v := verdicts[m.Key]; v != nil && (first || m.Attempt == 1 && m.Key != "snooze" && m.Key != "unavailable") {
				return v()
			}
			return nil
		}
		keys := []string{"a", "error", "retry", "b", "snooze", "unavailable", "panic", "goexit", "dead", "c"}
		ids := w.commit(keys...)
		p := w.start(s)
		w.untilApplied(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.HasSuffix(id, ":dead") })...)
		w.until("dead", func() bool { return len(w.letters(deadletter.Open)) == 1 })
		w.untilAtRest()
		if l := w.letters(deadletter.Open)[0]; l.Message.Key != "dead" || l.Reason != "refused" || l.Attempts != 1 {
			w.t.Errorf("dead letter: %+v", l)
		}
		_, err := w.store.RedriveDead(w.ctx, deadletter.Filter{Relay: consumer}, "olga", 0)
		w.must(err, "redrive")
		verdicts["dead"] = nil
		p.stop()
		w.start(s)
		w.untilApplied(ids...)
		w.untilAtRest()
	})
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

// txLate: messages of transactions that commit after later ones were read.
func txLate[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		p := w.start(s)
		late, commit := w.begun("a", "b", "", "a", "c", "c", "c", "c", "c", "c")
		want := w.commit("d", "e", "f", "g", "")
		w.untilApplied(want...)
		commit()
		want = append(append(want, late...), w.commit("a", "b")...)
		w.untilApplied(want...)
		w.want("order of key a", w.effectsOf("a"), []string{late[0], late[3], want[len(want)-2]})
		w.untilAtRest()
		p.stop()
		w.start(s)
		w.untilApplied(append(want, w.commit("a")...)...)
	})
}

func txLateFails[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		var bad sync.Map
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if err := w.apply(ctx, tx, m); err != nil {
				return err
			}
			if left, ok := bad.Load(m.ID); ok && left.(*atomic.Int64).Add(-1) >= 0 {
				return errBoom
			}
			return nil
		}
		p := w.start(s)
		late, commit := w.begun("a", "b", "", "a", "c", "a", "b")
		for _, i := range []int{0, 3, 4} {
			left := new(atomic.Int64)
			left.Store(3)
			bad.Store(late[i], left)
		}
		want := w.commit("d", "e", "f", "g", "")
		w.untilApplied(want...)
		commit()
		want = append(append(want, late...), w.commit("a", "c")...)
		w.untilApplied(want...)
		w.want("order of key a", w.effectsOf("a"), []string{late[0], late[3], late[5], want[len(want)-2]})
		w.want("order of key b", w.effectsOf("b"), []string{late[1], late[6]})
		w.untilAtRest()
		p.stop()
	})
}

// txLateAside: some of a group of late messages have to be parked, and the process is killed in the middle of the group.
// Its successor reads the group again.
func txLateAside[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		keys := keysOf(0, 7)
		began, release, late := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var reads atomic.Int64
		mortal := s
		mortal.fault = func(op string, done bool) error {
			if op == "Fetch" && done {
				reads.Add(1)
			}
			return nil
		}
		mortal.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			switch m.Key {
			case keys[0]:
				close(began)
				<-release
			case keys[1]:
				close(late)
				<-ctx.Done()
				return ctx.Err()
			}
			return w.apply(ctx, tx, m)
		}
		p := w.build(mortal)
		go func() { p.done <- p.Run(w.ctx) }()
		tx, err := w.store.Begin(w.ctx)
		w.must(err, "begin")
		group := []*postrider.Message{w.message(keys[1])}
		for _, key := range keys[2:] { // parked when they are read
			m := w.message(key)
			m.DeliverAfter = 1500 * time.Millisecond
			group = append(group, m)
		}
		_, err = w.outbox.Publish(w.ctx, tx, group...)
		w.must(err, "publish")
		want := w.commit(keys[0])
		<-began
		w.must(w.store.Commit(w.ctx, tx), "commit")
		w.store.Wake()
		before := reads.Load()
		w.until("the group is read", func() bool { return reads.Load() > before+1 })
		close(release)
		<-late
		p.kill()
		q := w.start(s)
		want = append(want, ids(group)...)
		w.untilApplied(want...)
		w.untilAtRest()
		w.wantSet("effects", w.effects(), want)
		q.stop()
	})
}

// keysOf returns n different keys of one of the four partitions.
func keysOf(partition, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if key := fmt.Sprint("k", i); postrider.PartitionOf(key, "", partitions) == partition {
			out = append(out, key)
		}
	}
	return out
}

// txLateDies: a process is killed as soon as the first of a group of late messages has its effect.
func txLateDies[Tx any](w *txWorld[Tx]) {
	if w.oneWriter() {
		return
	}
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		keys := keysOf(0, 4)
		want := w.commit(keys[0])
		late, commit := w.begun(keys[1], keys[2], keys[3], keys[1], keys[2], keys[3], keys[1], keys[2], keys[3])
		want = append(want, w.commit(keys[0])...)
		var p *txProcess[Tx]
		var once sync.Once
		mortal := s
		mortal.fault = func(op string, done bool) error {
			if op == "CommitSettled" && done && p.w.applied(late[0]) {
				once.Do(p.kill)
			}
			return nil
		}
		p = w.build(mortal)
		go func() { p.done <- p.Run(w.ctx) }()
		w.untilApplied(want...)
		commit()
		want = append(want, late...)
		w.until("the first of the group", func() bool { return w.applied(late[0]) })
		p.kill()
		q := w.start(s)
		w.untilApplied(want...)
		w.untilAtRest()
		w.wantSet("effects", w.effects(), want)
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
		p.line.delay = func(settle func()) bool {
			mu.Lock()
			defer mu.Unlock()
			if ghost != nil {
				return false
			}
			ghost = settle
			return true
		}
		go func() { p.done <- p.Run(w.ctx) }()
		aside := w.message(keys[0])
		aside.DeliverAfter = 50 * time.Millisecond
		w.inTx(aside)
		w.until("a settlement is on its way", func() bool { mu.Lock(); defer mu.Unlock(); return ghost != nil })
		want := append(w.commit(keys[1], keys[1], keys[1]), aside.ID)
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
		w.until("the others, and its death", func() bool { return len(w.effects()) == 4 && len(w.letters("")) == 1 })
		w.wantSet("effects", w.effects(), []string{want[0], want[2], want[3], want[4]})
		if l := w.letters("")[0]; l.Message.ID != bad || l.Reason != "attempts exhausted" || l.Attempts != 3 || !strings.Contains(l.Cause, "boom") {
			w.t.Errorf("dead letter: %+v", l)
		}
		w.untilAtRest()
		p.stop()
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
	go func() { decided <- w.decide("a", relay.VerbDeadAll) }()
	close(release)
	if err := <-decided; !errors.Is(err, held.ErrRefused) && !errors.Is(err, relay.ErrNotHeld) {
		w.t.Errorf("decision about a message that was processed: %v, want %v", err, held.ErrRefused)
	}
	w.untilApplied(append(w.commit("a"), id)...)
	w.untilAtRest()
	if got := w.letters(deadletter.Open); len(got) != 0 {
		w.t.Errorf("dead letters: %+v, want none", got)
	}
}

func txDelayed[Tx any](w *txWorld[Tx]) {
	w.eachBatch(func(w *txWorld[Tx], s txSetting[Tx]) {
		p := w.start(s)
		var want []string
		for _, key := range []string{"a", "", "a", "b"} {
			m := w.message(key)
			m.DeliverAfter = 50 * time.Millisecond
			w.inTx(m)
			want = append(want, m.ID)
		}
		want = append(want, w.commit("a", "", "b", "a")...)
		w.untilApplied(want...)
		w.untilAtRest()
		p.stop()
	})
}

func txStop[Tx any](w *txWorld[Tx]) {
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	want := w.commit("a", "b", "c")
	s := txSetting[Tx]{cfg: relay.Config{LeaseTTL: patience}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		once.Do(func() { close(began) })
		<-release
		return w.apply(ctx, tx, m)
	}}
	p := w.start(s)
	<-began
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.stop() }()
	w.until("stopping", func() bool { return p.Ready() != nil })
	close(release)
	<-stopped
	if len(w.effects()) == 0 {
		w.t.Error("what was under way has no effect")
	}
	w.start(txSetting[Tx]{})
	w.untilApplied(want...)
}

func txOneKind[Tx any](w *txWorld[Tx]) {
	p := w.build(txSetting[Tx]{})
	plain := func(context.Context, *postrider.Message) error { return nil }
	if err := p.HandleFunc("other", plain); err == nil || !strings.Contains(err.Error(), "another kind of transaction") {
		w.t.Errorf("a handler without a transaction: %v, want an error", err)
	}
	if err := relay.HandleTxFunc(p.Relay, messageType, w.apply); !errors.Is(err, relay.ErrDuplicateHandler) {
		w.t.Errorf("a second handler: %v, want ErrDuplicateHandler", err)
	}
	q, err := relay.New(w.store, relay.Config{Name: "other"})
	w.must(err, "relay")
	type foreign struct{}
	err = relay.HandleTxFunc(q, messageType, func(context.Context, foreign, *postrider.Message) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "no transactions of type") {
		w.t.Errorf("transactions of another type: %v, want an error", err)
	}
	w.must(q.HandleFunc("other", plain), "handle without a transaction")
	if err := relay.HandleTxFunc(q, messageType, w.apply); err == nil {
		w.t.Error("a handler with a transaction next to one without was taken")
	}
}
