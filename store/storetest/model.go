package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// tortureVariable makes the model test run for a duration, e.g. "5m", instead of a number of histories.
const tortureVariable = "POSTRIDER_TORTURE"

// Model runs random histories and checks their results against the guarantees. Producers commit, roll back and return to
// savepoints; relay processes stop, die, and lose the database, its responses and their leases; handlers and brokers fail in
// every way they can; operators intervene. After the faults stop, every committed message must have been delivered, nothing else,
// and each key in order.
//
// A failed history prints its seed. The same seed gives the same decisions; how goroutines interleave depends on the machine.
func Model[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	s := newSuite(f, h)
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		s.history(t, seed)
		return
	}
	s.notInShort(t)
	count := int64(f.Histories)
	if count == 0 {
		count = 25
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
	var started, ran atomic.Int64
	t.Cleanup(func() { t.Logf("%d histories", ran.Load()) })
	for shard := range 4 {
		t.Run(fmt.Sprint("part", shard), func(t *testing.T) {
			t.Parallel()
			for more(started.Add(1)) && !t.Failed() {
				s.history(t, rand.Uint64())
				ran.Add(1)
			}
		})
	}
}

// history runs one history.
func (s *suite) history(t *testing.T, seed uint64) {
	run := func(t *testing.T) {
		ctx := context.WithoutCancel(t.Context()) // cleanups need it
		e := newEnv(t, ctx, s, s.open(t, 4), 4)
		m := newModel(e, seed)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s=%d repeats this history (%s)", seedVariable, seed, m.setting)
			}
		})
		m.run()
		m.assess()
	}
	if s.features.Bubble {
		synctest.Test(t, run)
		return
	}
	t.Run(fmt.Sprint("seed", seed), run) // so that its database is closed afterwards
}

// model is one history: what was done, and the expected result.
type model struct {
	*env
	seed    uint64
	setting string
	cfg     relay.Config
	// strict: keys stay held after dead letters, and operators only redrive and discard, so those messages keep the order too.
	strict bool
	calm   atomic.Bool // faults have stopped
	dest   *destination

	mu        sync.Mutex
	made      map[string]*postrider.Message // by ID
	committed map[string]bool
	order     map[string][]string // by key: the committed messages without a delay, in the order of publishing
	discarded map[string]bool     // discarded by an operator
}

func newModel(e *env, seed uint64) *model {
	m := &model{
		env: e, seed: seed, made: make(map[string]*postrider.Message), committed: make(map[string]bool),
		order: make(map[string][]string), discarded: make(map[string]bool),
	}
	rng := m.chance(0)
	cfg := e.quick()
	cfg.ParkAfter, cfg.MaxAttempts = 30*time.Millisecond, 2+rng.IntN(4)
	cfg.LeaseTTL, cfg.StopTimeout = 300*time.Millisecond, 100*time.Millisecond
	cfg.Concurrency = 1 + rng.IntN(6)
	if rng.IntN(3) == 0 {
		cfg.MaxInFlight = 4 + rng.IntN(20)
	}
	if rng.IntN(3) == 0 {
		cfg.OnDead = relay.HoldKey
	}
	m.strict = cfg.OnDead == relay.HoldKey && rng.IntN(2) == 0
	if rng.IntN(3) == 0 {
		cfg.KeepDelivered = -1
	}
	m.dest = &destination{model: m, rng: m.chance(1)}
	if rng.IntN(2) == 0 {
		cfg.Publisher = m.dest
		cfg.MaxBatch = 1 + rng.IntN(10)
	}
	m.cfg = cfg
	m.setting = fmt.Sprintf("publisher %v, %d attempts, hold after dead %v, strict %v, concurrency %d, in flight %d",
		cfg.Publisher != nil, cfg.MaxAttempts, cfg.OnDead == relay.HoldKey, m.strict, cfg.Concurrency, cfg.MaxInFlight)
	return m
}

// chance returns an actor's own random source.
func (m *model) chance(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(m.seed, actor)) }

// pause waits for a random time up to limit.
func (m *model) pause(rng *rand.Rand, limit time.Duration) {
	m.elapse(time.Duration(rng.Int64N(int64(limit))))
}

// run lets the actors act, stops the faults, and waits until nothing is left to do.
func (m *model) run() {
	var producers, others sync.WaitGroup
	over := make(chan struct{})
	writers := 3
	if m.suite.features.OneWriter != "" {
		writers = 1
	}
	for i := range writers {
		producers.Go(func() { m.produce(i, m.chance(uint64(10+i))) })
	}
	for i := range 2 {
		others.Go(func() { m.processes(m.chance(uint64(20+i)), over) })
	}
	others.Go(func() { m.operate(m.chance(30), over) })
	producers.Wait()
	m.pause(m.chance(2), 200*time.Millisecond)
	m.calm.Store(true)
	close(over)
	others.Wait()

	calm := m.cfg // leases and stopping are no longer under test
	calm.LeaseTTL, calm.StopTimeout = m.lease(), patience
	last := m.start(calm, m.dest.handler())
	m.untilStarted("r", last)
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Log(m.leftovers())
		}
	})
	m.until("everything comes to rest after the faults stopped", func() bool {
		_, err := m.RedriveDead(m.ctx, store.DeadFilter{MaxRedrives: deadletter.Unbounded}, "olga", 0)
		m.must(err, "redrive")
		st := m.status("r")
		return len(st.Partitions) == m.partitions && st.Backlog.N == 0 && st.Parked.N == 0 && st.Held.N == 0 && st.Dead.N == 0
	})
	last.stop()
}

// produce commits and rolls back transactions with messages whose keys belong to this producer.
func (m *model) produce(n int, rng *rand.Rand) {
	for i := range 6 + rng.IntN(8) {
		tx, err := m.begin(m.ctx)
		m.must(err, "begin")
		var written []*postrider.Message
		add := func() {
			var msgs []*postrider.Message
			for range 1 + rng.IntN(3) {
				msgs = append(msgs, m.compose(fmt.Sprintf("p%d-%d-%d", n, i, len(written)+len(msgs)), n, rng))
			}
			m.insert(tx, msgs...)
			written = append(written, msgs...)
		}
		add()
		if rng.IntN(3) == 0 {
			m.must(tx.savepoint(m.ctx, "sp"), "savepoint")
			kept := len(written)
			add()
			if rng.IntN(2) == 0 {
				m.must(tx.rollbackTo(m.ctx, "sp"), "rollback to savepoint")
				written = written[:kept]
			}
			add()
		}
		if rng.IntN(3) == 0 {
			m.pause(rng, 60*time.Millisecond) // so that others commit first
		}
		if rng.IntN(5) == 0 {
			m.must(tx.rollback(m.ctx), "rollback")
			continue
		}
		m.commit(tx)
		if rng.IntN(2) == 0 {
			m.Wake()
		}
		m.noteCommitted(written)
		if rng.IntN(2) == 0 {
			m.pause(rng, 80*time.Millisecond)
		}
	}
}

func (m *model) compose(id string, producer int, rng *rand.Rand) *postrider.Message {
	msg := &postrider.Message{
		ID: id, Type: "order.placed", Topic: "orders", Source: "storetest", Time: time.Now(), ContentType: "text/plain",
		Payload: []byte(id),
	}
	if rng.IntN(4) > 0 {
		msg.Key = fmt.Sprintf("p%d/%d", producer, rng.IntN(4))
	}
	if rng.IntN(12) == 0 {
		msg.DeliverAfter = time.Duration(1+rng.IntN(100)) * time.Millisecond
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[id] = msg
	return msg
}

func (m *model) noteCommitted(msgs []*postrider.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range msgs {
		m.committed[msg.ID] = true
		if msg.Key != "" && msg.DeliverAfter == 0 {
			m.order[msg.Key] = append(m.order[msg.Key], msg.ID)
		}
	}
}

// processes runs one relay process after another. Each may meet faults, and ends in one of three ways.
func (m *model) processes(rng *rand.Rand, over <-chan struct{}) {
	for {
		faults := rand.New(rand.NewPCG(rng.Uint64(), 0))
		l := &line{database: m.database}
		if rng.IntN(2) == 0 {
			l.fault = m.unreliable(faults)
		}
		p := m.startOver(l, m.cfg, m.dest.handler())
		m.pause(rng, 400*time.Millisecond)
		if rng.IntN(3) == 0 { // disconnected, possibly for longer than its leases last, and back
			l.cut.Store(true)
			m.pause(rng, 500*time.Millisecond)
			l.cut.Store(false)
			m.pause(rng, 200*time.Millisecond)
		}
		switch rng.IntN(3) {
		case 0:
			p.kill()
		case 1:
			p.quit()
		default:
			p.over.Do(func() { // an orderly stop, which may be cut short by StopTimeout
				p.cancel()
				<-p.ended
			})
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// unreliable makes one operation in twelve fail, before it runs or after it took effect, and now and then delays a settlement
// until its lease may have passed to another process, until the faults stop.
func (m *model) unreliable(rng *rand.Rand) func(string, bool) error {
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	return func(op string, done bool) error {
		switch {
		case op == "Partitions" || m.calm.Load():
			return nil
		case roll(12) == 0:
			return errCut
		case op == "Settle" && !done && roll(8) == 0:
			m.elapse(time.Duration(roll(3 * int(m.cfg.LeaseTTL))))
		}
		return nil
	}
}

// operate redrives, retries, skips and dead-letters at random, and drops delivered messages from the log.
func (m *model) operate(rng *rand.Rand, over <-chan struct{}) {
	for {
		m.pause(rng, 150*time.Millisecond)
		select {
		case <-over:
			return
		default:
		}
		if rng.IntN(2) == 0 {
			_, err := m.Maintain(m.ctx, store.Retention{})
			m.must(err, "maintain")
		}
		var open []store.DeadLetter
		for l, err := range m.ListDead(m.ctx, everyOpen, 0, 10) {
			m.must(err, "list dead letters")
			open = append(open, l)
		}
		if len(open) > 0 {
			m.redriveOne(rng, open[rng.IntN(len(open))].Number)
		}
		if m.strict {
			if len(open) > 0 && rng.IntN(3) == 0 { // one that is no longer open is refused
				f := store.DeadFilter{Numbers: []int64{open[rng.IntN(len(open))].Number}}
				_, _ = m.DiscardDead(m.ctx, f, "olga", "given up", 0)
			}
			continue
		}
		for h, err := range held.New(m).ListHeld(m.ctx, "r") {
			m.must(err, "list held keys")
			switch rng.IntN(12) {
			case 0:
				_ = m.skip("r", h.Key, "skipped") // it may have been released since
			case 1:
				_, _ = m.dead("r", h.Key, "given up", rng.IntN(2) == 0)
			case 2, 3:
				_ = m.retry("r", h.Key)
			}
		}
	}
}

// redriveOne redrives a dead letter, directly or with a background redrive.
func (m *model) redriveOne(rng *rand.Rand, number int64) {
	f := store.DeadFilter{Numbers: []int64{number}, MaxRedrives: deadletter.Unbounded}
	if rng.IntN(2) == 0 {
		_, err := m.RedriveDead(m.ctx, f, "olga", 0)
		m.must(err, "redrive")
		return
	}
	m.drive(m.startRedrive(f).ID)
}
