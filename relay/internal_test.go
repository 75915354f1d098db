package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

// TestShareSettles lets processes come, go and act on what they see, in any order, and expects a fair and stable end.
func TestShareSettles(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		total, alive := 1+rng.IntN(20), 1+rng.IntN(8)
		holdings := make(map[string]int)
		free := total
		for range 30 {
			o := fmt.Sprint("p", rng.IntN(alive)) // any start
			n := rng.IntN(free + 1)
			holdings[o] += n
			free -= n
		}
		act := func(o string) bool {
			present := make(map[string]int)
			for k, v := range holdings {
				if v > 0 {
					present[k] = v
				}
			}
			want, surplus := share(total, alive, present, o)
			want = min(want, free)
			holdings[o] += want - surplus
			free += surplus - want
			return want+surplus > 0
		}
		for range 40 * alive {
			act(fmt.Sprint("p", rng.IntN(alive)))
		}
		quiet := true
		for i := range alive {
			quiet = !act(fmt.Sprint("p", i)) && quiet
		}
		low, high := total/alive, (total+alive-1)/alive
		for i := range alive {
			if n := holdings[fmt.Sprint("p", i)]; n < low || n > high {
				t.Errorf("seed %d: %d partitions, %d processes: one holds %d (%v)", seed, total, alive, n, holdings)
			}
		}
		if free != 0 || !quiet {
			t.Errorf("seed %d: %d free, quiet %v, %v", seed, free, quiet, holdings)
		}
	}
}

func TestBackoffStaysUnderItsCeiling(t *testing.T) {
	t.Parallel()
	r := &Relay{cfg: Config{BackoffBase: 200 * time.Millisecond, BackoffMax: time.Minute}}
	for attempts := 1; attempts < 100; attempts++ {
		ceiling := time.Minute
		if attempts < 9 {
			ceiling = min(ceiling, 200*time.Millisecond<<(attempts-1))
		}
		longest := time.Duration(0)
		for range 200 {
			d := r.backoff(attempts)
			if d <= 0 || d > ceiling {
				t.Fatalf("attempt %d: %s is outside (0, %s]", attempts, d, ceiling)
			}
			longest = max(longest, d)
		}
		if longest < ceiling/2 {
			t.Errorf("attempt %d: 200 draws stay under %s of %s", attempts, longest, ceiling)
		}
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	var o outage
	at := time.Now()
	if _, _, ended := o.succeeded(at); ended {
		t.Error("an outage has ended that had not begun")
	}
	for n, want := range []bool{true, false, false} {
		if began := o.failed(at.Add(time.Duration(n) * time.Second)); began != want {
			t.Errorf("failure %d begins an outage: %v, want %v", n, began, want)
		}
	}
	if lasted, failures, ended := o.succeeded(at.Add(time.Minute)); lasted != time.Minute || failures != 3 || !ended {
		t.Errorf("the outage lasted %s with %d failures, ended: %v; want 1m0s, 3, true", lasted, failures, ended)
	}
	if !o.failed(at) {
		t.Error("the next failure does not begin an outage")
	}
}

// TestLeaseThatAWorkerFindsExpired: the observer is told of a lease that was not renewed, even if a worker notices before the
// timer does.
func TestLeaseThatAWorkerFindsExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []observe.LeaseChange
		r, err := New(struct{ store.Relay }{}, Config{Name: "r"})
		if err != nil {
			t.Fatal(err)
		}
		r.observer.Store(&observe.Relay{LeasesChanged: func(c observe.LeaseChange, n int) {
			changes = append(changes, slices.Repeat([]observe.LeaseChange{c}, n)...)
			r.endLife()
		}})
		if err := r.HandleFunc("t", func(context.Context, *postrider.Message) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
		r.hold(&store.Lease{}, time.Now())
		p := r.partitions[0]
		p.expiry.Stop()
		p.Until = time.Now()
		r.admit(p, &store.Batch{Entries: []store.Entry{{Message: &postrider.Message{Sequence: 1}}}}, r.sched.BeginLookup())
		r.gating.paused.Store(false)
		if batch, _ := r.take(nil, &workerSlot{}); len(batch) > 0 || !slices.Equal(changes, []observe.LeaseChange{observe.LeaseExpired}) {
			t.Errorf("%d messages were taken, and the observer was told of %v; want none, and one lease that expired", len(batch), changes)
		}
	})
}

// TestTenRefusals: a partition is dropped after ten refusals of a settlement. Errors that do not say whether it was applied are none.
func TestTenRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := New(struct{ store.Relay }{}, Config{Name: "r", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.HandleFunc("t", func(context.Context, *postrider.Message) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
		r.hold(&store.Lease{}, time.Now())
		p := r.partitions[0]
		p.expiry.Stop()
		s := &sent{partition: p}
		for range 50 {
			r.repeatLater(t.Context(), s, errors.New("the connection is gone"), false)
		}
		for i := range maxRefusals {
			if p.Gone() {
				t.Fatalf("the partition was dropped after %d refusals", i)
			}
			r.repeatLater(t.Context(), s, errors.New("a value that the database cannot store"), true)
		}
		if !p.Gone() {
			t.Errorf("the partition was not dropped after %d refusals", maxRefusals)
		}
	})
}
