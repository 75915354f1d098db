package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
)

func effectScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"EveryMessageHasItsEffectOnce", everyMessageOnce[Tx]},
		{"TenDeliveriesAtOnceHaveOneEffect", tenDeliveries[Tx]},
		{"ProcessInTheUsersOwnTransaction", usersTransaction[Tx]},
		{"TwoConsumersDoNotBlockEachOther", twoConsumers[Tx]},
		{"DeliveredAgainAfterTheAckIsADuplicate", deliveredAgain[Tx]},
		{"KeysRunInParallelAndEachInOrder", parallelKeys[Tx]},
		{"BadMessageOfABatchCostsOnlyItself", badMessageOfABatch[Tx]},
		{"MessagesThatFollowOneAnotherShareABatch", sharedBatches[Tx]},
		{"CommitRefusedForOneOfABatchCostsOnlyThat", commitRefused[Tx]},
		{"TransactionUndoneByTheDatabaseIsLeft", undoneByTheDatabase[Tx]},
		{"WhatAHandlerPublishesNamesItsCause", causationChains[Tx]},
		{"TenantIsInTheContext", tenantInContext[Tx]},
		{"WhatSurroundsAHandlerRunsOnBothWays", surroundings[Tx]},
		{"AttemptThatTakesTooLongFails", attemptTimeout[Tx]},
		{"PanicAndGoexitAreFailedAttempts", panicAndGoexit[Tx]},
		{"OlderVersionsAreUpcast", upcasts[Tx]},
		{"OldRecordsOfProcessAreRemoved", oldRecordsRemoved[Tx]},
		{"NewerVersionsWaitForANewerProcess", newerVersionWaits[Tx]},
		{"MemoryIsBounded", memoryIsBounded[Tx]},
		{"OutboxOfAnotherDatabaseIsASource", relayAsSource[Tx]},
	}
}

// modes are the deduplication modes, single and batched.
func modes[Tx any]() map[string]setting[Tx] {
	return map[string]setting[Tx]{
		"log by ID":            {},
		"log by ID, batched":   {cfg: inbox.ConsumerConfig{Batch: 7}},
		"log by position":      {log: true},
		"log by position, 1":   {log: true, cfg: inbox.ConsumerConfig{Batch: 1}},
		"queue by ID":          {queue: true},
		"queue by ID, batched": {queue: true, cfg: inbox.ConsumerConfig{Batch: 7}},
	}
}

// quickModes are the modes to run in real time; the others differ from them only in what every store has in common.
var quickModes = []string{"log by ID, batched", "log by position", "queue by ID"}

// inEveryMode runs a scenario in each mode: the first in w, which must be new, each other in a separate world.
func (w *world[Tx]) inEveryMode(f func(w *world[Tx], s setting[Tx])) {
	own := w
	for name, s := range modes[Tx]() {
		if !w.h.Bubble && !slices.Contains(quickModes, name) {
			continue
		}
		if own == nil {
			own = newWorld(w.t, w.h)
		}
		f(own, s)
		if w.t.Failed() {
			w.t.Fatalf("in mode %s", name)
		}
		own = nil
	}
}

func everyMessageOnce[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		want := w.send("a", "b", "", "a", "c", "a", "", "b")
		p := w.start(s)
		w.untilEffects(want...)
		more := w.send("a", "", "c")
		w.untilEffects(append(want, more...)...)
		w.untilQuiet()
		w.must(p.Drain(w.ctx), "drain")
		if !s.queue {
			w.want("order of key a", w.effectsOf("a"), []string{"1:a", "4:a", "6:a", "9:a"})
		}
		if st := p.Stats(); st.Received != 11 || st.Applied != 11 || st.Duplicates+st.Failed+st.Parked+st.Dead != 0 {
			w.t.Errorf("stats: %+v", st)
		}
		p.stop()
	})
}

// tenDeliveries: ten processes get the same message at the same time.
func tenDeliveries[Tx any](w *world[Tx]) {
	m := w.message("a")
	var effects sync.WaitGroup
	for i := range 10 {
		in, err := inbox.New[Tx](w.store)
		w.must(err, "inbox")
		effects.Go(func() {
			_, err := w.outbox.InTx(w.ctx, func(ctx context.Context, tx Tx) error {
				fresh, err := in.Process(ctx, tx, consumer, m)
				if err != nil || !fresh {
					return err
				}
				return w.effect(ctx, tx, m)
			})
			if err != nil {
				w.t.Errorf("process %d: %v", i, err)
			}
		})
	}
	effects.Wait()
	w.want("effects", w.effects(), []string{m.ID})

	// The same with consumers: the message is on the queue ten times.
	again := w.message("b")
	for range 10 {
		w.publish(again)
	}
	for range 3 {
		w.start(setting[Tx]{queue: true})
	}
	w.untilEffects(m.ID, again.ID)
	w.untilQuiet()
	w.wantSet("effects", w.effects(), []string{m.ID, again.ID})
}

func usersTransaction[Tx any](w *world[Tx]) {
	in, err := inbox.New[Tx](w.store)
	w.must(err, "inbox")
	m := w.message("a")
	take := func(commit bool) bool {
		tx, err := w.store.Begin(w.ctx)
		w.must(err, "begin")
		fresh, err := in.Process(w.ctx, tx, consumer, m)
		w.must(err, "process")
		if commit {
			w.must(w.store.Commit(w.ctx, tx), "commit")
		}
		w.must(w.store.Rollback(w.ctx, tx), "roll back")
		return fresh
	}
	if first, undone, second := take(false), take(true), take(true); !first || !undone || second {
		w.t.Errorf("fresh %v, after a rollback %v, after a commit %v; want true, true, false", first, undone, second)
	}
	if hits, misses := in.Lookups(); hits != 1 || misses != 2 {
		w.t.Errorf("%d hits and %d misses, want 1 and 2", hits, misses)
	}
	w.elapse(10 * time.Millisecond)
	if n, err := in.RemoveOlder(w.ctx, consumer, time.Millisecond); n != 1 || err != nil {
		w.t.Errorf("removed %d, %v; want 1", n, err)
	}
}

// oldRecordsRemoved: Process removes old records by itself, while a transaction is open, and not those of other consumers. After
// Close nothing is removed.
func oldRecordsRemoved[Tx any](w *world[Tx]) {
	old, later := w.message("a"), w.message("b")
	process := func(in *inbox.Inbox[Tx], consumer string, m *postrider.Message) (fresh bool) {
		tx, err := w.store.Begin(w.ctx)
		w.must(err, "begin")
		fresh, err = in.Process(w.ctx, tx, consumer, m)
		w.must(err, "process")
		w.must(w.store.Commit(w.ctx, tx), "commit")
		return fresh
	}
	for _, keep := range []time.Duration{time.Hour, -1} {
		in, err := inbox.New[Tx](w.store)
		w.must(err, "inbox")
		in.KeepRecords(keep)
		process(in, consumer, old)
		process(in, "another", old)
		w.must(in.Close(w.ctx), "close")
	}
	w.elapse(10 * time.Millisecond)
	in, err := inbox.New[Tx](w.store)
	w.must(err, "inbox")
	in.KeepRecords(time.Millisecond)
	if process(in, consumer, old) {
		w.t.Error("the record was removed before its time")
	}
	w.must(in.Close(w.ctx), "close")
	if !process(in, consumer, old) {
		w.t.Error("the old record was not removed")
	}
	if process(in, "another", old) {
		w.t.Error("the record of another consumer was removed")
	}
	process(in, consumer, later)
	w.elapse(10 * time.Millisecond)
	if process(in, consumer, later) {
		w.t.Error("a record was removed after Close")
	}
}

func twoConsumers[Tx any](w *world[Tx]) {
	release := make(chan struct{})
	w.start(setting[Tx]{cfg: inbox.ConsumerConfig{Name: "slow"}, handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		<-release
		return nil
	}})
	defer close(release)
	if w.h.Bubble {
		w.elapse(time.Second) // the slow one is in its transaction, if the database allows two
	}
	want := w.send("a")
	w.start(setting[Tx]{})
	if w.oneWriter() {
		return
	}
	w.untilEffects(want...)
}

// oneWriter says whether a second transaction must wait for the first.
func (w *world[Tx]) oneWriter() bool {
	ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer cancel()
	first, err := w.store.Begin(ctx)
	if err != nil {
		return true
	}
	defer func() { _ = w.store.Rollback(w.ctx, first) }()
	second, err := w.store.Begin(ctx)
	if err == nil {
		_ = w.store.Rollback(w.ctx, second)
	}
	return err != nil
}

func deliveredAgain[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		want := w.send("a", "", "b", "a")
		p := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		w.redeliver(s, want...)
		w.until("duplicates are acknowledged", func() bool { return p.Stats().Duplicates >= 4 && len(w.unsettled()) == 0 }) // more if the broker was impatient
		w.wantSet("effects", w.effects(), want)
		p.stop()
	})
}

func parallelKeys[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return // transactions run one after another
	}
	var mu sync.Mutex
	running, most := map[string]int{}, 0
	p := w.start(setting[Tx]{handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		mu.Lock()
		running[m.Key]++
		if running[m.Key] > 1 {
			w.t.Errorf("two messages of key %s at once", m.Key)
		}
		most = max(most, len(running))
		mu.Unlock()
		w.elapse(20 * time.Millisecond)
		mu.Lock()
		if running[m.Key]--; running[m.Key] == 0 {
			delete(running, m.Key)
		}
		mu.Unlock()
		return w.effect(ctx, tx, m)
	}})
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint("k", i%8))
	}
	want := w.send(keys...)
	w.untilEffects(want...)
	p.stop()
	for i := range 8 {
		var of []string
		for j := i; j < 40; j += 8 {
			of = append(of, want[j])
		}
		w.want("order", w.effectsOf(fmt.Sprint("k", i)), of)
	}
	if most < 4 {
		w.t.Errorf("at most %d keys ran at once", most)
	}
}

func badMessageOfABatch[Tx any](w *world[Tx]) {
	for _, log := range []bool{false, true} {
		w := newWorld(w.t, w.h)
		var j journal
		var heal sync.WaitGroup
		heal.Add(1)
		bad := ""
		s := setting[Tx]{log: log, cfg: inbox.ConsumerConfig{Batch: 20, MaxAttempts: 1000}}
		s.source.Partitions = 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			j.note(m)
			if err := w.effect(ctx, tx, m); err != nil || m.ID != bad || j.count("healed") > 0 {
				return err
			}
			return errBoom
		}
		want := w.send("a", "b", "", "a", "b", "a", "c")
		bad = want[3]
		p := w.start(s)
		w.until("all others", func() bool { return len(w.effects()) == 5 })
		w.wantSet("effects while one fails", w.effects(), []string{want[0], want[1], want[2], want[4], want[6]})
		for _, id := range want[:3] {
			if n := j.count(id); n > 4 { // with the bad one, and without; a deadlock or a lost lease repeats both
				w.t.Errorf("%s was handled %d times", id, n)
			}
		}
		j.note(&postrider.Message{ID: "healed"})
		w.untilEffects(want...)
		w.want("order", w.effectsOf("a"), []string{want[0], want[3], want[5]})
		w.untilQuiet()
		p.stop()
	}
}

// commitRefused: the commit of one message's effect fails.
func commitRefused[Tx any](w *world[Tx]) {
	for _, log := range []bool{false, true} {
		w := newWorld(w.t, w.h)
		want := w.send("a", "b", "", "c", "b")
		bad := want[3]
		var p *process[Tx]
		s := setting[Tx]{log: log, cfg: inbox.ConsumerConfig{Batch: 20, MaxAttempts: 2}}
		s.source.Partitions = 1
		s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			if m.ID == bad {
				p.connection.refuse(tx)
			}
			return w.effect(ctx, tx, m)
		}
		p = w.build(s)
		w.run(p)
		w.until("the bad one is dead", func() bool { return len(w.deadLetters("")) > 0 })
		w.untilEffects(want[0], want[1], want[2], want[4])
		w.untilQuiet()
		if l := w.deadLetters(""); len(l) != 1 || l[0].Message.ID != bad || l[0].Attempts != 2 {
			w.t.Errorf("dead letters: %+v, want that of %s with 2 attempts", l, bad)
		}
		p.stop()
	}
}

func memoryIsBounded[Tx any](w *world[Tx]) {
	release := make(chan struct{})
	s := setting[Tx]{
		cfg:    inbox.ConsumerConfig{MaxInFlight: 5},
		source: memorybroker.SubscriberConfig{Partitions: 1},
		handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
			<-release
			return w.effect(ctx, tx, m)
		},
	}
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	want := w.send(keys...)
	p := w.start(s)
	w.until("five are received", func() bool { return p.Stats().Received == 5 })
	w.elapse(100 * time.Millisecond)
	if n := p.Stats().Received; n != 5 {
		w.t.Errorf("%d messages in memory, want 5", n)
	}
	close(release)
	w.untilEffects(want...)
}
