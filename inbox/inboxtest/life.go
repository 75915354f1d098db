package inboxtest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

func versionScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"OlderVersionIsSkipped", olderVersionSkipped[Tx]},
		{"GapIsWaitedFor", gapWaits[Tx]},
		{"DisorderFromTheBeginningIsPutRight", disorderPutRight[Tx]},
		{"GapThatIsNotFilledIsDead", gapDies[Tx]},
		{"GapFailsIfAsked", gapFails[Tx]},
	}
}

// versioned publishes a message with an aggregate version.
func (w *world[Tx]) versioned(key string, version int64) string {
	w.t.Helper()
	m := w.message(key)
	m.AggregateVersion = version
	w.publish(m)
	return m.ID
}

func guarded[Tx any](wait time.Duration) setting[Tx] {
	return setting[Tx]{cfg: inbox.ConsumerConfig{Versions: &inbox.VersionGuard{WaitFor: wait}, MaxAttempts: 3}}
}

func olderVersionSkipped[Tx any](w *world[Tx]) {
	p := w.start(guarded[Tx](0))
	want := []string{w.versioned("a", 5)}
	w.untilEffects(want...)
	for _, v := range []int64{5, 4, 1} {
		w.versioned("a", v)
	}
	want = append(want, w.versioned("a", 6), w.versioned("b", 1), w.send("a")[0])
	w.untilEffects(want...)
	w.until("skipped", func() bool { return p.Stats().Skipped == 3 })
	w.untilQuiet()
}

func gapWaits[Tx any](w *world[Tx]) {
	w.start(guarded[Tx](time.Minute))
	first := w.versioned("a", 1)
	w.untilEffects(first)
	fourth, third := w.versioned("a", 4), w.versioned("a", 3)
	w.until("both wait", func() bool { return w.status().Parked.N == 2 })
	w.elapse(300 * time.Millisecond)
	w.want("effects with a gap", w.effects(), []string{first})
	second := w.versioned("a", 2)
	w.until("the missing one goes ahead", func() bool { return slices.Contains(w.effects(), second) })
	other := w.versioned("b", 1)
	w.until("others flow", func() bool { return slices.Contains(w.effects(), other) })
	w.until("the gap is closed", func() bool { return len(w.effects()) == 5 })
	w.want("order", w.effectsOf("a"), []string{first, second, third, fourth})
	w.untilQuiet()
}

func disorderPutRight[Tx any](w *world[Tx]) {
	s := guarded[Tx](time.Minute)
	s.cfg.Versions.FromOne, s.queue = true, true
	w.start(s)
	third, second := w.versioned("a", 3), w.versioned("a", 2)
	w.until("both wait", func() bool { return w.status().Parked.N == 2 })
	first := w.versioned("a", 1)
	w.until("all effects", func() bool { return len(w.effects()) == 3 })
	w.want("order", w.effects(), []string{first, second, third})
	w.untilQuiet()
}

func gapDies[Tx any](w *world[Tx]) {
	w.start(guarded[Tx](time.Second))
	first := w.versioned("a", 1)
	w.untilEffects(first)
	third := w.versioned("a", 3)
	w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
	if l := w.deadLetters("")[0]; l.Message.ID != third || l.Reason != inbox.VersionGap {
		w.t.Errorf("dead letter is %+v", l)
	}
	w.untilQuiet()
}

func gapFails[Tx any](w *world[Tx]) {
	w.start(guarded[Tx](-1))
	first := w.versioned("a", 1)
	w.untilEffects(first)
	w.versioned("a", 3)
	w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
	if l := w.deadLetters("")[0]; l.Reason != inbox.AttemptsExhausted || l.Attempts != 3 {
		w.t.Errorf("dead letter is %+v", l)
	}
}

func lifeScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"StopWaitsAndGivesBackTheRest", stopGivesBack[Tx]},
		{"StopCutsShortWhatDoesNotEnd", stopCutsShort[Tx]},
		{"ConsumerRunsOnce", runsOnce[Tx]},
		{"HandlersAreChosenBeforeTheStart", handlersBeforeStart[Tx]},
		{"FaultyConfigurationIsRefused", faultyConfig[Tx]},
		{"OldClaimsAreRemoved", oldClaimsRemoved[Tx]},
		{"ConsumersCannotHaveARelaysName", relaysName[Tx]},
		{"RelaysCannotHaveAConsumersName", consumersName[Tx]},
		{"ConsumerEndsIfARelayTakesItsName", nameTakenMeanwhile[Tx]},
		{"ConsumersCannotReadByARelayOfTheirName", ownNameAsSource[Tx]},
		{"ConsumersNeedAHandler", handlerNeeded[Tx]},
		{"SeveralProcessesShareTheWork", sharedWork[Tx]},
	}
}

func stopGivesBack[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		began, release := make(chan struct{}, 10), make(chan struct{})
		slow := s
		slow.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
			began <- struct{}{}
			<-release
			return w.effect(ctx, tx, m)
		}
		want := w.send("a", "a", "a")
		p := w.start(slow)
		<-began
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(w.ctx) }()
		stopped := make(chan struct{})
		go func() { defer close(stopped); p.stop() }()
		w.until("stopping", func() bool { return p.Ready() != nil })
		close(release)
		<-stopped
		if err := <-drained; err != nil && !errors.Is(err, inbox.ErrStopped) {
			w.t.Errorf("drain: %v, want nil or ErrStopped", err)
		}
		if n := len(w.effects()); n == 0 {
			w.t.Error("what was under way has no effect")
		}
		q := w.start(s)
		w.untilEffects(want...)
		w.untilQuiet()
		q.stop()
	})
}

func stopCutsShort[Tx any](w *world[Tx]) {
	began := make(chan struct{})
	p := w.build(setting[Tx]{handler: func(ctx context.Context, tx Tx, m *postrider.Message) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}})
	go func() { p.done <- p.Run(w.ctx) }()
	want := w.send("a")
	<-began
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Errorf("stop: %v, want that its time was over", err)
	}
	if err := <-p.done; err == nil {
		w.t.Error("run does not say that it was cut short")
	}
	if st := p.Stats(); st.Failed != 0 {
		w.t.Errorf("a stop counts as %d failed attempts", st.Failed)
	}
	w.start(setting[Tx]{})
	w.untilEffects(want...)
}

func runsOnce[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{})
	w.until("ready", func() bool { return p.Ready() == nil })
	if err := p.Run(w.ctx); !errors.Is(err, inbox.ErrStarted) {
		w.t.Errorf("second run: %v, want ErrStarted", err)
	}
	p.stop()
	q := w.build(setting[Tx]{})
	w.must(q.Stop(w.ctx), "stop before the start")
	w.must(q.Run(w.ctx), "run after a stop")
}

func handlersBeforeStart[Tx any](w *world[Tx]) {
	p := w.build(setting[Tx]{})
	if err := p.HandleFunc(messageType, w.effect); !errors.Is(err, inbox.ErrDuplicateHandler) {
		w.t.Errorf("second handler: %v, want ErrDuplicateHandler", err)
	}
	def := postrider.Define[placed1](messageType)
	h := func(context.Context, Tx, postrider.Typed[placed1]) error { return nil }
	w.must(inbox.Handle(p.Consumer, def, h), "handle a version")
	if err := inbox.Handle(p.Consumer, def, h); !errors.Is(err, postrider.ErrDuplicateDefinition) {
		w.t.Errorf("second handler of a version: %v, want ErrDuplicateDefinition", err)
	}
	back := func(placed1) (placed1, error) { return placed1{}, nil }
	if err := inbox.Upcast(p.Consumer, def.WithSchemaVersion(3), def.WithSchemaVersion(2), back); err == nil {
		w.t.Error("an upcaster leads to an older version")
	}
	go func() { p.done <- p.Run(w.ctx) }()
	w.t.Cleanup(p.stop)
	w.until("ready", func() bool { return p.Ready() == nil })
	if err := p.HandleFunc("late", w.effect); !errors.Is(err, inbox.ErrStarted) {
		w.t.Errorf("late handler: %v, want ErrStarted", err)
	}
}

func faultyConfig[Tx any](w *world[Tx]) {
	in, err := inbox.New[Tx](w.store)
	w.must(err, "inbox")
	queue, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Group: "g", Topics: []string{topic}})
	w.must(err, "subscriber")
	_, err = inbox.NewConsumer(in, queue, inbox.ConsumerConfig{Batch: -1, KeepIDs: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		w.t.Errorf("error is %v, want name, KeepIDs and Batch", err)
	}
	if _, err = inbox.NewConsumer(in, queue, inbox.ConsumerConfig{Name: "c", RequireOrder: true}); err == nil {
		w.t.Error("a consumer that requires order took a queue")
	}
	if _, err = inbox.New[Tx](nil); err == nil {
		w.t.Error("an inbox without a store")
	}
}

func oldClaimsRemoved[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{cfg: inbox.ConsumerConfig{KeepIDs: 500 * time.Millisecond}})
	want := w.send("a", "b", "c")
	w.untilEffects(want...)
	w.untilQuiet()
	if !w.h.Bubble {
		return // the consumer removes old IDs only once a minute
	}
	w.elapse(2 * time.Minute)
	p.stop()
	n, err := p.in.RemoveOlder(w.ctx, consumer, 0)
	w.must(err, "remove")
	if n != 0 {
		w.t.Errorf("%d claims were still there", n)
	}
}

func relaysName[Tx any](w *world[Tx]) {
	leases, err := w.store.Acquire(w.ctx, consumer, relayOwner, store.AcquireRequest{
		Claims: []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}}, TTL: time.Minute})
	if err != nil || len(leases) != 1 {
		w.t.Fatalf("acquire: %v, %v", leases, err)
	}
	p := w.build(setting[Tx]{})
	if err := p.Run(w.ctx); !errors.Is(err, store.ErrNameOfRelay) {
		w.t.Errorf("run: %v, want ErrNameOfRelay", err)
	}
}

// nameTakenMeanwhile: an operator removes a consumer whose process is cut off, and a relay begins under its name. When the process
// reaches the database again, it ends.
func nameTakenMeanwhile[Tx any](w *world[Tx]) {
	if !w.h.Bubble {
		return // a lease has to end
	}
	var cutOff atomic.Bool
	p := w.build(setting[Tx]{fault: func(op string, _ bool) error {
		if op == "Heartbeat" && cutOff.Load() {
			return errCut
		}
		return nil
	}})
	ended := make(chan error, 1)
	go func() { ended <- w.runBriefly(p.Run) }()
	w.untilEffects(w.send("a")...)
	cutOff.Store(true)
	w.elapse(2 * lease)
	_, err := held.New(w.store).RemoveRelay(w.ctx, consumer, "op", "the name is for a relay", false)
	w.must(err, "remove")
	_, err = w.store.Acquire(w.ctx, consumer, relayOwner, store.AcquireRequest{
		Kind: store.KindRelay, Claims: []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}}, TTL: time.Minute})
	w.must(err, "acquire for a relay")
	cutOff.Store(false)
	if err := <-ended; !errors.Is(err, store.ErrNameOfRelay) {
		w.t.Errorf("run: %v, want ErrNameOfRelay", err)
	}
}

// consumersName: relays are started under the name of a consumer that has parked messages, while a process of it runs and
// while none does.
func consumersName[Tx any](w *world[Tx]) {
	var j journal
	h, heal := w.failing("a", &j)
	s := setting[Tx]{handler: h, cfg: inbox.ConsumerConfig{MaxAttempts: 10_000}}
	want := w.send("a", "b", "a")
	p := w.start(s)
	w.until("the key is parked, and the other not", func() bool { return w.status().Parked.N == 2 && len(w.effects()) == 1 })
	take := func(_ context.Context, m *postrider.Message) error {
		w.t.Errorf("a relay has taken %s", m.ID)
		return nil
	}
	refused := func(when string) {
		handed, err := relay.New(w.store, relayNamed(consumer))
		w.must(err, "relay")
		w.must(handed.HandleFunc(messageType, take), "handle")
		transacted, err := relay.New(w.store, relayNamed(consumer))
		w.must(err, "relay")
		w.must(relay.HandleTxFunc(transacted, messageType, func(ctx context.Context, _ Tx, m *postrider.Message) error {
			return take(ctx, m)
		}), "handle with a transaction")
		for _, r := range []*relay.Relay{handed, transacted} {
			if err := w.runBriefly(r.Run); !errors.Is(err, store.ErrNameOfConsumer) {
				w.t.Errorf("a relay %s: %v, want ErrNameTaken", when, err)
			}
		}
	}
	refused("next to the consumer")
	p.stop()
	refused("in place of the consumer")
	w.until("nobody holds a partition", func() bool { // a slow relay keeps its leases until they expire
		return !slices.ContainsFunc(w.status().Partitions, func(p store.PartitionStatus) bool { return p.Owner != "" })
	})
	heal()
	w.start(s)
	w.untilEffects(want...)
	w.want("order", w.effectsOf("a"), []string{want[0], want[2]})
	w.untilQuiet()
}

func relayNamed(name string) relay.Config {
	return relay.Config{Name: name, LeaseTTL: lease, Logger: slog.New(slog.DiscardHandler)}
}

// runBriefly runs something that should soon end by itself.
func (w *world[Tx]) runBriefly(run func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	return run(ctx)
}

func ownNameAsSource[Tx any](w *world[Tx]) {
	reads, err := inbox.FromRelay(w.store, relayNamed(consumer))
	w.must(err, "read the outbox")
	if err := w.runBriefly(w.build(setting[Tx]{reads: reads}).Run); !errors.Is(err, store.ErrNameOfConsumer) {
		w.t.Errorf("run: %v, want ErrNameTaken", err)
	}
}

func handlerNeeded[Tx any](w *world[Tx]) {
	p := w.build(setting[Tx]{prepare: func(*inbox.Consumer[Tx]) {}})
	if err := w.runBriefly(p.Run); !errors.Is(err, inbox.ErrNoHandler) {
		w.t.Errorf("run without a handler: %v, want ErrNoHandler", err)
	}
	w.must(p.HandleFunc(messageType, w.effect), "handle")
	go func() { p.done <- p.Run(w.ctx) }()
	w.t.Cleanup(p.stop)
	w.untilEffects(w.send("a")...)
}

func sharedWork[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		s.source.Partitions = 4
		if s.queue {
			s.source.Partitions = 0
		}
		var all []*process[Tx]
		for range 3 {
			all = append(all, w.start(s))
		}
		var keys []string
		for i := range 60 {
			keys = append(keys, string(rune('a'+i%7)))
		}
		want := w.send(keys[:30]...)
		all[0].kill()
		want = append(want, w.send(keys[30:]...)...)
		w.untilEffects(want...)
		w.untilQuiet()
		if !s.queue {
			for key := range 7 {
				var of []string
				for i := key; i < 60; i += 7 {
					of = append(of, want[i])
				}
				w.want("order", w.effectsOf(string(rune('a'+key))), of)
			}
		}
		all[1].stop()
		all[2].stop()
	})
}
