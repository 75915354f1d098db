package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// endless is a store with an endless supply of generated messages at no cost, so that the relay alone is measured.
type endless struct {
	store.Relay
	messages []postrider.Message // of one partition, reused for each batch
	left     atomic.Int64
	leases   []store.PartitionView // written by the relay's one lease loop
}

const endlessPartitions = 8

func (*endless) Partitions(context.Context) (int, error) { return endlessPartitions, nil }
func (e *endless) Heartbeat(context.Context, string, store.Owner, time.Duration) (store.View, error) {
	return store.View{Alive: 1, Partitions: e.leases}, nil
}

func (e *endless) Acquire(_ context.Context, _ string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	var out []store.Lease
	for _, c := range req.Claims {
		out = append(out, store.Lease{Partition: c.Partition, Owner: o.ID, Token: c.Token})
		e.leases = append(e.leases, store.PartitionView{Partition: c.Partition, Owner: o.ID, Token: c.Token})
	}
	return out, nil
}

// View answers that nothing is recorded: no operator has paused the relay.
func (*endless) View(context.Context, store.Operation, func(store.Reader) error) error { return nil }

func (*endless) Release(context.Context, string, []store.LeaseRef) error { return nil }
func (*endless) Leave(context.Context, string, store.Owner) error        { return nil }
func (*endless) FindHeld(context.Context, string, []store.LeaseRef, []string) (store.FoundHeld, error) {
	return store.FoundHeld{}, nil
}
func (*endless) Subscribe(func(string) bool) (<-chan struct{}, func()) { return nil, func() {} }
func (*endless) Due(context.Context, string, store.DueRequest) (store.DueResult, error) {
	return store.DueResult{Next: -1}, nil
}

func (*endless) Settle(context.Context, string, []store.Settlement) (store.Settled, error) {
	return store.Settled{}, nil
}

func (e *endless) Fetch(_ context.Context, _ string, req store.FetchRequest) ([]store.Batch, error) {
	var out []store.Batch
	for _, p := range req.Partitions {
		n := min(int64(req.Limit), e.left.Load(), int64(len(e.messages)))
		e.left.Add(-n)
		b := store.Batch{Partition: p.Partition, Entries: make([]store.Entry, n), More: true}
		msgs := make([]postrider.Message, n)
		for i := range b.Entries {
			msgs[i] = e.messages[i]
			msgs[i].Sequence = p.After.Position + 1 + int64(i)
			b.Entries[i].Message = &msgs[i]
		}
		b.Next = store.Cursor{Position: p.After.Position + n, Snapshot: "1:1:"}
		out = append(out, b)
	}
	return out, nil
}

// deliver delivers n messages of an endless store.
func (e *endless) deliver(t testing.TB, n int64, keys int, cfg relay.Config, handler bool) {
	for i := range 4096 {
		m := postrider.Message{ID: fmt.Sprint("id-", i), Type: "t", Topic: "t", Payload: make([]byte, 500)}
		if keys > 0 {
			m.Key = fmt.Sprint("key-", i%keys)
		}
		e.messages = append(e.messages, m)
	}
	e.left.Store(n)
	var got atomic.Int64
	done := make(chan struct{})
	note := func(more int) {
		if got.Add(int64(more)) == n {
			close(done)
		}
	}
	cfg.Name, cfg.Logger = "bench", slog.New(slog.DiscardHandler)
	if !handler {
		cfg.Publisher = publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error {
			note(len(msgs))
			return nil
		})
	}
	r, err := relay.New(e, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if handler {
		_ = r.HandleFunc("t", func(context.Context, *postrider.Message) error { note(1); return nil })
	}
	b, measured := t.(*testing.B)
	if measured {
		b.ReportAllocs()
		b.ResetTimer()
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(ctx) }()
	<-done
	if measured {
		b.StopTimer()
	}
	cancel()
	<-stopped
}

func BenchmarkRelay(b *testing.B) {
	measure := func(keys int, handler bool) func(b *testing.B) {
		return func(b *testing.B) { new(endless).deliver(b, int64(b.N), keys, relay.Config{}, handler) }
	}
	b.Run("publisher/10000keys", measure(10_000, false))
	b.Run("publisher/1key", measure(1, false))
	b.Run("publisher/nokey", measure(0, false))
	b.Run("handler/10000keys", measure(10_000, true))
	b.Run("handler/nokey", measure(0, true))
}

// TestBenchmark: the store of BenchmarkRelay answers whatever a relay asks.
func TestBenchmark(t *testing.T) {
	t.Parallel()
	new(endless).deliver(t, 1000, 10, relay.Config{}, true)
}
