package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// benchMessages returns n messages with payloads of 500 bytes, over 1,000 keys.
func benchMessages(n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("0190f3aa-1111-7000-8000-%012d", i), Type: "order.placed", Topic: "orders", Source: "shop",
			Key: fmt.Sprintf("order/%d", i%1000), ContentType: "application/json", Payload: make([]byte, 500),
		}
	}
	return msgs
}

func benchStore(b *testing.B, options string) *sqlite.Store {
	f := newFile(b)
	f.migrated(b, sqlite.Config{})
	return newStore(b, f.open(b, options), sqlite.Config{})
}

func publish(ctx context.Context, tb testing.TB, s *sqlite.Store, msgs ...*postrider.Message) {
	tb.Helper()
	tx, err := s.Begin(ctx)
	if err == nil {
		if err = s.Insert(ctx, tx, msgs); err == nil {
			err = s.Commit(ctx, tx)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkPublish writes n messages in their own transaction.
func BenchmarkPublish(b *testing.B) {
	for _, level := range []string{"normal", "full"} {
		for _, n := range []int{1, 10, 1000} {
			b.Run(fmt.Sprintf("synchronous=%s/messages=%d", level, n), func(b *testing.B) {
				s, msgs := benchStore(b, "_pragma=synchronous("+level+")"), benchMessages(n)
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					publish(ctx, b, s, msgs...)
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// claim returns a request for the leases of n partitions.
func claim(n int, ttl time.Duration) store.AcquireRequest {
	req := store.AcquireRequest{TTL: ttl}
	for p := range n {
		req.Claims = append(req.Claims, store.LeaseClaim{Partition: p, Token: store.NewToken()})
	}
	return req
}

// settle records settlements, all of which must be applied.
func settle(tb testing.TB, s *sqlite.Store, sts ...store.Settlement) {
	tb.Helper()
	res, err := s.Settle(tb.Context(), "r", sts)
	if err != nil || len(res.Lost)+len(res.Failed) > 0 {
		tb.Fatalf("settle: %+v, %v", res, err)
	}
}

// lease acquires the leases of all partitions for a relay.
func lease(tb testing.TB, s *sqlite.Store, name string, owner store.Owner) []store.Lease {
	tb.Helper()
	n, err := s.Partitions(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	leases, err := s.Acquire(tb.Context(), name, owner, claim(n, time.Hour))
	if err != nil || len(leases) != n {
		tb.Fatalf("acquired %d of %d leases: %v", len(leases), n, err)
	}
	return leases
}

func request(leases []store.Lease, limit int) store.FetchRequest {
	req := store.FetchRequest{Limit: limit, MaxBytes: 16 << 20}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	return req
}

// BenchmarkFetch reads 1,000 messages over 8 partitions, or finds nothing.
func BenchmarkFetch(b *testing.B) {
	for _, n := range []int{0, 1000} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			s := benchStore(b, "")
			if n > 0 {
				publish(b.Context(), b, s, benchMessages(5*n)...)
			}
			req := request(lease(b, s, "r", store.Owner{ID: "a"}), n/8+1)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Fetch(ctx, "r", req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkSettle moves the cursors of 8 partitions, or also parks and removes a message.
func BenchmarkSettle(b *testing.B) {
	for _, level := range []string{"normal", "full"} {
		for _, parked := range []int{0, 100} {
			b.Run(fmt.Sprintf("synchronous=%s/parked=%d", level, parked), func(b *testing.B) {
				s := benchStore(b, "_pragma=synchronous("+level+")")
				publish(b.Context(), b, s, benchMessages(1000)...)
				owner := store.Owner{ID: "a"}
				leases := lease(b, s, "r", owner)
				batches, err := s.Fetch(b.Context(), "r", request(leases, 1000))
				if err != nil {
					b.Fatal(err)
				}
				var sts []store.Settlement
				for i, l := range leases {
					st := store.Settlement{Partition: l.Partition, Token: l.Token, Moved: true, DeliveredCount: 100}
					for _, r := range batches[i].Entries[:parked/8] {
						st.Parked = append(st.Parked, store.ParkOutcome{
							Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkRetry, Attempts: 1, Cause: "no",
						})
					}
					sts = append(sts, st)
				}
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					for i := range sts {
						sts[i].Number++
					}
					if res, err := s.Settle(ctx, "r", sts); err != nil || len(res.Lost)+len(res.Failed) > 0 {
						b.Fatalf("settle: %+v, %v", res, err)
					}
				}
			})
		}
	}
}

// BenchmarkDue polls for due parked messages and finds none, or 100 held keys with one message each.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{0, 100} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s := benchStore(b, "")
			publish(b.Context(), b, s, benchMessages(n+1)...)
			owner := store.Owner{ID: "a"}
			leases := lease(b, s, "r", owner)
			batches, err := s.Fetch(b.Context(), "r", request(leases, 1000))
			if err != nil {
				b.Fatal(err)
			}
			req := store.DueRequest{Runs: 200, RunLength: 100, MaxBytes: 16 << 20}
			for _, l := range leases {
				req.Leases = append(req.Leases, l.Ref())
			}
			for _, batch := range batches {
				st := store.Settlement{Partition: batch.Partition, Token: leases[batch.Partition].Token, Number: 1}
				for _, r := range batch.Entries {
					if len(r.Message.Key) == 0 || n == 0 {
						continue
					}
					st.Parked = append(st.Parked, store.ParkOutcome{
						Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkRetry, Waits: true,
					})
					st.Held = append(st.Held, store.HeldKey{Key: r.Message.Key, Sequence: r.Message.Sequence, Reason: store.ParkRetry})
				}
				settle(b, s, st)
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Due(ctx, "r", req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// counter is a publisher that accepts everything.
type counter struct {
	n    atomic.Int64
	want int64
	done chan struct{}
}

func (c *counter) Publish(_ context.Context, msgs []*postrider.Message) []error {
	if c.n.Add(int64(len(msgs))) == c.want {
		close(c.done)
	}
	return nil
}

func (*counter) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// run runs a relay until the returned function is called.
func run(b *testing.B, s *sqlite.Store, cfg relay.Config, handler postrider.Handler) (stop func()) {
	b.Helper()
	cfg.Name, cfg.Logger = "r", slog.New(slog.DiscardHandler)
	r, err := relay.New(s, cfg)
	if err != nil {
		b.Fatal(err)
	}
	if handler != nil {
		if err := r.HandleFunc("order.placed", handler); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// BenchmarkDrain delivers a backlog of 100,000 messages to a publisher that does nothing.
func BenchmarkDrain(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.StopTimer()
		s := benchStore(b, "")
		publish(b.Context(), b, s, benchMessages(n)...)
		p := &counter{want: n, done: make(chan struct{})}
		b.StartTimer()
		stop := run(b, s, relay.Config{Publisher: p}, nil)
		<-p.done
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkLatency publishes 200 messages a second, each in its own transaction, and measures the time from the commit to
// the handler in the same process.
func BenchmarkLatency(b *testing.B) {
	s := benchStore(b, "_pragma=synchronous(full)")
	o, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		b.Fatal(err)
	}
	arrived := make(chan time.Time, 1)
	defer run(b, s, relay.Config{}, func(context.Context, *postrider.Message) error {
		arrived <- time.Now()
		return nil
	})()
	var took []time.Duration
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for b.Loop() {
		<-pace.C
		_, err := o.InTx(b.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "order/1", Payload: make([]byte, 500)})
			return err
		})
		committed := time.Now()
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-arrived).Sub(committed))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
