package inboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// The environment variables of the model test: a seed repeats one history, a duration such as "5m" replaces their number.
const (
	seedVariable    = "POSTRIDER_SEED"
	tortureVariable = "POSTRIDER_TORTURE"
)

// Model compares random histories with the guarantees:
//
//   - The broker loses acknowledgements, redelivers, reorders (a queue), moves messages to another process, or is
//     unavailable.
//   - Messages are published twice, or are no messages.
//   - Processes stop, are killed, and lose the database or its responses.
//   - Handlers fail in every way they can.
//   - Operators intervene.
//
// When the faults stop, every message must have had its effect once, or an operator must have discarded it and it must
// have had none; and the effects of a key are in order, if the source keeps it. With relay.HoldKey dead letters are in that order too,
// unless an operator has moved them there.
//
// A failed history prints its seed. The same seed makes the same decisions; the interleaving of goroutines may differ.
func Model[Tx any](t *testing.T, h Harness[Tx]) { h.histories(t, h.history) }

// histories runs the requested number of histories.
func (h Harness[Tx]) histories(t *testing.T, history func(t *testing.T, seed uint64)) {
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		history(t, seed)
		return
	}
	h.notInShort(t)
	count := int64(h.Histories)
	if count == 0 {
		count = 20
	}
	if testing.Short() {
		count = min(count, 4)
	}
	more := func(n int64) bool { return n <= count }
	if text := os.Getenv(tortureVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", tortureVariable, err)
		}
		end := time.Now().Add(d)
		more = func(int64) bool { return time.Now().Before(end) }
	}
	var started atomic.Int64
	for queue := range 2 {
		t.Run(fmt.Sprint("part", queue), func(t *testing.T) {
			t.Parallel()
			for more(started.Add(1)) && !t.Failed() {
				history(t, rand.Uint64())
			}
		})
	}
}

func (h Harness[Tx]) history(t *testing.T, seed uint64) {
	run := func(t *testing.T) {
		m := newModel(newWorld(t, h), seed)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s=%d repeats this history: %s", seedVariable, seed, m.text)
			}
		})
		m.run()
		m.outcome()
	}
	if h.Bubble {
		synctest.Test(t, run)
		return
	}
	t.Run(fmt.Sprint("seed", seed), run) // its connections end with it
}

// model is one history.
type model[Tx any] struct {
	*world[Tx]
	seed uint64
	s    setting[Tx]
	text string
	calm atomic.Bool // faults have stopped

	mu    sync.Mutex
	order map[string][]string // by key, the messages in the order of publishing
	rng   *rand.Rand          // of handlers and faults
}

func newModel[Tx any](w *world[Tx], seed uint64) *model[Tx] {
	m := &model[Tx]{world: w, seed: seed, order: make(map[string][]string)}
	m.rng = m.chance(0)
	rng := m.chance(1)
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range modes[Tx]() {
			if !yield(name) {
				return
			}
		}
	})
	m.text = names[rng.IntN(len(names))]
	s := modes[Tx]()[m.text]
	s.cfg.MaxAttempts, s.cfg.LocalAttempts = 2+rng.IntN(4), 1+rng.IntN(3)
	s.cfg.Concurrency, s.cfg.RetryConcurrency = 1+rng.IntN(5), 1+rng.IntN(3)
	s.cfg.StopTimeout = 100 * time.Millisecond
	if rng.IntN(3) == 0 {
		s.cfg.MaxInFlight = 2 + rng.IntN(10)
		s.cfg.ParkAfter = time.Duration(10+rng.IntN(100)) * time.Millisecond // some keys are slow
	}
	if rng.IntN(3) == 0 {
		s.cfg.OnDead = relay.HoldKey
	}
	if rng.IntN(2) == 0 {
		s.source.AckWait = 120 * time.Millisecond
	}
	if s.queue && rng.IntN(2) == 0 {
		s.source.Pick = m.roll
	}
	s.source.SettleFault = func(string, *postrider.Message) (before, after error) {
		switch m.roll(16) {
		case 1:
			return errCut, nil
		case 2:
			return nil, errCut
		}
		return nil, nil
	}
	s.handler = m.handle
	m.s = s
	m.text = fmt.Sprintf("%s, %d attempts, %d of them local, hold after dead %v, in flight %d, ack within %s", m.text,
		s.cfg.MaxAttempts, s.cfg.LocalAttempts, s.cfg.OnDead == relay.HoldKey, s.cfg.MaxInFlight, s.source.AckWait)
	return m
}

// chance returns an actor's random source.
func (m *model[Tx]) chance(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(m.seed, actor)) }

// roll returns a random number while there are faults; afterwards always 0.
func (m *model[Tx]) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calm.Load() {
		return 0
	}
	return m.rng.IntN(n)
}

func (m *model[Tx]) pause(rng *rand.Rand, limit time.Duration) {
	m.elapse(time.Duration(1 + rng.Int64N(int64(limit))))
}

// handle applies the effect first and then often fails.
func (m *model[Tx]) handle(ctx context.Context, tx Tx, msg *postrider.Message) error {
	if err := m.effect(ctx, tx, msg); err != nil {
		return err
	}
	return misbehave(ctx, m.roll)
}

// misbehave fails in any way that a handler can, or takes its time, or does neither.
func misbehave(ctx context.Context, roll func(n int) int) error {
	switch roll(20) {
	case 1, 2, 3:
		return errBoom
	case 4:
		return postrider.Retry(time.Duration(roll(40))*time.Millisecond, errBoom)
	case 5:
		return postrider.Snooze(time.Duration(1+roll(40)) * time.Millisecond)
	case 6:
		return postrider.Dead("unlucky", errBoom)
	case 7:
		panic("unlucky")
	case 8:
		return postrider.Unavailable(errBoom)
	case 9, 10:
		t := time.NewTimer(time.Duration(roll(300)) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			if roll(2) == 0 {
				return ctx.Err()
			}
		}
	}
	return nil
}

// run runs the actors, ends the faults, and waits until everything is settled.
func (m *model[Tx]) run() {
	var producer, others sync.WaitGroup
	over := make(chan struct{})
	producer.Go(func() { m.produce(m.chance(10)) })
	for i := range 2 {
		others.Go(func() { m.processes(m.chance(uint64(20+i)), over) })
	}
	others.Go(func() { m.disturb(m.chance(30), over) })
	others.Go(func() { m.operate(m.chance(31), over) })
	producer.Wait()
	m.pause(m.chance(2), 300*time.Millisecond)
	m.calm.Store(true)
	close(over)
	others.Wait()
	m.broker.SetUnavailable(nil)

	calm := m.s
	calm.cfg.StopTimeout = patience // a stop that is cut short is not tested here
	last := m.start(calm)
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("unsettled %v, held %+v, status %+v", m.unsettled(), m.held(), m.status())
		}
	})
	m.until("everything comes to rest after the faults stopped", func() bool {
		_, err := deadletter.New(m.store).RedriveDead(m.ctx, store.DeadFilter{Relay: consumer, MaxRedrives: deadletter.Unbounded}, "olga", 0)
		m.must(err, "redrive")
		if last.Ready() != nil || len(m.unsettled()) > 0 {
			return false
		}
		st := m.status() // after the broker: a message is parked before it is settled there
		return st.Parked.N == 0 && st.Held.N == 0 && st.Dead.N == 0
	})
	last.stop()
}

// produce publishes messages, with ByID sometimes the same one twice.
func (m *model[Tx]) produce(rng *rand.Rand) {
	var sent []*postrider.Message
	for range 10 + rng.IntN(10) {
		for range 1 + rng.IntN(4) {
			key := []string{"a", "b", "c", ""}[rng.IntN(4)]
			msg := m.message(key)
			if rng.IntN(8) == 0 {
				m.broker.Poison(msg)
			} else {
				m.deliver(msg)
				sent = append(sent, msg)
			}
			m.mu.Lock()
			m.order[key] = append(m.order[key], msg.ID)
			m.mu.Unlock()
			if len(sent) > 0 && rng.IntN(10) == 0 {
				m.deliver(sent[rng.IntN(len(sent))])
			}
		}
		m.pause(rng, 60*time.Millisecond)
	}
}

// deliver publishes to the broker, which may be unavailable.
func (m *model[Tx]) deliver(msg *postrider.Message) {
	for m.broker.Publish(m.ctx, []*postrider.Message{msg}) != nil {
		m.elapse(10 * time.Millisecond)
	}
}

// processes runs one process after another; each ends in a different way.
func (m *model[Tx]) processes(rng *rand.Rand, over <-chan struct{}) {
	for {
		s := m.s
		if rng.IntN(2) == 0 {
			s.fault = func(string, bool) error {
				if m.roll(14) == 1 {
					return errCut
				}
				return nil
			}
		}
		p := m.build(s)
		go func() { p.done <- p.Run(m.ctx) }()
		m.pause(rng, 400*time.Millisecond)
		if rng.IntN(2) == 0 {
			p.kill()
		} else {
			_ = p.Stop(m.ctx) // it may have been cut short, or never begun
			<-p.done
			p.sub.close()
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// fates returns the messages that left the order of their key, because they were ever dead-lettered without holding it, and those that
// were discarded.
func (w *world[Tx]) fates(onDead relay.OnDead) (left, discarded map[string]bool) {
	left, discarded = make(map[string]bool), make(map[string]bool)
	for _, l := range w.deadLetters(store.DeadAny) {
		if onDead != relay.HoldKey || l.Reason == decided || w.emptied[l.Message.Key] {
			left[l.Message.ID] = true // even if it was redriven
		}
		if l.State == store.DeadDiscarded {
			discarded[l.Message.ID] = true
		}
	}
	return left, discarded
}

// verdict compares the result of a history with the guarantees.
func (m *model[Tx]) outcome() {
	left, discarded := m.fates(m.s.cfg.OnDead)
	times, at := make(map[string]int), make(map[string]int)
	for i, id := range m.effects() {
		times[id]++
		at[id] = i
	}
	for key, of := range m.order {
		last := ""
		for _, id := range of {
			want := 1
			if discarded[id] {
				want = 0
			}
			if times[id] != want {
				m.t.Errorf("message %s has had its effect %d times, want %d", id, times[id], want)
			}
			if m.s.queue || key == "" || left[id] || discarded[id] {
				continue
			}
			if last != "" && at[id] < at[last] {
				m.t.Errorf("out of order: message %s had its effect before %s", id, last)
			}
			last = id
		}
	}
	if m.t.Failed() {
		m.t.Logf("effects: %v", m.effects())
	}
}
