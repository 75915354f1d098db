package inboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// HandleTxModel compares random histories of relays with transactions with the guarantees:
//
//   - Publishers commit, roll back and commit late.
//   - Processes stop, are killed, and lose their leases, the database or its responses.
//   - Settlements take effect long after the relay gave up on them.
//   - Handlers fail in every way they can.
//   - Operators intervene.
//
// In the end every committed message must have had its effect once, or an operator must have discarded it and it must
// have had none; and the effects of a key are in order.
//
// A failed history prints its seed, as in Model.
func HandleTxModel[Tx any](t *testing.T, h Harness[Tx]) {
	h.histories(t, func(t *testing.T, seed uint64) {
		run := func(t *testing.T) {
			m := newTxModel(newTxWorld(t, h), seed)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s=%d repeats this history: %+v", seedVariable, seed, m.cfg)
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
	})
}

// txModel is one history.
type txModel[Tx any] struct {
	*txWorld[Tx]
	seed      uint64
	cfg       relay.Config
	oneWriter bool
	calm      atomic.Bool // faults have stopped

	mu      sync.Mutex
	order   map[string][]string // by key, what was committed
	delayed map[string]bool     // delayed messages, which left the order of their key
	rng     *rand.Rand          // of handlers and faults
}

func newTxModel[Tx any](w *txWorld[Tx], seed uint64) *txModel[Tx] {
	m := &txModel[Tx]{txWorld: w, seed: seed, order: make(map[string][]string), delayed: make(map[string]bool), oneWriter: w.oneWriter()}
	m.rng = m.chance(0)
	rng := m.chance(1)
	m.cfg = relay.Config{
		TxBatch: 1 + rng.IntN(3)*rng.IntN(5), MaxAttempts: 2 + rng.IntN(4), Concurrency: 1 + rng.IntN(6),
		StopTimeout: 100 * time.Millisecond,
	}
	if rng.IntN(3) == 0 {
		m.cfg.OnDead = relay.HoldKey
	}
	if rng.IntN(3) == 0 {
		m.cfg.MaxInFlight = 4 + rng.IntN(20)
	}
	return m
}

func (m *txModel[Tx]) chance(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(m.seed, actor)) }

// roll returns a random number while there are faults; afterwards always 0.
func (m *txModel[Tx]) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calm.Load() {
		return 0
	}
	return m.rng.IntN(n)
}

func (m *txModel[Tx]) pause(rng *rand.Rand, limit time.Duration) {
	m.elapse(time.Duration(1 + rng.Int64N(int64(limit))))
}

// handler returns the handler of a process: it applies the effect first and then often fails.
func (m *txModel[Tx]) handler() inbox.Handler[Tx] {
	var mu sync.Mutex
	running := make(map[string]<-chan struct{}) // by key, closed when the right to work is lost
	ended := func(right <-chan struct{}) bool {
		select {
		case <-right:
			return true
		default:
			return false
		}
	}
	return func(ctx context.Context, tx Tx, msg *postrider.Message) error {
		mu.Lock()
		if other := running[msg.Key]; msg.Key != "" && other != nil && !ended(other) && !ended(ctx.Done()) {
			m.t.Errorf("two messages of key %s at once, one of them %s", msg.Key, msg.ID)
		}
		running[msg.Key] = ctx.Done()
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			if running[msg.Key] == ctx.Done() {
				delete(running, msg.Key)
			}
		}()
		if err := m.apply(ctx, tx, msg); err != nil {
			return err
		}
		return misbehave(ctx, m.roll)
	}
}

// run runs the actors, ends the faults, and waits until everything is settled.
func (m *txModel[Tx]) run() {
	var producers, others sync.WaitGroup
	over := make(chan struct{})
	producers.Go(func() { m.produce(m.chance(10), "a", "b", "") })
	if !m.oneWriter {
		producers.Go(func() { m.produceLate(m.chance(11), "c", "d", "e", "") })
	}
	for i := range 2 {
		others.Go(func() { m.processes(m.chance(uint64(20+i)), over) })
	}
	others.Go(func() { m.operate(m.chance(31), over) })
	producers.Wait()
	m.pause(m.chance(2), 300*time.Millisecond)
	m.calm.Store(true)
	close(over)
	others.Wait()

	calm := m.cfg
	calm.StopTimeout = patience // a stop that is cut short is not tested here
	last := m.start(txSetting[Tx]{cfg: calm, handler: m.handler()})
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("held %+v, status %+v", m.held(), m.status())
		}
	})
	m.until("everything comes to rest after the faults stopped", func() bool {
		_, err := deadletter.New(m.store).RedriveDead(m.ctx, store.DeadFilter{Relay: consumer, MaxRedrives: deadletter.Unbounded}, "olga", 0)
		m.must(err, "redrive")
		if last.Ready() != nil || last.Drain(m.ctx) != nil {
			return false
		}
		st := m.status() // after Drain, which knows nothing of partitions that a dead process still holds
		return st.Parked.N == 0 && st.Held.N == 0 && st.Dead.N == 0 && st.Backlog.N == 0
	})
	last.stop()
}

// produce commits messages, or rolls them back.
func (m *txModel[Tx]) produce(rng *rand.Rand, keys ...string) {
	for range 10 + rng.IntN(10) {
		m.transaction(rng, keys, 0)
		m.pause(rng, 60*time.Millisecond)
	}
}

// produceLate leaves transactions open for a while. Concurrent ones have different keys.
func (m *txModel[Tx]) produceLate(rng *rand.Rand, keys ...string) {
	var open sync.WaitGroup
	for range 6 {
		for i, key := range keys {
			own := rand.New(rand.NewPCG(m.seed, uint64(100+i)))
			open.Go(func() { m.transaction(own, []string{key}, 150*time.Millisecond) })
		}
		open.Wait()
	}
}

// transaction publishes some messages and ends after a time, sometimes with a rollback.
func (m *txModel[Tx]) transaction(rng *rand.Rand, keys []string, open time.Duration) {
	tx, err := m.store.Begin(m.ctx)
	m.must(err, "begin")
	var msgs []*postrider.Message
	m.mu.Lock()
	for range 1 + rng.IntN(5) {
		msg := m.message(keys[rng.IntN(len(keys))])
		if rng.IntN(6) == 0 {
			msg.DeliverAfter = time.Duration(1+rng.IntN(100)) * time.Millisecond
			m.delayed[msg.ID] = true
		}
		msgs = append(msgs, msg)
	}
	m.mu.Unlock()
	_, err = m.outbox.Publish(m.ctx, tx, msgs...)
	m.must(err, "publish")
	if open > 0 {
		m.pause(rng, open)
	}
	if rng.IntN(5) == 0 {
		m.must(m.store.Rollback(m.ctx, tx), "roll back")
		return
	}
	m.must(m.store.Commit(m.ctx, tx), "commit")
	m.store.Wake()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range msgs {
		m.order[msg.Key] = append(m.order[msg.Key], msg.ID)
	}
}

// processes runs one process after another; each ends in a different way.
func (m *txModel[Tx]) processes(rng *rand.Rand, over <-chan struct{}) {
	for {
		s := txSetting[Tx]{cfg: m.cfg, handler: m.handler()}
		if rng.IntN(2) == 0 {
			s.fault = func(string, bool) error {
				if m.roll(14) == 1 {
					return errCut
				}
				return nil
			}
		}
		p := m.build(s)
		p.connection.delay = func(settle func()) bool {
			if m.roll(10) != 1 {
				return false
			}
			after := time.Duration(m.roll(200)) * time.Millisecond
			m.killed.Go(func() { m.elapse(after); settle() })
			return true
		}
		go func() { p.done <- p.Run(m.ctx) }()
		m.pause(rng, 400*time.Millisecond)
		if rng.IntN(2) == 0 {
			p.kill()
		} else {
			_ = p.Stop(m.ctx) // it may have been cut short, or never begun
			<-p.done
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// operate redrives, retries, skips and dead-letters at random.
func (m *txModel[Tx]) operate(rng *rand.Rand, over <-chan struct{}) {
	for {
		m.pause(rng, 150*time.Millisecond)
		select {
		case <-over:
			return
		default:
		}
		m.intervene(rng)
	}
}

// verdict compares the result of a history with the guarantees.
func (m *txModel[Tx]) outcome() {
	left, discarded := m.fates(m.cfg.OnDead)
	times, at := make(map[string]int), make(map[string]int)
	for i, id := range m.effects() {
		times[id]++
		at[id] = i
	}
	known := 0
	for key, of := range m.order {
		last := ""
		for _, id := range of {
			known += times[id]
			want := 1
			if discarded[id] {
				want = 0
			}
			if times[id] != want {
				m.t.Errorf("message %s has had its effect %d times, want %d", id, times[id], want)
			}
			if key == "" || left[id] || discarded[id] || m.delayed[id] {
				continue
			}
			if last != "" && at[id] < at[last] {
				m.t.Errorf("out of order: message %s had its effect before %s", id, last)
			}
			last = id
		}
	}
	if n := len(m.effects()); n != known {
		m.t.Errorf("%d effects, of which %d are of messages that were committed", n, known)
	}
	if m.t.Failed() {
		m.t.Log(fmt.Sprint("effects: ", m.effects()))
	}
}
