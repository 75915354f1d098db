package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// lease is the TTL of leases in tests where processes die; others wait that long. On a real, busy machine a process must be able
// to renew its leases in time: where opening a database takes long, the TTL is longer.
func (e *env) lease() time.Duration {
	slow := 4 * time.Duration(e.suite.slowest.Load())
	return e.longer(time.Second, min(max(15*time.Second, slow), 30*time.Second))
}

// quick returns the configuration of a relay with short waits, so that tests over real databases are fast too.
func (e *env) quick() relay.Config {
	return relay.Config{
		Name: "r", LeaseTTL: e.lease(), BackoffBase: 5 * time.Millisecond, BackoffMax: 40 * time.Millisecond,
		PollMin: 5 * time.Millisecond, PollMax: 250 * time.Millisecond, StopTimeout: e.longer(5*time.Second, 30*time.Second),
		Logger: slog.New(slog.DiscardHandler),
	}
}

// spanning is quick for a test whose clock runs for d: a relay that polls every 250 ms for an hour would poll 14,400 times.
func (e *env) spanning(d time.Duration) relay.Config {
	cfg := e.quick()
	if d > time.Minute {
		cfg.PollMax, cfg.LeaseTTL = time.Second, 15*time.Second
	}
	return cfg
}

// process is one process that runs a relay.
type process struct {
	*env
	*relay.Relay
	line   *line
	cancel context.CancelFunc
	ended  chan error
	over   sync.Once
}

// start runs a relay whose handler processes the suite's messages, until the test ends.
func (e *env) start(cfg relay.Config, h postrider.Handler) *process {
	e.t.Helper()
	return e.startOver(&line{database: e.database}, cfg, h)
}

// startOver runs a relay over a given connection to the database. Without a handler it needs a publisher.
func (e *env) startOver(l *line, cfg relay.Config, h postrider.Handler) *process {
	e.t.Helper()
	r, err := relay.New(l, cfg)
	e.must(err, "make a relay")
	if h != nil {
		e.must(r.HandleFunc("order.placed", h), "handle")
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{env: e, Relay: r, line: l, cancel: cancel, ended: make(chan error, 1)}
	go func() { p.ended <- r.Run(ctx) }()
	e.t.Cleanup(p.quit)
	return p
}

// quit ends the process without waiting for calls in progress.
func (p *process) quit() {
	p.over.Do(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Stop(gone) // its error, like Run's, says that calls were cut short
		<-p.ended
		p.cancel()
	})
}

// stop ends the process gracefully.
func (p *process) stop() {
	p.t.Helper()
	p.over.Do(func() {
		p.cancel()
		if err := <-p.ended; err != nil {
			p.t.Errorf("the relay did not stop in order: %v", err)
		}
	})
}

// kill ends the process as a crash does: none of its operations reach the database any more, and its leases stay. The contexts of
// calls in progress are cancelled.
func (p *process) kill() {
	p.line.cut.Store(true)
	p.quit()
}

// send publishes messages like an application, each in its own transaction, and returns their IDs.
func (e *env) send(msgs ...*postrider.Message) []string {
	e.t.Helper()
	var out []string
	for _, m := range msgs {
		sent, err := e.inTx(e.ctx, func(_ context.Context, publish publishFunc) error { return publish(m) })
		e.must(err, "publish")
		out = append(out, sent...)
	}
	return out
}

// sendKeys publishes one message for each key.
func (e *env) sendKeys(keys ...string) []string {
	e.t.Helper()
	var msgs []*postrider.Message
	for _, key := range keys {
		msgs = append(msgs, e.message(key))
	}
	return e.send(msgs...)
}

// journal records which messages were delivered, in order.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

// entry is one delivery.
type entry struct {
	id, key, by string
	attempt     int
	at          time.Time
}

func (j *journal) note(m *postrider.Message, by string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{m.ID, m.Key, by, m.Attempt, time.Now()})
}

// handler returns a handler that records each message and succeeds.
func (j *journal) handler(by string) postrider.Handler {
	return func(_ context.Context, m *postrider.Message) error {
		j.note(m, by)
		return nil
	}
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) len() int { return len(j.all()) }

// ids returns the IDs of messages in the order of delivery, of one key if key is not empty.
func (j *journal) ids(key string) []string {
	var out []string
	for _, n := range j.all() {
		if key == "" || n.key == key {
			out = append(out, n.id)
		}
	}
	return out
}

// attempts returns the attempt numbers with which a message was delivered.
func (j *journal) attempts(id string) []int {
	var out []int
	for _, n := range j.all() {
		if n.id == id {
			out = append(out, n.attempt)
		}
	}
	return out
}

// untilLen waits until n deliveries are recorded.
func (e *env) untilLen(j *journal, n int) {
	e.t.Helper()
	e.until(fmt.Sprintf("%d deliveries", n), func() bool { return j.len() >= n })
}

// untilSettled waits until a relay has nothing left to do: no backlog, nothing parked, no key held.
func (e *env) untilSettled(name string) {
	e.t.Helper()
	e.until("relay "+name+" has settled everything", func() bool {
		st := e.status(name)
		return len(st.Partitions) == e.partitions && st.Backlog.N == 0 && st.Parked.N == 0 && st.Held.N == 0
	})
}

// untilStarted waits until a relay's processes hold all partitions.
func (e *env) untilStarted(name string, processes ...*process) {
	e.t.Helper()
	e.until("all partitions of relay "+name+" are held", func() bool {
		held := make(map[string]int)
		for _, p := range e.status(name).Partitions {
			held[p.Owner]++
		}
		total := 0
		for _, p := range processes {
			if held[p.Owner().ID] == 0 {
				return false
			}
			total += held[p.Owner().ID]
		}
		return total == e.partitions
	})
}

// longer returns the longer time in a bubble, where waiting costs nothing.
func (e *env) longer(inBubble, otherwise time.Duration) time.Duration {
	if e.suite.features.Bubble {
		return inBubble
	}
	return otherwise
}

// amount scales how much of something large or random a test does: a tenth if Run already does it over the same database, and
// under go test -short.
func (e *env) amount(n int) int {
	if e.suite.features.Again || testing.Short() {
		return n / 10
	}
	return n
}

// elapse waits while nothing else has to happen.
func (e *env) elapse(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// gate blocks callers until it is opened.
type gate struct {
	waiting atomic.Int64
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// pass waits until the gate is open or ctx ends.
func (g *gate) pass(ctx context.Context) error {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

// untilHeld waits until the gate blocks n calls.
func (e *env) untilHeld(g *gate, n int) {
	e.t.Helper()
	e.until(fmt.Sprintf("%d calls under way", n), func() bool { return g.waiting.Load() >= int64(n) })
}
