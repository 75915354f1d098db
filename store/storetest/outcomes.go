package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

var outcomeTests = []test{
	{name: "EveryVerdictDoesWhatItSays", run: everyOutcome},
	{name: "WhatIsPutOffSaysWhy", run: putOffSaysWhy},
	{name: "AttemptsAreCountedAcrossProcesses", run: attemptsAcrossProcesses},
	{name: "PanicIsAFailedAttempt", run: panicIsFailedAttempt},
	{name: "ErrorWithoutATextIsExplained", run: errorWithoutText},
	{name: "StopIsNoFailedAttempt", run: stopIsNoFailedAttempt},
	{name: "UnknownTypeWaitsForAProcessThatKnowsIt", run: unknownTypeWaits, statements: true},
	{name: "UndecodableMessageDiesAtOnceAndItsKeyGoesOn", run: undecodableDies},
	{name: "DeadLetterIsSentBackByAnOperator", run: deadLetterIsSentBack},
	{name: "DowntimeUsesUpNoAttempts", run: downtimeUsesNoAttempts},
	{name: "ErrorOfAnInterceptorIsAFailedAttempt", run: interceptorError},
	{name: "SecondHandlerForATypeIsRefused", run: secondHandlerRefused},
	{name: "OperationsThatFailSaySo", run: operationsSaySo},
}

// everyOutcome returns each outcome once, on the first attempt, and success on the second.
func everyOutcome(e *env) {
	var j journal
	outcomes := map[string]error{
		"nil": nil, "error": errRefused, "wrapped": fmt.Errorf("while shipping: %w", postrider.Snooze(10*time.Millisecond)),
		"retry": postrider.Retry(20*time.Millisecond, errRefused), "snooze": postrider.Snooze(20 * time.Millisecond),
		"unavailable": postrider.Unavailable(errRefused), "dead": postrider.Dead("no such order", errRefused),
		"dead, wrapped": fmt.Errorf("while shipping: %w", postrider.Dead("no such address", nil)),
	}
	want := map[string][]int{
		"nil": {1}, "error": {1, 2}, "wrapped": {1, 1}, "retry": {1, 2}, "snooze": {1, 1}, "unavailable": {1, 1},
		"dead": {1}, "dead, wrapped": {1},
	}
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error {
		first := len(j.attempts(m.ID)) == 0
		j.note(m, "")
		if first {
			return outcomes[m.Subject]
		}
		return nil
	})
	sent := make(map[string]string)
	for name := range outcomes {
		for _, key := range []string{"", "order/" + name} {
			m := e.message(key)
			m.Subject = name
			sent[m.ID] = name
			e.send(m)
		}
	}
	e.untilLen(&j, 26)
	e.untilSettled("r")
	for id, name := range sent {
		if got := j.attempts(id); fmt.Sprint(got) != fmt.Sprint(want[name]) {
			e.t.Errorf("after the verdict %q, a message was delivered with the attempts %v, want %v", name, got, want[name])
		}
	}
	reasons := make(map[string]int)
	for _, l := range e.deadLetters(everyDead) {
		reasons[l.Reason]++
		if l.Attempts != 1 || l.Reason == "no such order" && !strings.Contains(l.Cause, errRefused.Error()) {
			e.t.Errorf("dead letter: %+v", l)
		}
	}
	if len(reasons) != 2 || reasons["no such order"] != 2 || reasons["no such address"] != 2 {
		e.t.Errorf("reasons of the dead letters: %v", reasons)
	}
}

// putOffSaysWhy: a message that waits without having failed shows what it waits for, even after it was postponed several times.
func putOffSaysWhy(e *env) {
	var j journal
	outcomes := map[string]error{
		"order/1": fmt.Errorf("the payment is pending: %w", postrider.Snooze(10*time.Millisecond)),
		"order/2": postrider.Unavailable(errors.New("the bank is closed")),
		"order/3": postrider.Snooze(10 * time.Millisecond),
	}
	cfg := e.quick()
	cfg.UnavailableWait = 10 * time.Millisecond
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		return outcomes[m.Key]
	})
	e.sendKeys("order/1", "order/2", "order/3")
	for key, want := range map[string]string{
		"order/1": "the payment is pending: snoozed for 10ms", "order/2": "the bank is closed", "order/3": "snoozed for 10ms",
	} {
		e.until(key+" was put off a few times", func() bool { return len(j.ids(key)) > 3 })
		h, parked, err := held.New(e).ShowHeld(e.ctx, "r", key, 10)
		e.must(err, "show held")
		if h.Reason != store.ParkSnoozed || h.Cause != want || h.Attempts != 0 {
			e.t.Errorf("key that was put off: %+v, want the cause %q", h, want)
		}
		if len(parked) != 1 || len(parked[0].History) != 1 || parked[0].History[0].Cause != want || parked[0].History[0].Attempt != 0 {
			e.t.Errorf("message that was put off: %+v, want %q once in its history", parked, want)
		}
	}
}

// attemptsAcrossProcesses makes each attempt in another process: the limit applies to all of them together.
func attemptsAcrossProcesses(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts = 4
	cfg.BackoffBase, cfg.BackoffMax = time.Minute, time.Minute
	var j journal
	failing := func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		return fmt.Errorf("failure %d", m.Attempt)
	}
	id := e.sendKeys("order/1")[0]
	for n := 1; n <= 4; n++ {
		p := e.start(cfg, failing)
		e.untilLen(&j, n)
		e.until("the outcome is recorded", func() bool { return e.status("r").Failed == int64(n) })
		p.stop()
		if n < 4 {
			e.must(e.retry("r", "order/1"), "retry")
		}
	}
	if got := j.attempts(id); fmt.Sprint(got) != "[1 2 3 4]" {
		e.t.Errorf("attempts %v, want 1 to 4", got)
	}
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 || deadLetters[0].Attempts != 4 || len(deadLetters[0].History) != 4 || deadLetters[0].Cause != "failure 4" {
		e.t.Errorf("dead letters: %+v, want one with four attempts in its history", deadLetters)
	}
}

func stopIsNoFailedAttempt(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts = 1
	g := newGate()
	defer g.lift()
	var j journal
	p := e.start(cfg, func(ctx context.Context, m *postrider.Message) error {
		j.note(m, "a")
		return g.pass(ctx)
	})
	want := e.sendKeys("order/1", "order/1", "")
	e.untilHeld(g, 2)
	p.quit()
	e.start(cfg, j.handler("b"))
	e.untilLen(&j, 5)
	e.untilSettled("r")
	for _, id := range want {
		if got := j.attempts(id); got[len(got)-1] != 1 {
			e.t.Errorf("attempts at %s: %v; a stop counts for nothing", id, got)
		}
	}
	if n := len(e.deadLetters(everyDead)); n > 0 {
		e.t.Errorf("%d messages died of a stop", n)
	}
}

// unknownTypeWaits: in a rolling deployment, the old release does not know a new type and must not dead-letter its messages.
func unknownTypeWaits(e *env) {
	var j journal
	old := e.start(e.quick(), j.handler("old"))
	e.untilStarted("r", old)
	m := e.message("order/1")
	m.Type = "order.gifted"
	e.send(m)
	after := e.sendKeys("order/1")
	e.sendKeys("order/2")
	e.untilLen(&j, 1)
	e.until("the unknown message is held", func() bool { return e.status("r").Parked.N == 2 })
	if h := e.held("r"); len(h) != 1 || h[0].Reason != store.ParkUnhandled || h[0].Cause == "" {
		e.t.Errorf("held keys: %+v, want the unknown message's with its reason and cause", h)
	}
	if n := len(e.deadLetters(everyDead)); n > 0 {
		e.t.Errorf("%d messages died", n)
	}
	old.stop()
	e.must(e.retry("r", "order/1"), "retry") // an operator need not wait for the next poll
	r, err := relay.New(e.database, e.quick())
	e.must(err, "make a relay")
	e.must(r.HandleFunc("order.gifted", j.handler("new")), "handle")
	e.must(r.HandleFunc("order.placed", j.handler("new")), "handle")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	e.untilLen(&j, 3)
	e.untilSettled("r")
	cancel()
	e.must(<-ended, "run")
	e.wantIDs("delivered of the key", j.ids("order/1"), append([]string{m.ID}, after...))
}

func undecodableDies(e *env) {
	var j journal
	e.start(e.quick(), j.handler(""))
	good := e.undecodable("order/1")
	e.untilLen(&j, 2)
	e.untilSettled("r")
	e.wantIDs("delivered of the key", j.ids("order/1"), good)
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 1 || deadLetters[0].Cause == "" || deadLetters[0].Message.Key != "order/1" || deadLetters[0].Reason != postrider.Undecodable {
		e.t.Errorf("dead letters: %+v, want the undecodable row with its cause", deadLetters)
	}
}

func deadLetterIsSentBack(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts = 2
	fixed := newGate()
	var j journal
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		select {
		case <-fixed.open:
			return nil
		default:
			return errRefused
		}
	})
	ids := e.sendKeys("order/1", "", "order/2")
	e.until("all are dead", func() bool { return e.status("r").Dead.N == 3 })
	number := e.deadLetters(everyOpen)[0].Number
	if n, err := e.DiscardDead(e.ctx, store.DeadFilter{Numbers: []int64{number}}, "olga", "order was cancelled", 0); n != 1 || err != nil {
		e.t.Fatalf("discard: %d, %v", n, err)
	}
	discarded := e.deadLetters(store.DeadFilter{State: store.DeadDiscarded})[0].Message.ID
	fixed.lift()
	e.redrive(everyOpen, 2)
	e.untilSettled("r")
	for _, id := range ids {
		want := "[1 2 1]"
		if id == discarded {
			want = "[1 2]"
		}
		if got := fmt.Sprint(j.attempts(id)); got != want {
			e.t.Errorf("attempts at %s: %s, want %s", id, got, want)
		}
	}
}

// downtimeUsesNoAttempts: a message that waits for its next attempt while no process runs is tried once when a process is back,
// and its further delays count from then.
func downtimeUsesNoAttempts(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts, cfg.BackoffBase, cfg.BackoffMax = 5, 50*time.Millisecond, 50*time.Millisecond
	var j journal
	failing := func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		return postrider.Retry(200*time.Millisecond, errRefused)
	}
	e.sendKeys("order/1")
	p := e.start(cfg, failing)
	e.untilLen(&j, 1)
	e.until("the outcome is recorded", func() bool { return e.status("r").Failed >= 1 })
	p.stop()
	e.elapse(e.longer(24*time.Hour, time.Second))
	e.start(cfg, failing)
	e.untilLen(&j, 5)
	e.until("the message is dead", func() bool { return e.status("r").Dead.N == 1 })
	all := j.all()
	for i := 2; i < len(all); i++ {
		if wait := all[i].at.Sub(all[i-1].at); wait < 190*time.Millisecond {
			e.t.Errorf("attempt %d came %s after the one before, which asked for 200ms", i+1, wait)
		}
	}
	if len(all) != 5 {
		e.t.Errorf("%d attempts, want 5 and no more", len(all))
	}
}

func secondHandlerRefused(e *env) {
	r, err := relay.New(e.database, e.quick())
	e.must(err, "make a relay")
	h := new(journal).handler("")
	e.must(r.HandleFunc("order.placed", h), "handle")
	if err := r.HandleFunc("order.placed", h); !errors.Is(err, relay.ErrDuplicateHandler) {
		e.t.Errorf("a second handler for a type: %v, want ErrDuplicateHandler", err)
	}
}

// operationsSaySo: an operation that fails returns its error, never an empty result, and changes nothing.
func operationsSaySo(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.message("order/2"))
	w.hold("order/1", 2, time.Hour)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, redrive := e.RedriveDead(ctx, everyOpen, "olga", 0)
	_, discard := e.DiscardDead(ctx, everyOpen, "olga", "why", 0)
	_, count := e.CountDead(ctx, everyOpen)
	_, show := e.ShowDead(ctx, 1)
	_, find := held.New(e).FindParked(ctx, "r", "m-000001")
	_, decision := held.New(e).ShowDecision(ctx, "none")
	record := held.New(e).RecordDecision(ctx, store.Decision{ID: "d", Relay: "r", Key: "order/1", Verb: store.VerbSkip})
	_, status := e.Status(ctx)
	_, begin := e.begin(ctx)
	_, maintain := e.Maintain(ctx, store.Retention{})
	var list, listHeld error
	for _, err := range e.ListDead(ctx, everyOpen, 0, 0) {
		list = err
	}
	for _, err := range held.New(e).ListHeld(ctx, "r") {
		listHeld = err
	}
	for op, err := range map[string]error{
		"redrive": redrive, "discard": discard, "count": count, "show": show, "list": list, "list held keys": listHeld,
		"find a parked message": find, "show a decision": decision, "record a decision": record,
		"apply a decision": held.New(e).Apply(ctx, "r", w.ref(e.partition("order/1")), "d"), "status": status, "begin": begin, "maintain": maintain,
	} {
		if !errors.Is(err, context.Canceled) {
			e.t.Errorf("%s with a context that has ended: %v, want its error", op, err)
		}
	}
	if st := e.status("r"); st.Dead.N != 1 || st.Parked.N != 2 || st.Held.N != 1 || len(w.due().Runs) != 0 {
		e.t.Errorf("operations that failed changed something: %+v", st)
	}
}
