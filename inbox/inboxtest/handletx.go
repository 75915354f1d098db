package inboxtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// HandleTx tests that relays whose handlers have transactions (relay.HandleTx) keep their guarantees: every message is
// processed exactly once and in order per key, without deduplication records, whatever crashes or fails. The store that
// h.Open returns must be a store.TxSettler too.
func HandleTx[Tx any](t *testing.T, h Harness[Tx]) {
	for _, s := range append(txDeaths[Tx](), []txScenario[Tx]{
		{"EveryMessageHasItsEffectOnce", txEveryMessageOnce[Tx], true},
		{"WhatAHandlerPublishesNamesItsCause", txCausation[Tx], false},
		{"StoreFailureAtAnyStepHasOneEffect", txStoreFails[Tx], false},
		{"FailedMessageHoldsItsKeyOnly", txFailedMessage[Tx], false},
		{"EveryVerdictUndoesTheEffect", txOutcomes[Tx], true},
		{"LostLeaseUndoesTheEffect", txLostLease[Tx], true},
		{"LateMessagesShareATransaction", txLate[Tx], true},
		{"FailureAmongLateMessages", txLateFails[Tx], false},
		{"DeathAfterTheFirstOfLateMessages", txLateDies[Tx], false},
		{"LeaseThatEndsUndoesTheEffect", txLeaseEnds[Tx], false},
		{"SettlementThatComesLateChangesNothing", txGhost[Tx], false},
		{"LateMessagesThatWereParkedStayParked", txLateParked[Tx], false},
		{"CommitThatIsRefusedIsAFailedAttempt", txCommitRefused[Tx], true},
		{"NothingIsSettledWithoutItsEffect", txUndoneByTheDatabase[Tx], false},
		{"WhatAnOperatorTakesAwayHasNoEffect", txTakenAway[Tx], true},
		{"DelayedMessagesHaveTheirTime", txDelayed[Tx], false},
		{"StopWaitsForTheTransaction", txStop[Tx], true},
		{"HandlersAreOfOneKind", txOneKind[Tx], true},
	}...) {
		if h.Again && !s.again {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(s.name, "AtAny") { // each at every step
				h.notInShort(t)
			}
			h.tx(t, s.run)
		})
	}
}

// txScenario is one test.
type txScenario[Tx any] struct {
	name string
	run  func(w *txWorld[Tx])
	// again marks the tests in which a handler's transaction begins, commits, is rolled back and is cut off.
	again bool
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

// eachBatch runs a scenario for single messages and for batches: the first in w, which must be new, the other in a separate world.
func (w *txWorld[Tx]) eachBatch(f func(w *txWorld[Tx], s txSetting[Tx])) {
	for i, n := range w.sizes() {
		own := w
		if i > 0 {
			own = newTxWorld(w.t, w.h)
		}
		f(own, txSetting[Tx]{cfg: relay.Config{TxBatch: n}})
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
