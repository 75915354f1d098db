package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

var processTests = []test{
	{name: "DeadProcessIsReplacedWithinItsLease", run: deadProcessIsReplaced},
	{name: "StoppedProcessIsReplacedAtOnce", run: stoppedProcessIsReplaced},
	{name: "HolderThatWasCutOffChangesNothing", run: cutOffHolder},
	{name: "SlowWorkKeepsItsLease", run: slowWorkKeepsItsLease},
	{name: "LostAnswersOfTheDatabaseLoseNothing", run: lostAnswers},
	{name: "DatabaseThatIsAwayForAWhileLosesNothing", run: databaseAway},
	{name: "RelayRunsOnce", run: relayRunsOnce},
	{name: "HandlersPublishInTransactionsOfTheirOwn", run: handlersPublish},
	{name: "OutboxWithoutARelayKeepsEverything", run: outboxWithoutRelay},
	{name: "RelayKeepsTheLogInShape", run: relayMaintains, statements: true},
	{name: "RelayDropsWhatIsPastItsTime", run: relayDrops, exact: true},
}

func deadProcessIsReplaced(e *env) {
	g := newGate()
	defer g.lift()
	var j journal
	a := e.start(e.quick(), func(ctx context.Context, m *postrider.Message) error {
		j.note(m, "a")
		return g.pass(ctx)
	})
	e.untilStarted("r", a)
	want := e.sendKeys("order/1", "order/2", "")
	e.untilHeld(g, 3)
	b := e.start(e.quick(), j.handler("b"))
	a.kill()
	died := time.Now()
	e.untilLen(&j, 6)
	if waited := j.all()[5].at.Sub(died); waited > 2*e.lease()+e.longer(0, patience) {
		e.t.Errorf("the dead process's messages came %s after its death, its leases lived for %s", waited, e.lease())
	}
	e.untilSettled("r")
	e.untilStarted("r", b)
	for _, id := range want {
		if got := j.attempts(id); len(got) != 2 || got[1] != 1 {
			e.t.Errorf("attempts at %s: %v, want a second delivery that is a first attempt again", id, got)
		}
	}
}

func stoppedProcessIsReplaced(e *env) {
	cfg := e.quick()
	cfg.LeaseTTL = time.Hour
	var j journal
	a := e.start(cfg, j.handler("a"))
	first := e.sendKeys("order/1", "order/2", "", "")
	e.untilLen(&j, 4)
	a.stop()
	stopped := time.Now()
	second := e.sendKeys("order/1", "order/2", "", "")
	e.start(cfg, j.handler("b"))
	e.untilLen(&j, 8)
	if waited := time.Since(stopped); waited > patience {
		e.t.Errorf("the next process delivered after %s", waited)
	}
	e.wantSet("deliveries", j.ids(""), append(first, second...))
}

// cutOffHolder: a process loses the database while it handles a message, another takes over and delivers it, and then the first
// reconnects with a bad outcome.
func cutOffHolder(e *env) {
	g := newGate()
	var j journal
	cfg := e.quick()
	cfg.MaxAttempts = 1
	l := &line{database: e.database}
	e.startOver(l, cfg, func(_ context.Context, m *postrider.Message) error {
		j.note(m, "a")
		select {
		case <-g.open: // the process works normally again
			return nil
		default:
		}
		_ = g.pass(context.Background()) // ignores the end of its lease, like a paused process
		return postrider.Dead("it looked bad", nil)
	})
	want := e.sendKeys("order/1", "")
	e.untilHeld(g, 2)
	l.cut.Store(true)
	e.start(cfg, j.handler("b"))
	e.untilLen(&j, 4)
	e.untilSettled("r")
	l.cut.Store(false)
	g.lift()
	want = append(want, want...)
	want = append(want, e.sendKeys("order/1", "order/2", "order/3", "")...)
	e.untilLen(&j, len(want))
	e.untilSettled("r")
	e.wantSet("deliveries", j.ids(""), want)
	if st := e.status("r"); st.Dead.N != 0 || len(e.deadLetters(everyDead)) != 0 {
		e.t.Errorf("the stale process's verdict counted: %d dead", st.Dead.N)
	}
}

func slowWorkKeepsItsLease(e *env) {
	g := newGate()
	var j journal
	h := func(ctx context.Context, m *postrider.Message) error {
		j.note(m, "")
		return g.pass(ctx)
	}
	cfg := e.quick()
	cfg.AttemptTimeout = -1 // leases live longer on a busy machine
	a := e.start(cfg, h)
	e.untilStarted("r", a)
	e.sendKeys("order/1", "")
	e.untilHeld(g, 2)
	e.start(cfg, h)
	e.elapse(e.lease() * 3 / 2)
	g.lift()
	e.untilSettled("r")
	if j.len() != 2 {
		e.t.Errorf("%d deliveries of 2 messages whose handling outlasted a lease", j.len())
	}
}

// lostAnswers: operations fail at random, before they run or after they took effect.
func lostAnswers(e *env) {
	rng, mu := e.random(), sync.Mutex{}
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	calm := newGate()
	l := &line{database: e.database, fault: func(op string, _ bool) error {
		select {
		case <-calm.open:
			return nil
		default:
		}
		if op != "Partitions" && roll(4) == 0 {
			return errCut
		}
		return nil
	}}
	var j journal
	cfg := e.quick()
	cfg.MaxAttempts = 2
	e.startOver(l, cfg, func(_ context.Context, m *postrider.Message) error {
		if m.Headers["bad"] != "" {
			return errRefused
		}
		j.note(m, "")
		return nil
	})
	var good, bad []string
	for i := range 60 {
		m := e.message([]string{"order/1", "order/2", "order/3", ""}[roll(4)])
		if i%6 == 0 {
			m.Headers = map[string]string{"bad": "yes"}
			bad = append(bad, m.ID)
		} else {
			good = append(good, m.ID)
		}
		e.send(m)
	}
	e.elapse(time.Second)
	calm.lift()
	e.untilSettled("r")
	delivered := make(map[string]bool)
	for _, id := range j.ids("") {
		delivered[id] = true
	}
	for _, id := range good {
		if !delivered[id] {
			e.t.Errorf("message %s was lost", id)
		}
	}
	e.wantSet("dead letters", e.deadIDs(everyDead), bad)
	for _, l := range e.deadLetters(everyDead) {
		if len(l.History) > 2 {
			e.t.Errorf("history of %s, which had 2 attempts: %+v", l.Message.ID, l.History)
		}
	}
}

func databaseAway(e *env) {
	l := &line{database: e.database}
	var j journal
	e.startOver(l, e.quick(), j.handler(""))
	want := e.sendKeys("order/1", "order/2")
	e.untilLen(&j, 2)
	e.untilSettled("r")
	l.cut.Store(true)
	want = append(want, e.sendKeys("order/1", "order/2", "")...)
	e.elapse(e.lease() * 3 / 2)
	l.cut.Store(false)
	e.untilLen(&j, 5)
	e.untilSettled("r")
	e.wantSet("deliveries", j.ids(""), want)
}

func relayRunsOnce(e *env) {
	var j journal
	p := e.start(e.quick(), j.handler(""))
	e.untilStarted("r", p)
	if err := p.Run(e.ctx); !errors.Is(err, relay.ErrStarted) {
		e.t.Errorf("Run a second time: %v, want ErrStarted", err)
	}
	p.stop()
	if err := p.Run(e.ctx); !errors.Is(err, relay.ErrStarted) {
		e.t.Errorf("Run after it stopped: %v, want ErrStarted", err)
	}
	if err := p.Stop(e.ctx); err != nil {
		e.t.Errorf("Stop after it stopped: %v", err)
	}
	if err := p.HandleFunc("another", j.handler("")); !errors.Is(err, relay.ErrStarted) {
		e.t.Errorf("HandleFunc after it started: %v, want ErrStarted", err)
	}
}

// handlersPublish: while a handler runs, the relay has no open transaction or lock, so the handler can publish, and what it
// publishes is part of the same business process.
func handlersPublish(e *env) {
	var j journal
	e.start(e.quick(), func(ctx context.Context, m *postrider.Message) error {
		defer j.note(m, m.CausationID)
		if m.Headers["last"] != "" {
			return nil
		}
		answers := make(chan error, 1)
		go func() { // from another goroutine too
			_, err := e.inTx(ctx, func(_ context.Context, publish publishFunc) error {
				return publish(&postrider.Message{ID: "after-" + m.ID, Type: "order.placed", Key: m.Key, Headers: map[string]string{"last": "yes"}})
			})
			answers <- err
		}()
		return <-answers
	})
	first := e.sendKeys("order/1", "order/2", "order/1", "")
	e.untilLen(&j, 8)
	e.untilSettled("r")
	caused := make(map[string]string)
	for _, n := range j.all() {
		caused[n.id] = n.by
	}
	for _, id := range first {
		if caused["after-"+id] != id {
			e.t.Errorf("the message published by the handler of %s was caused by %q", id, caused["after-"+id])
		}
	}
}

func outboxWithoutRelay(e *env) {
	var want []string
	for range 20 {
		want = append(want, e.sendKeys("order/1", "order/2", "")...)
		e.maintain(store.Retention{})
	}
	var j journal
	e.start(e.quick(), j.handler(""))
	e.untilLen(&j, len(want))
	e.untilSettled("r")
	e.wantSet("delivered by the first relay", j.ids(""), want)
}

func relayMaintains(e *env) {
	l := &line{database: e.database}
	p := e.startOver(l, e.quick(), new(journal).handler(""))
	e.untilStarted("r", p)
	e.until("maintenance", func() bool { return l.maintained.Load() > 0 })
}

// relayDrops: delivered messages are dropped; a dead letter stays until an operator decides about it.
func relayDrops(e *env) {
	var j journal
	cfg := e.quick()
	cfg.KeepDelivered = -1
	cfg.MaxAttempts = 1
	handle := func(_ context.Context, m *postrider.Message) error {
		if m.Key == "order/bad" {
			return errRefused
		}
		j.note(m, "")
		return nil
	}
	first := e.start(cfg, handle)
	e.sendKeys("order/1", "order/2", "", "order/bad")
	e.untilLen(&j, 3)
	e.untilSettled("r")
	first.stop()
	l := &line{database: e.database}
	e.startOver(l, cfg, handle) // a relay runs maintenance soon after it starts, then at intervals
	e.until("maintenance", func() bool { return l.maintained.Load() > 0 })
	e.wantSet("left in the log", e.logged("later"), nil)
	if n := e.status("r").Dead.N; n != 1 {
		e.t.Errorf("%d dead letters, want the one that died", n)
	}
}
