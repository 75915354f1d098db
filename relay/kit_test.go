package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// bench is a store with what a test needs around it. It lives in a synctest bubble.
type bundle struct {
	t     *testing.T
	store *memory.Store
	n     int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return &bundle{t: t, store: memory.New(memory.Config{Partitions: 4})}
}

// publish commits messages in one transaction each and returns their IDs.
func (b *bundle) publish(msgs ...*postrider.Message) {
	b.t.Helper()
	for _, m := range msgs {
		tx, err := b.store.Begin(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if err := b.store.Insert(b.t.Context(), tx, []*postrider.Message{m}); err != nil {
			b.t.Fatal(err)
		}
		if err := b.store.Commit(b.t.Context(), tx); err != nil {
			b.t.Fatal(err)
		}
	}
	b.store.Wake()
}

// msg makes a message of type "t" with a running number as ID.
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

// relay makes a relay that logs nothing.
func (b *bundle) relay(cfg relay.Config) *relay.Relay {
	b.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "r"
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(b.store, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// start runs a relay until the test ends, and checks that it ends in order.
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

// journal notes deliveries.
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

func (b *bundle) status() relay.RelayStatus {
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
	return relay.RelayStatus{}
}

// publisherFunc is a publisher that keeps order.
type publisherFunc func(ctx context.Context, msgs []*postrider.Message) []error

func (f publisherFunc) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	return f(ctx, msgs)
}
func (publisherFunc) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{Ordered: true}
}

var errBoom = errors.New("boom")
