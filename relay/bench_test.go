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
)

// endless is a store with an endless supply of generated messages at no cost, so that the relay alone is measured.
type endless struct {
	relay.Store
	messages []postrider.Message // of one partition, reused for each batch
	left     atomic.Int64
}

const endlessPartitions = 8

func (*endless) Partitions(context.Context) (int, error) { return endlessPartitions, nil }
func (*endless) Heartbeat(context.Context, string, relay.Owner, time.Duration) (relay.View, error) {
	return relay.View{Alive: 1}, nil
}

func (*endless) Acquire(_ context.Context, _ string, o relay.Owner, req relay.AcquireRequest) ([]relay.Lease, error) {
	var out []relay.Lease
	for _, c := range req.Claims {
		out = append(out, relay.Lease{Partition: c.Partition, Owner: o.ID, Token: c.Token})
	}
	return out, nil
}
func (*endless) Release(context.Context, string, []relay.LeaseRef) error { return nil }
func (*endless) Leave(context.Context, string, relay.Owner) error        { return nil }
func (*endless) LoadParked(context.Context, string, int, int64) (relay.ParkedState, error) {
	return relay.ParkedState{}, nil
}
func (*endless) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }
func (*endless) Due(context.Context, string, relay.DueRequest) (relay.DueResult, error) {
	return relay.DueResult{Next: -1}, nil
}

func (*endless) Settle(context.Context, string, []relay.Settlement) (relay.Settled, error) {
	return relay.Settled{}, nil
}
func (*endless) Decide(context.Context, string, relay.LeaseRef, string) error { return nil }

func (e *endless) Fetch(_ context.Context, _ string, req relay.FetchRequest) ([]relay.Batch, error) {
	var out []relay.Batch
	for _, p := range req.Partitions {
		n := min(int64(req.Limit), e.left.Load(), int64(len(e.messages)))
		e.left.Add(-n)
		b := relay.Batch{Partition: p.Partition, Records: make([]relay.Record, n), More: true}
		msgs := make([]postrider.Message, n)
		for i := range b.Records {
			msgs[i] = e.messages[i]
			msgs[i].Sequence = p.After.Position + 1 + int64(i)
			b.Records[i].Message = &msgs[i]
		}
		b.Next = relay.Cursor{Position: p.After.Position + n, Snapshot: "1:1:"}
		out = append(out, b)
	}
	return out, nil
}

func benchmark(b *testing.B, keys int, cfg relay.Config, handler bool) {
	e := &endless{}
	for i := range 4096 {
		m := postrider.Message{ID: fmt.Sprint("id-", i), Type: "t", Topic: "t", Payload: make([]byte, 500)}
		if keys > 0 {
			m.Key = fmt.Sprint("key-", i%keys)
		}
		e.messages = append(e.messages, m)
	}
	e.left.Store(int64(b.N))
	var got atomic.Int64
	done := make(chan struct{})
	note := func(n int) {
		if got.Add(int64(n)) == int64(b.N) {
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
		b.Fatal(err)
	}
	if handler {
		_ = r.HandleFunc("t", func(context.Context, *postrider.Message) error { note(1); return nil })
	}
	b.ReportAllocs()
	b.ResetTimer()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	<-stopped
}

func BenchmarkRelay(b *testing.B) {
	b.Run("publisher/10000keys", func(b *testing.B) { benchmark(b, 10_000, relay.Config{}, false) })
	b.Run("publisher/1key", func(b *testing.B) { benchmark(b, 1, relay.Config{}, false) })
	b.Run("publisher/nokey", func(b *testing.B) { benchmark(b, 0, relay.Config{}, false) })
	b.Run("handler/10000keys", func(b *testing.B) { benchmark(b, 10_000, relay.Config{}, true) })
	b.Run("handler/nokey", func(b *testing.B) { benchmark(b, 0, relay.Config{}, true) })
}
