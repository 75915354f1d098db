package relay_test

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
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// Environment variables that select what the model test runs: one history that failed, or histories for a time ("5m") instead
// of a number of them.
const (
	seedVariable    = "POSTRIDER_TEST_SEED"
	tortureVariable = "POSTRIDER_TORTURE"
)

// TestModelOfProcesses compares random histories with what the guarantees say must result. Up to three processes of a relay
// start, stop and crash; the store is slow, fails, and loses answers; handlers or a broker fail in every way they can;
// transactions commit late and roll back; the database crashes and loses its last settlements; operators intervene; memory is
// short. Then the faults stop, and everything must come to rest (see history.result).
//
// A failed history prints its seed. The same seed gives the same decisions; how goroutines interleave is up to the machine.
func TestModelOfProcesses(t *testing.T) {
	t.Parallel()
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		runHistory(t, seed)
		return
	}
	more := func(n int64) bool { return n <= histories }
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
	for queue := range 4 {
		t.Run(fmt.Sprint("queue", queue), func(t *testing.T) {
			t.Parallel()
			for more(started.Add(1)) && !t.Failed() {
				runHistory(t, rand.Uint64())
				ran.Add(1)
			}
		})
	}
}

func runHistory(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, seed)
		h.act()
		h.rest()
		h.result()
		h.end()
		if t.Failed() {
			t.Logf("%s=%d repeats this history and tells it (once %v, calm %v, operators %v, store faults %v, %+v)",
				seedVariable, seed, h.once, h.calm, h.operators, h.faults, h.cfg)
			if os.Getenv(seedVariable) != "" {
				h.tell()
			}
		}
	})
}

// history is one random history of the processes of a relay on one outbox.
type history struct {
	*bundle
	// Sources of randomness: for this test, for the store, for the destination.
	chance, storeChance, destChance *chance

	once      bool    // the store has no faults, and processes end in an orderly way, so that nothing may be delivered twice
	calm      bool    // moreover there is one process, and its store is fast
	operators bool    // there are operators who intervene
	tx        bool    // handlers have transactions, and run a side effect in each
	batched   bool    // they have batches, too
	faults    float64 // how often an operation of the store fails
	cfg       relay.Config

	down  atomic.Bool // the broker is down
	quiet atomic.Bool // the faults have stopped

	processes []*process
	ending    sync.WaitGroup // processes that stop or have crashed, and open transactions
	record
}

// process is one process of the relay.
type process struct {
	*relay.Relay
	connection *connection
	kill       func()
	done       chan error
}

func newHistory(t *testing.T, seed uint64) *history {
	c := newChance(seed, 0)
	h := &history{
		bundle: &bundle{t: t, store: memory.New(memory.Config{Partitions: 3, Unsynced: 20})},
		chance: c, storeChance: newChance(seed, 1), destChance: newChance(seed, 2),
		faults: pick(c, 0, 0.05, 0.3, 0.6), operators: c.oneIn(2), record: newRecord(),
	}
	h.once = h.faults == 0
	h.calm = h.once && c.oneIn(2)
	h.cfg = relay.Config{
		MaxAttempts: 4, BackoffBase: 50 * time.Millisecond, BackoffMax: 2 * time.Second, StopTimeout: 3 * time.Second,
		LeaseTTL:    pick(c, 2*time.Second, 15*time.Second), // the short one is often lost
		ParkAfter:   pick(c, 100*time.Millisecond, time.Second, 5*time.Second),
		Concurrency: pick(c, 1, 2, 8), SettleBatch: pick(c, 1, 5, 1000),
		MaxInFlight: pick(c, 1, 3, 20, 8192), MaxInFlightBytes: pick(c, 1, 200, 16<<20), MaxHeldKeys: pick(c, 1, 3, 100_000),
	}
	if h.once { // leases are not lost, and calls end before a stop cuts them off
		h.cfg.LeaseTTL, h.cfg.StopTimeout = 15*time.Second, time.Minute
	}
	if h.operators {
		h.cfg.OnDead = pick(c, relay.ContinueKey, relay.HoldKey)
	}
	if c.oneIn(3) {
		h.cfg.Publisher, h.cfg.MaxBatch = publisherFunc(h.receive), pick(c, 1, 3, 100)
	} else if h.tx = c.oneIn(2); h.tx {
		h.cfg.Topics, h.cfg.TxBatch, h.batched = []string{"t"}, pick(c, 1, 3, 100), c.oneIn(2)
	}
	return h
}

// act lets everything happen, for 40 seconds, and then waits for open transactions.
func (h *history) act() {
	h.startProcess()
	var producer producer
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		time.Sleep(h.chance.upTo(200 * time.Millisecond))
		switch x := h.chance.int(100); {
		case x < 60:
			h.transact(&producer)
		case x < 64 && len(h.processes) < 3 && !h.calm:
			h.startProcess()
		case x >= 64 && x < 67 && len(h.processes) > 1 && !h.calm:
			h.endProcess()
		case x >= 67 && x < 70:
			h.down.Store(!h.down.Load())
		case x >= 70 && x < 85 && h.operators:
			h.operate()
		case x >= 85 && x < 88 && !h.once:
			h.note("the database crashes, and loses %d settlements", h.store.CrashLosing(h.chance.int(10)))
		}
		h.store.Wake()
	}
	producer.open.Wait()
}

func (h *history) startProcess() {
	l := &connection{Store: h.store, h: h}
	r := h.relayOn(l, h.cfg)
	switch {
	case h.batched:
		if err := relay.HandleTxBatch(r, []string{"t"}, h.beginBatch); err != nil {
			h.t.Fatal(err)
		}
	case h.tx:
		if err := relay.HandleTxFunc(r, "t", h.handleTx); err != nil {
			h.t.Fatal(err)
		}
	case h.cfg.Publisher == nil:
		handle(h.t, r, h.handle)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Relay: r, connection: l, kill: cancel, done: make(chan error, 1)}
	go func() { p.done <- r.Run(ctx) }()
	h.processes = append(h.processes, p)
	h.note("process %s starts", r.Owner().ID)
}

// endProcess stops a process, or lets it crash: it continues for a minute, as one that was cut off does, but nothing it does
// reaches the store.
func (h *history) endProcess() {
	i := h.chance.int(len(h.processes))
	p := h.processes[i]
	h.processes = slices.Delete(h.processes, i, i+1)
	crash := h.chance.oneIn(2) && !h.once
	h.note("process %s ends, by a crash: %v", p.Owner().ID, crash)
	p.connection.crashed.Store(crash)
	h.ending.Go(func() {
		if crash {
			time.Sleep(time.Minute)
		}
		p.kill()
		<-p.done // perhaps with an error, of the store or of a call that was cut off
	})
}

// operate lets an operator do something about a held key or a dead letter. It is not an error if that is gone by then.
func (h *history) operate() {
	held := h.held()
	if len(held) == 0 {
		return
	}
	ctx, key := context.Background(), held[h.chance.int(len(held))].Key
	switch h.chance.int(6) {
	case 0:
		h.note("operator retries key %s: %v", key, decide(h.store, key, store.VerbRetry))
	case 1:
		h.note("operator skips the head of key %s: %v", key, decide(h.store, key, store.VerbSkip))
	case 2:
		verb := store.VerbDead
		if h.chance.oneIn(2) {
			verb = store.VerbDeadAll
		}
		h.note("operator dead-letters key %s, %s: %v", key, verb, decide(h.store, key, verb))
	case 3:
		n, err := deadletter.New(h.store).DiscardDead(ctx, store.DeadFilter{}, "op", "discarded", 1)
		h.note("operator discards %d dead letters: %v", n, err)
	default:
		n, err := deadletter.New(h.store).RedriveDead(ctx, store.DeadFilter{}, "op", 1)
		h.note("operator redrives %d dead letters: %v", n, err)
	}
}

func (h *history) held() []store.HeldInfo {
	var out []store.HeldInfo
	for info, err := range held.New(h.store).ListHeld(context.Background(), "r") {
		if err != nil {
			h.t.Fatalf("list held keys: %v", err)
		}
		out = append(out, info)
	}
	return out
}

// rest ends the faults and waits until everything is finished, with operators who release held keys.
func (h *history) rest() {
	h.note("the faults stop")
	h.quiet.Store(true)
	h.down.Store(false)
	for range 100 {
		pass(10 * time.Second)
		st := h.status()
		if st.Backlog.N+st.Parked.N+st.Held.N == 0 {
			break
		}
		for _, info := range h.held() {
			if info.NextAttempt.IsZero() {
				_ = decide(h.store, info.Key, store.VerbSkip)
			}
		}
	}
	pass(time.Minute) // for messages that should not arrive any more
}

// end stops what still runs.
func (h *history) end() {
	for _, p := range h.processes {
		p.kill()
		if err := <-p.done; err != nil {
			h.t.Errorf("process %s: Run: %v", p.Owner().ID, err)
		}
	}
	h.ending.Wait()
}

// producer writes transactions. Like a service that locks the row that a message is about, it has one open transaction per
// key, so that the order of publishing is the order of the commits.
type producer struct {
	mu     sync.Mutex
	locked []string
	open   sync.WaitGroup
}

// lock takes the lock of a key, unless another transaction has it.
func (p *producer) lock(key string, mine []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || slices.Contains(mine, key) {
		return true
	}
	if slices.Contains(p.locked, key) {
		return false
	}
	p.locked = append(p.locked, key)
	return true
}

func (p *producer) unlock(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locked = slices.DeleteFunc(p.locked, func(key string) bool { return slices.Contains(keys, key) })
}

// transact writes up to four messages in one transaction, and ends it now or after up to four seconds.
func (h *history) transact(p *producer) {
	ctx := context.Background()
	tx, err := h.store.Begin(ctx)
	if err != nil {
		h.t.Fatalf("begin: %v", err)
	}
	var msgs []*postrider.Message
	var keys []string
	for range 1 + h.chance.int(4) {
		key := pick(h.chance, "a", "b", "c", "d", "e", "")
		if !p.lock(key, keys) {
			continue
		}
		keys = append(keys, key)
		msgs = append(msgs, h.insert(ctx, tx, key))
	}
	end := func(commit bool) {
		err := h.store.Rollback
		if commit {
			h.committed(msgs)
			err = h.store.Commit
		}
		if err := err(ctx, tx); err != nil {
			h.t.Errorf("end a transaction: %v", err)
		}
		p.unlock(keys)
		h.store.Wake()
	}
	commit := !h.chance.oneIn(8)
	if !h.chance.oneIn(3) {
		end(commit)
		return
	}
	later := h.chance.upTo(4 * time.Second)
	p.open.Go(func() {
		time.Sleep(later)
		end(commit)
	})
}

// insert writes one message: some are delayed, and some are stored as rows that cannot be decoded.
func (h *history) insert(ctx context.Context, tx *memory.Tx, key string) *postrider.Message {
	m := h.msg(key)
	if h.chance.oneIn(15) {
		m.DeliverAfter = time.Millisecond + h.chance.upTo(5*time.Second)
		h.leaves(m.ID)
	}
	var err error
	if h.chance.oneIn(60) {
		h.leaves(m.ID)
		err = h.store.InsertUndecodable(ctx, tx, m, errBoom)
	} else {
		err = h.store.Insert(ctx, tx, []*postrider.Message{m})
	}
	if err != nil {
		h.t.Fatalf("insert: %v", err)
	}
	return m
}
