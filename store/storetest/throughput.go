package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var throughputTests = []test{
	{name: "WorkersNeverWaitWhileThereIsWork", run: workersNeverWait},
	{name: "BacklogDrainsWithoutWaitingForPolls", run: backlogDrains},
	{name: "RetryStormDoesNotStarveFreshMessages", run: retryStorm},
	{name: "FreshFloodDoesNotStarveRetries", run: freshFlood},
	{name: "FullRelayLosesNothing", run: fullRelay},
	{name: "MemoryIsBoundedInBytes", run: memoryIsBounded},
	{name: "StatusIsTrueWhileTheRelayIsFull", run: statusWhileFull},
	{name: "SettlingIsBatched", run: settlingIsBatched},
}

// backlog commits n messages with many keys in a few transactions.
func (e *env) backlog(n int) {
	e.t.Helper()
	var msgs []*postrider.Message
	for i := range n {
		msgs = append(msgs, e.message(fmt.Sprintf("order/%d", i%97)))
		if len(msgs) == 2_000 || i == n-1 {
			e.publish(msgs...)
			msgs = nil
		}
	}
}

// workersNeverWait has only fresh messages, none parked: no worker may spend time looking for parked ones.
func workersNeverWait(e *env) {
	e.backlog(3_000)
	began := time.Now()
	var count atomic.Int64
	cfg := e.quick()
	cfg.Concurrency = 2
	e.start(cfg, func(context.Context, *postrider.Message) error {
		count.Add(1)
		return nil
	})
	e.until("all delivered", func() bool { return count.Load() == 3_000 })
	if took := time.Since(began); e.suite.features.Bubble && took > 200*time.Millisecond {
		e.t.Errorf("3000 messages whose handling takes no time took two workers %s of waiting", took)
	}
}

// backlogDrains polls every ten minutes and reads 500 messages at a time: a relay that read once per poll would take hours.
func backlogDrains(e *env) {
	const n = 8_000
	e.backlog(n)
	cfg := e.quick()
	cfg.MaxInFlight, cfg.PollMin, cfg.PollMax = 500, 10*time.Minute, 10*time.Minute
	var count atomic.Int64
	began := time.Now()
	e.start(cfg, func(context.Context, *postrider.Message) error {
		count.Add(1)
		return nil
	})
	e.until("all delivered", func() bool { return count.Load() == n })
	if took := time.Since(began); e.suite.features.Bubble && took > 10*time.Second {
		e.t.Errorf("%d messages took %s", n, took)
	}
}

// busyRelay runs a relay with one worker, one millisecond for each message, and keys that always fail.
func (e *env) busyRelay(j *journal, storm int) {
	e.t.Helper()
	cfg := e.quick()
	cfg.MaxAttempts, cfg.Concurrency, cfg.PollMax = 1_000_000, 1, 50*time.Millisecond
	cfg.BackoffBase, cfg.BackoffMax = time.Millisecond, time.Millisecond
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		e.elapse(time.Millisecond)
		j.note(m, "")
		if strings.HasPrefix(m.Key, "bad/") {
			return errRefused
		}
		return nil
	})
	var bad []string
	for i := range storm {
		bad = append(bad, fmt.Sprintf("bad/%d", i))
	}
	e.publishKeys(bad...)
	e.until("all have failed once", func() bool {
		return !slices.ContainsFunc(bad, func(key string) bool { return len(j.ids(key)) == 0 })
	})
}

func retryStorm(e *env) {
	var j journal
	storm, n := 300, 200
	if !e.suite.features.Bubble { // every attempt is a settlement, and shares are measured in the bubble only
		storm, n = 50, 40
	}
	e.busyRelay(&j, storm)
	before := j.len()
	fresh := e.publish(e.messages("", n)...)
	last := fresh[len(fresh)-1]
	e.until("the last fresh message is delivered", func() bool { return len(j.attempts(last)) > 0 })
	all := j.all()[before:]
	retries := slices.IndexFunc(all, func(n entry) bool { return n.id == last }) + 1 - len(fresh)
	// Fresh messages get two of three turns; the next poll may be 50 ms, or as many retries, away.
	if e.suite.features.Bubble && retries > 100+80 {
		e.t.Errorf("%d retries came before the last of %d fresh messages, want about 100", retries, len(fresh))
	}
}

func freshFlood(e *env) {
	var j journal
	e.busyRelay(&j, 5)
	before := j.len()
	e.backlog(600)
	e.untilLen(&j, before+600)
	retries := 0
	for _, n := range j.all()[before:] {
		if strings.HasPrefix(n.key, "bad/") {
			retries++
		}
	}
	if retries < 20 {
		e.t.Errorf("%d retries during a flood of 600 fresh messages, want some all along", retries)
	}
}

// fullRelay publishes far more than the relay holds in memory.
func fullRelay(e *env) {
	cfg := e.quick()
	cfg.MaxInFlight, cfg.Concurrency = 16, 4
	var j journal
	e.start(cfg, j.handler(""))
	var want []string
	for i := range 20 {
		want = append(want, e.publish(e.messages(fmt.Sprintf("order/%d", i), 50)...)...)
	}
	e.untilLen(&j, len(want))
	e.untilSettled("r")
	e.wantSet("deliveries", j.ids(""), want)
}

func memoryIsBounded(e *env) {
	const size, limit = 256 << 10, 1 << 20
	l := &line{database: e.database}
	cfg := e.quick()
	cfg.MaxInFlightBytes = limit
	var count atomic.Int64
	done := func(_ context.Context, m *postrider.Message) error {
		e.elapse(time.Millisecond)
		l.unsettledBytes.Add(-int64(m.Size()))
		count.Add(1)
		return nil
	}
	for i := range 40 {
		m := e.message(fmt.Sprintf("order/%d", i%7))
		m.Payload = make([]byte, size)
		e.publish(m)
	}
	e.startOver(l, cfg, done)
	e.until("all delivered", func() bool { return count.Load() >= 40 })
	if peak := l.peakBytes.Load(); peak > limit+2*size {
		e.t.Errorf("%d bytes were in memory at a time, the limit is %d and messages have %d", peak, limit, size)
	}
}

// statusWhileFull: a relay that is full must still show its growing backlog and age.
func statusWhileFull(e *env) {
	g := newGate()
	defer g.lift()
	cfg := e.quick()
	cfg.MaxInFlight, cfg.Concurrency = 8, 2
	e.start(cfg, func(ctx context.Context, _ *postrider.Message) error { return g.pass(ctx) })
	var last store.RelayStatus
	e.backlog(200)
	e.untilHeld(g, 2)
	for i := range 3 {
		e.backlog(100)
		e.elapse(20 * time.Millisecond)
		now := e.status("r")
		if now.Backlog.N+now.Parked.N != int64(300+100*i) || now.Age <= last.Age {
			e.t.Errorf("backlog %d and %d parked after %d messages, age %s, before %s", now.Backlog.N, now.Parked.N, 300+100*i, now.Age, last.Age)
		}
		last = now
	}
	g.lift()
	e.untilSettled("r")
}

func settlingIsBatched(e *env) {
	const n = 4_000
	e.backlog(n)
	l := &line{database: e.database}
	var mu sync.Mutex
	count := 0
	e.startOver(l, e.quick(), func(context.Context, *postrider.Message) error {
		mu.Lock()
		defer mu.Unlock()
		count++
		return nil
	})
	e.untilSettled("r")
	if settles := l.settles.Load(); count != n || settles > n/20 {
		e.t.Errorf("%d messages took %d settlements", count, settles)
	}
}
