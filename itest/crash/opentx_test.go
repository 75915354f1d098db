package crash

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// slower is the factor by which an open transaction may slow things down.
const slower = 1.5

// TestOpenTransactionSlowsNothing: under load, with an open transaction that has written and holds a snapshot, fetches
// take about as long and a burst is drained about as fast as without. The machine is shared with other tests, so the test
// uses the best of several measurements, and up to three rounds to get within bounds.
func TestOpenTransactionSlowsNothing(t *testing.T) {
	w := newWorld(t, "")
	duration := loadTime(t, 5*time.Second)
	b := w.startBench()
	var found string
	for range 3 {
		load := w.startLoad(duration+patience, 400)
		without := b.measure()
		open := w.beginLongTransaction()
		<-time.After(duration)
		with := b.measure()
		w.commit(open)
		again := b.measure()
		if err := load.Kill(); err != nil {
			t.Fatal(err)
		}
		without.fetch = max(without.fetch, again.fetch)
		without.drain = max(without.drain, again.drain)
		found = fmt.Sprintf("with a transaction open for %s: fetch %s, drain %s; without: fetch %s, drain %s",
			duration, with.fetch, with.drain, without.fetch, without.drain)
		t.Log(found)
		if with.fetch <= scaled(without.fetch) && with.drain <= scaled(without.drain) {
			return
		}
	}
	t.Errorf("more than %.1f times slower: %s", slower, found)
}

func scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * slower) }

// bench is a relay in this process with timed fetches and a publisher that only counts.
type bench struct {
	w     *world
	store *timedStore
	count *counter
}

// timings are the median time of a fetch that found something and the shortest time to drain a burst.
type timings struct{ fetch, drain time.Duration }

func (w *world) startBench() *bench {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(store.Close)
	b := &bench{w: w, store: &timedStore{Store: store}, count: &counter{reached: make(chan struct{}, 1)}}
	r, err := relay.New(b.store, relay.Config{Name: "bench", Publisher: b.count})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	w.t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	return b
}

// measure drains three bursts.
func (b *bench) measure() timings {
	b.w.t.Helper()
	const bursts, size = 3, 10_000
	b.store.take()
	best := timings{drain: patience}
	for range bursts {
		b.count.expect(size)
		if _, err := b.w.connect().Exec(b.w.t.Context(), `select count(postrider_publish('burst', 'burst/' || i % 1000, 'burst', '{}'))
			from generate_series(1, $1) i`, size); err != nil {
			b.w.t.Fatalf("publish a burst: %v", err)
		}
		began := time.Now()
		b.store.Wake()
		select {
		case <-b.count.reached:
			best.drain = min(best.drain, time.Since(began))
		case <-time.After(patience):
			b.w.t.Fatalf("a burst was not drained within %s", patience)
		}
	}
	times := b.store.take()
	if len(times) == 0 {
		b.w.t.Fatal("no fetch found anything")
	}
	slices.Sort(times)
	best.fetch = times[len(times)/2]
	return best
}

// timedStore times the fetches that find something.
type timedStore struct {
	*postgres.Store
	mu    sync.Mutex
	times []time.Duration
}

func (s *timedStore) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	began := time.Now()
	batches, err := s.Store.Fetch(ctx, name, req)
	took := time.Since(began)
	if slices.ContainsFunc(batches, func(b store.Batch) bool { return len(b.Entries) > 0 }) {
		s.mu.Lock()
		s.times = append(s.times, took)
		s.mu.Unlock()
	}
	return batches, err
}

// take returns the times since the last call.
func (s *timedStore) take() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := s.times
	s.times = nil
	return times
}

// counter is a publisher that accepts everything and counts the messages of bursts.
type counter struct {
	mu      sync.Mutex
	missing int
	reached chan struct{}
}

func (c *counter) expect(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = n
}

func (c *counter) Publish(_ context.Context, messages []*postrider.Message) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		if m.Topic != "burst" {
			continue
		}
		if c.missing--; c.missing == 0 {
			c.reached <- struct{}{}
		}
	}
	return nil
}

func (c *counter) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }
