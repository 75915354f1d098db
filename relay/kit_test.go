package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// bundle is a store with everything a test needs. It lives in a synctest bubble.
type bundle struct {
	t     *testing.T
	store *memory.Store
	n     int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return faulty(t, nil)
}

// faulty is a setup whose store calls fault around each operation, as described in memory.Config.
func faulty(t *testing.T, fault func(op string, done bool) error) *bundle {
	t.Helper()
	return &bundle{t: t, store: memory.New(memory.Config{Partitions: 4, Fault: fault})}
}

// pass lets time pass, and lets everything happen that is due by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// publish commits messages in one transaction each.
func (b *bundle) publish(msgs ...*postrider.Message) {
	b.t.Helper()
	for _, m := range msgs {
		b.transact(func(tx *memory.Tx) error { return b.store.Insert(b.t.Context(), tx, []*postrider.Message{m}) })
	}
	b.store.Wake()
}

// publishUndecodable commits a stored row that cannot be decoded, and messages after it, in one transaction.
func (b *bundle) publishUndecodable(bad *postrider.Message, msgs ...*postrider.Message) {
	b.t.Helper()
	b.transact(func(tx *memory.Tx) error {
		return errors.Join(b.store.InsertUndecodable(b.t.Context(), tx, bad, errBoom), b.store.Insert(b.t.Context(), tx, msgs))
	})
	b.store.Wake()
}

// transact commits what f does.
func (b *bundle) transact(f func(tx *memory.Tx) error) {
	b.t.Helper()
	tx, err := b.store.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(f(tx), b.store.Commit(b.t.Context(), tx)); err != nil {
		b.t.Fatal(err)
	}
}

// msg returns a message of type "t" with a running number as its ID.
func (b *bundle) msg(key string) *postrider.Message {
	b.n++
	return &postrider.Message{ID: fmt.Sprintf("m%03d", b.n), Type: "t", Topic: "t", Key: key, Time: time.Now(), Payload: []byte("{}")}
}

func (b *bundle) msgs(keys ...string) []*postrider.Message {
	var out []*postrider.Message
	for _, k := range keys {
		out = append(out, b.msg(k))
	}
	return out
}

// many returns n messages of a key.
func (b *bundle) many(n int, key string) []*postrider.Message {
	return b.msgs(slices.Repeat([]string{key}, n)...)
}

// keysIn returns n different keys of one of the four partitions.
func keysIn(partition, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if key := fmt.Sprint("k", i); postrider.PartitionOf(key, "", 4) == partition {
			out = append(out, key)
		}
	}
	return out
}

// keyless returns a message without a key in one of the four partitions.
func (b *bundle) keyless(partition int) *postrider.Message {
	m := b.msg("")
	for i := 0; postrider.PartitionOf("", m.ID, 4) != partition; i++ {
		m.ID = fmt.Sprint("keyless", i)
	}
	return m
}

// relay returns a relay that logs nothing.
func (b *bundle) relay(cfg relay.Config) *relay.Relay {
	b.t.Helper()
	return b.relayOn(b.store, cfg)
}

// relayOn returns a relay that logs nothing and works on another view of the store.
func (b *bundle) relayOn(store store.Relay, cfg relay.Config) *relay.Relay {
	b.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "r"
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(store, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// start runs a relay until the test ends, and checks that it ends in an orderly way.
func (b *bundle) start(r *relay.Relay) (stop func()) {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				b.t.Errorf("Run: %v", err)
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

// claims returns claims for the leases of partitions.
func claims(partitions ...int) []store.LeaseClaim {
	out := make([]store.LeaseClaim, len(partitions))
	for i, p := range partitions {
		out[i] = store.LeaseClaim{Partition: p, Token: store.NewToken()}
	}
	return out
}

// decide makes an operator's decision about a held key of relay r, for which the operator has ten seconds.
func decide(s held.Database, key string, verb store.Verb) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := held.Decide(ctx, s, store.Decision{Relay: "r", Key: key, Verb: verb, By: "op", Reason: "decided"})
	return err
}

// journal records deliveries.
type journal struct {
	mu  sync.Mutex
	all []string // ID
	key map[string][]string
}

func (j *journal) note(m *postrider.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.key == nil {
		j.key = make(map[string][]string)
	}
	j.all = append(j.all, m.ID)
	j.key[m.Key] = append(j.key[m.Key], m.ID)
}

// take is a handler that records what it is given.
func (j *journal) take(_ context.Context, m *postrider.Message) error {
	j.note(m)
	return nil
}

func (j *journal) of(key string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.key[key])
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.all)
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (b *bundle) status() store.RelayStatus {
	b.t.Helper()
	st, err := b.store.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range st.Relays {
		if r.Name == "r" {
			return r
		}
	}
	b.t.Fatal("no relay named r in the status")
	return store.RelayStatus{}
}

// wantNothingLeft checks that every message is finished and that nothing of it is left in memory or in the store.
func (b *bundle) wantNothingLeft(r *relay.Relay) {
	b.t.Helper()
	if st := b.status(); st.Backlog.N+st.Parked.N+st.Held.N != 0 {
		b.t.Errorf("left over: backlog %d, parked %d, held keys %d; in the relay %+v", st.Backlog.N, st.Parked.N, st.Held.N, r.Counters())
	}
	if c := r.Counters(); c != (relay.Counters{}) {
		b.t.Errorf("at rest, the relay counts %+v", c)
	}
}

// trap returns a fault of one operation: it affects the next call after it is armed, before it takes effect or (done) in
// place of its answer.
type trap struct {
	op     string
	done   bool
	spring func() error
	armed  atomic.Bool
}

func (p *trap) fault(op string, done bool) error {
	if op != p.op || done != p.done || !p.armed.CompareAndSwap(true, false) {
		return nil
	}
	return p.spring()
}

// broker is a publisher that records what it accepts.
type broker struct {
	journal
	down   atomic.Bool                      // every message fails as unavailable
	refuse func(m *postrider.Message) error // nil: it accepts everything
	calls  atomic.Int32
}

func (k *broker) Publish(_ context.Context, msgs []*postrider.Message) []error {
	k.calls.Add(1)
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		switch {
		case k.down.Load():
			errs[i] = postrider.Unavailable(errBoom)
		case k.refuse != nil:
			errs[i] = k.refuse(m)
		}
		if errs[i] == nil {
			k.note(m)
		}
	}
	return errs
}

func (*broker) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// publisherFunc is a publisher that keeps order.
type publisherFunc func(ctx context.Context, msgs []*postrider.Message) []error

func (f publisherFunc) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	return f(ctx, msgs)
}

func (publisherFunc) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true}
}

var errBoom = errors.New("boom")
