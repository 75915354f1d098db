package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

var orderTests = []test{
	{name: "KeysAreDeliveredInOrderThroughFailures", run: orderThroughFailures},
	{name: "FailureStopsItsOwnKeyAndNothingElse", run: failureStopsItsOwnKey, statements: true},
	{name: "SlowHandlerIsNotDeliveredTwice", run: slowHandlerOnce},
	{name: "TwoProcessesDeliverEachMessageOnceAndInOrder", run: twoProcessesOnce},
	{name: "JoiningAndLeavingKeepsOrderAndLosesNothing", run: joiningAndLeaving},
	{name: "FutureTimeIsRetriedLikeAnyOther", run: futureTimeIsRetried},
	{name: "DelayedMessageComesInItsTimeAndHoldsUpNothing", run: delayedComesInTime},
	{name: "RedeliveryCarriesTheSameID", run: redeliverySameID},
	{name: "TenRelaysOneEffect", run: tenRelaysOneEffect},
	{name: "RedrivenHeadGoesBeforeItsFollowers", run: redrivenHeadFirst},
}

var errRefused = errors.New("refused")

// orderThroughFailures refuses a third of the messages a few times each. No message may be tried before all earlier ones of its
// key were accepted.
func orderThroughFailures(e *env) {
	var mu sync.Mutex
	var j journal
	refusals := make(map[string]int)
	var want [6][]string
	for n := range 120 {
		key := fmt.Sprintf("order/%d", n%6)
		id := e.sendKeys(key)[0]
		want[n%6] = append(want[n%6], id)
		if n%3 == 0 {
			refusals[id] = 1 + n%4
		}
	}
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if taken := len(j.ids(m.Key)); m.ID != want[e.index(m.Key)][taken] {
			e.t.Errorf("%s of key %s was tried when %d of it were taken", m.ID, m.Key, taken)
		}
		if refusals[m.ID] > 0 {
			refusals[m.ID]--
			return errRefused
		}
		j.note(m, "")
		return nil
	})
	e.untilLen(&j, 120)
	e.untilSettled("r")
	for i, ids := range want {
		e.wantIDs("delivered of a key", j.ids(fmt.Sprintf("order/%d", i)), ids)
	}
}

// index returns the number in a key like order/4.
func (e *env) index(key string) int {
	n := 0
	_, err := fmt.Sscanf(key, "order/%d", &n)
	e.must(err, "read key "+key)
	return n
}

func failureStopsItsOwnKey(e *env) {
	fixed := newGate()
	var tried, j journal
	cfg := e.quick()
	cfg.MaxAttempts = 1_000_000
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		tried.note(m, "")
		select {
		case <-fixed.open:
		default:
			if m.Key == "order/bad" {
				return errRefused
			}
		}
		j.note(m, "")
		return nil
	})
	bad := e.sendKeys("order/bad", "order/bad", "order/bad")
	var good []string
	for i := range 60 {
		good = append(good, e.sendKeys(fmt.Sprintf("order/%d", i%20), "")...)
	}
	e.untilLen(&j, len(good))
	e.wantSet("delivered while a key is held", j.ids(""), good)
	e.until("three attempts at the head", func() bool { return len(tried.attempts(bad[0])) >= 3 })
	if n := len(tried.attempts(bad[1])); n > 0 {
		e.t.Errorf("a follower was tried %d times while its head failed", n)
	}
	h := e.held("r")
	if len(h) != 1 || h[0].Key != "order/bad" || h[0].Cause != errRefused.Error() || h[0].Attempts < 2 {
		e.t.Errorf("held keys: %+v, want order/bad with its cause and attempts", h)
	}
	fixed.lift()
	e.untilSettled("r")
	e.wantIDs("delivered of the held key", j.ids("order/bad"), bad)
}

// slowHandlerOnce blocks a message with a key and one without for far longer than the relay's poll interval and ParkAfter.
func slowHandlerOnce(e *env) {
	g := newGate()
	var j journal
	cfg := e.quick()
	cfg.ParkAfter, cfg.LeaseTTL = 20*time.Millisecond, longTTL
	e.start(cfg, func(ctx context.Context, m *postrider.Message) error {
		j.note(m, "")
		if m.Headers["slow"] != "" {
			return g.pass(ctx)
		}
		return nil
	})
	one, two := e.message("order/1"), e.message("")
	one.Headers = map[string]string{"slow": "yes"}
	two.Headers = one.Headers
	want := e.send(one, two, e.message("order/1"), e.message(""), e.message("order/2"))
	e.untilHeld(g, 2)
	e.until("the slow ones are parked", func() bool { return e.status("r").Parked.N >= 2 })
	others := 0
	for range 40 {
		want = append(want, e.sendKeys("order/2", "")...)
		others += 2
	}
	e.untilLen(&j, others+4) // all but the message queued after the slow one
	g.lift()
	e.untilSettled("r")
	e.wantSet("deliveries", j.ids(""), want)
}

// fleet is several processes of one relay with slow processing of many keys.
type fleet struct {
	*env
	journal
	want  []string
	order map[string][]string
}

func (f *fleet) join(by string) *process {
	f.t.Helper()
	cfg := f.quick()
	cfg.Concurrency = 3
	return f.start(cfg, func(_ context.Context, m *postrider.Message) error {
		f.note(m, by)
		f.elapse(5 * time.Millisecond)
		return nil
	})
}

// sendRounds publishes, in each round, one message for each of twelve keys.
func (f *fleet) sendRounds(rounds int) {
	f.t.Helper()
	for range rounds {
		for k := range 12 {
			key := fmt.Sprintf("order/%d", k)
			id := f.sendKeys(key)[0]
			f.want, f.order[key] = append(f.want, id), append(f.order[key], id)
		}
	}
}

// checkOrder compares the order of first deliveries with the order of publishing.
func (f *fleet) checkOrder() {
	f.t.Helper()
	for key, want := range f.order {
		seen := make(map[string]bool)
		f.wantIDs("order of key "+key, slices.DeleteFunc(f.ids(key), func(id string) bool {
			defer func() { seen[id] = true }()
			return seen[id]
		}), want)
	}
}

func twoProcessesOnce(e *env) {
	f := &fleet{env: e, order: make(map[string][]string)}
	e.untilStarted("r", f.join("a"), f.join("b"))
	f.sendRounds(10)
	e.untilLen(&f.journal, len(f.want))
	e.untilSettled("r")
	e.wantSet("deliveries", f.ids(""), f.want)
	f.checkOrder()
	by := make(map[string]int)
	for _, n := range f.all() {
		by[n.by]++
	}
	if by["a"] == 0 || by["b"] == 0 {
		e.t.Errorf("deliveries by process: %v, want both to take part", by)
	}
}

// joiningAndLeaving has processes join and leave during slow processing. If a process handed over before it had begun a message,
// the next one may redeliver messages that were delivered ahead of that one.
func joiningAndLeaving(e *env) {
	f := &fleet{env: e, order: make(map[string][]string)}
	f.sendRounds(5)
	a := f.join("a")
	e.untilLen(&f.journal, 5)
	b := f.join("b")
	e.untilStarted("r", a, b)
	f.sendRounds(5)
	e.untilLen(&f.journal, len(f.want)*2/3)
	a.stop()
	e.until("everything delivered", func() bool {
		got := f.ids("")
		return !slices.ContainsFunc(f.want, func(id string) bool { return !slices.Contains(got, id) })
	})
	e.untilSettled("r")
	f.checkOrder()
	if again := f.len() - len(f.want); again > 0 {
		e.t.Logf("%d of %d messages were delivered again", again, len(f.want))
	}
}

func futureTimeIsRetried(e *env) {
	var j journal
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		if m.Attempt < 3 {
			return errRefused
		}
		return nil
	})
	m := e.message("order/1")
	m.Time = m.Time.Add(time.Hour)
	e.send(m)
	e.untilLen(&j, 3)
	e.untilSettled("r")
	if n := e.status("r").Dead.N; n > 0 || j.len() != 3 {
		e.t.Errorf("a message from the future was tried %d times and %d died; want 3 attempts and success", j.len(), n)
	}
}

func delayedComesInTime(e *env) {
	var j journal
	delay := e.longer(time.Hour, 300*time.Millisecond)
	e.start(e.spanning(delay), j.handler(""))
	m := e.message("order/1")
	m.DeliverAfter = delay
	sent := time.Now()
	e.send(m)
	now := e.sendKeys("order/1", "order/1")
	e.untilLen(&j, 2)
	if e.suite.features.Bubble {
		e.wantIDs("delivered at once", j.ids(""), now)
		e.elapse(delay)
	}
	e.untilLen(&j, 3)
	e.untilSettled("r")
	e.wantSet("delivered", j.ids(""), append(now, m.ID))
	for _, n := range j.all() {
		if waited := n.at.Sub(sent); n.id == m.ID && (waited < delay || waited > delay+e.longer(time.Second, patience)) {
			e.t.Errorf("a message to be delivered after %s was delivered after %s", delay, waited)
		}
	}
	if got := j.attempts(m.ID); len(got) != 1 || got[0] != 1 {
		e.t.Errorf("attempts at the delayed message: %v, want one", got)
	}
}

// redeliverySameID: a process dies after the delivery and before the delivery is recorded. The next process redelivers, and the
// receiver can recognize the duplicate.
func redeliverySameID(e *env) {
	var j journal
	l := &line{database: e.database, fault: func(op string, _ bool) error {
		if op == "Settle" {
			return errCut
		}
		return nil
	}}
	a := e.startOver(l, e.quick(), j.handler("a"))
	want := e.sendKeys("order/1", "order/2", "")
	e.untilLen(&j, 3)
	a.kill()
	e.start(e.quick(), j.handler("b"))
	e.untilLen(&j, 6)
	e.untilSettled("r")
	e.wantSet("deliveries", j.ids(""), append(want, want...))
	for _, id := range want {
		if got := j.attempts(id); len(got) != 2 || got[1] != 1 {
			e.t.Errorf("attempts at %s: %v; what was delivered and not recorded is no failed attempt", id, got)
		}
	}
}

// tenRelaysOneEffect: a receiver that remembers IDs processes a message once, however often it arrives and from whichever relay.
func tenRelaysOneEffect(e *env) {
	var mu sync.Mutex
	var j journal
	effects := make(map[string]int)
	seen := make(map[string]bool)
	for i := range 10 {
		cfg := e.quick()
		cfg.Name = fmt.Sprintf("r%d", i)
		e.start(cfg, func(_ context.Context, m *postrider.Message) error {
			mu.Lock()
			defer mu.Unlock()
			j.note(m, cfg.Name)
			if !seen[m.ID] {
				seen[m.ID] = true
				effects[m.ID]++
			}
			return nil
		})
	}
	id := e.sendKeys("order/1")[0]
	e.untilLen(&j, 10)
	mu.Lock()
	defer mu.Unlock()
	if len(effects) != 1 || effects[id] != 1 {
		e.t.Errorf("effects of ten deliveries: %v, want one of %s", effects, id)
	}
}

func redrivenHeadFirst(e *env) {
	fixed := newGate()
	var j journal
	cfg := e.quick()
	cfg.MaxAttempts, cfg.OnDead = 2, relay.HoldKey
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		select {
		case <-fixed.open:
			j.note(m, "")
			return nil
		default:
			return errRefused
		}
	})
	want := e.sendKeys("order/1", "order/1", "order/1")
	e.until("the head is dead and its queued messages wait", func() bool {
		h := e.held("r")
		return len(h) == 1 && h[0].NextAttempt.IsZero() && h[0].Parked == 2 && e.status("r").Dead.N == 1
	})
	fixed.lift()
	e.redrive(everyOpen, 1)
	e.untilSettled("r")
	e.wantIDs("delivered after the redrive", j.ids("order/1"), want)
}
