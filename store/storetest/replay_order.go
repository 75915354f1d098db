package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/replay"
)

var replayPromises = []test{
	{name: "ReplayedMessagesOfAKeyComeInOrderAndFreshOnesAfterThem", run: replayOrder},
	{name: "ReplayedMessagesFailLikeOthersAndKeepTheirOrder", run: replayThroughFailures},
	{name: "ReplayLosesNothingWhenProcessesDie", run: replayThroughCrashes},
}

// again is a journal that tells replayed deliveries from first ones.
type again struct {
	mu  sync.Mutex
	got map[string][]string // by key: IDs, those of replayed messages with a +
}

func (a *again) note(m *postrider.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := m.ID
	if replay, _ := m.Replay(); replay != "" {
		id += "+"
	}
	if a.got == nil {
		a.got = make(map[string][]string)
	}
	a.got[m.Key] = append(a.got[m.Key], id)
}

func (a *again) count(replayed bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ids := range a.got {
		for _, id := range ids {
			if (id[len(id)-1] == '+') == replayed {
				n++
			}
		}
	}
	return n
}

// check checks that the replayed messages of each key came once, in order, and without others in between, and that all others came
// once and in order.
func (a *again) check(e *env, replayed, all map[string][]string, together bool) {
	e.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, want := range all {
		var first, second []string
		from, to := -1, -1
		for i, id := range a.got[key] {
			if id[len(id)-1] != '+' {
				first = append(first, id)
				continue
			}
			second = append(second, id[:len(id)-1])
			if to = i; from < 0 {
				from = i
			}
		}
		e.wantIDs("first deliveries of "+key, first, want)
		e.wantIDs("replayed of "+key, second, replayed[key])
		if together && to-from+1 != len(second) {
			e.t.Errorf("%s: others came between the replayed messages: %v", key, a.got[key])
		}
	}
}

// replayOrder replays keys while their producers go on.
func replayOrder(e *env) {
	var a again
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error { a.note(m); return nil })
	all, n := make(map[string][]string), 0
	send := func() {
		for i := range 8 {
			key := fmt.Sprint("order/", i)
			all[key] = append(all[key], e.sendKeys(key)...)
			n++
		}
	}
	for range 10 {
		send()
	}
	e.until("all are delivered", func() bool { return a.count(false) == n })
	e.untilSettled("r")
	replayed := make(map[string][]string)
	for key, ids := range all {
		replayed[key] = slices.Clone(ids)
	}
	var replays []replay.Replay
	for key := range maps.Keys(replayed) {
		replays = append(replays, e.startReplay(replay.Plan{Filter: replay.Filter{Key: key}}))
	}
	for _, r := range replays {
		send()
		e.driveReplay(r.ID)
	}
	send()
	e.until("all are delivered again", func() bool { return a.count(true) == 80 && a.count(false) == n })
	e.untilSettled("r")
	a.check(e, replayed, all, true)
}

// replayThroughFailures refuses every third delivery of a replayed message.
func replayThroughFailures(e *env) {
	var a again
	var mu sync.Mutex
	calls := 0
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error {
		if id, _ := m.Replay(); id != "" {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%3 == 0 {
				return errRefused
			}
		}
		a.note(m)
		return nil
	})
	all, n := make(map[string][]string), 0
	send := func() {
		key := fmt.Sprint("order/", n%5)
		all[key] = append(all[key], e.sendKeys(key)...)
		n++
	}
	for range 60 {
		send()
	}
	e.until("all are delivered", func() bool { return a.count(false) == n })
	e.untilSettled("r")
	replayed := make(map[string][]string)
	for key, ids := range all {
		replayed[key] = slices.Clone(ids)
	}
	r := e.startReplay(replay.Plan{})
	e.driveReplay(r.ID) // one step
	for range 20 {
		send()
	}
	e.until("all are delivered again", func() bool { return a.count(true) == 60 && a.count(false) == n })
	e.untilSettled("r")
	a.check(e, replayed, all, true)
}

// replayThroughCrashes kills the relay's process again and again. What was replayed is delivered at least once, in order.
func replayThroughCrashes(e *env) {
	var a again
	handler := func(_ context.Context, m *postrider.Message) error { a.note(m); return nil }
	cfg := e.quick()
	p := e.start(cfg, handler)
	all := make(map[string][]string)
	for i := range 200 {
		key := fmt.Sprint("order/", i%10)
		all[key] = append(all[key], e.sendKeys(key)...)
	}
	e.until("all are delivered", func() bool { return a.count(false) >= 200 })
	e.untilSettled("r")
	r := e.startReplay(replay.Plan{Rate: 400})
	for i := range 3 {
		until := 40 * (i + 1)
		for r.Done < int64(until) {
			var wait time.Duration
			var err error
			r, wait, err = e.replays().Step(e.ctx, r.ID)
			e.must(err, "step")
			<-time.After(wait)
		}
		e.until("some are delivered again", func() bool { return a.count(true) >= until/2 })
		p.kill()
		p = e.start(cfg, handler)
	}
	e.driveReplay(r.ID)
	e.until("all are delivered again", func() bool { return len(a.distinct()) == 200 })
	e.untilSettled("r")
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, want := range all {
		e.wantIDs("replayed of "+key+", without repetitions", firsts(a.got[key]), want)
	}
}

// distinct returns the IDs that were delivered again.
func (a *again) distinct() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]bool)
	for _, ids := range a.got {
		for _, id := range firsts(ids) {
			out[id] = true
		}
	}
	return out
}

// firsts returns the IDs of replayed messages, each at its first delivery.
func firsts(ids []string) (out []string) {
	for _, id := range ids {
		if n := len(id) - 1; id[n] == '+' && !slices.Contains(out, id[:n]) {
			out = append(out, id[:n])
		}
	}
	return out
}
