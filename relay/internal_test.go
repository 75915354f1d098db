package relay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// randomBatch has up to 5 records, of which up to 2 were committed late.
func randomBatch(rng *rand.Rand, after int64, snapshot string) store.Batch {
	b := store.Batch{Late: rng.IntN(3)}
	n := rng.IntN(6)
	b.Late = min(b.Late, n)
	for i := range n {
		seq := after + int64(i-b.Late) + 1
		if i < b.Late {
			seq = after
		}
		b.Entries = append(b.Entries, store.Entry{Message: &postrider.Message{Sequence: seq}})
	}
	b.Next = store.Cursor{Position: after + int64(n-b.Late), Snapshot: snapshot}
	return b
}

// TestTrackerMovesOverTheSettledPrefix compares the tracker with a plain list under random orders of settling.
func TestTrackerMovesOverTheSettledPrefix(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var tr tracker
		type ref struct {
			seq     int64
			late    bool // with another one after it, so that the cursor cannot be there
			last    bool
			next    store.Cursor
			settled bool
			ticket  uint64
		}
		var model []ref
		var open []int
		next := int64(0)
		want := store.Cursor{}
		for step := range 200 {
			if rng.IntN(3) == 0 {
				b := randomBatch(rng, next, fmt.Sprint(step))
				n := len(b.Entries)
				ticket := tr.add(&b, next)
				next = b.Next.Position
				for i := range b.Entries {
					open = append(open, len(model))
					model = append(model, ref{b.Entries[i].Message.Sequence, i < b.Late-1, i == n-1, b.Next, false, ticket + uint64(i)})
				}
				if n == 0 {
					model = append(model, ref{late: true, last: true, next: b.Next, settled: true})
				}
			} else if len(open) > 0 {
				i := rng.IntN(len(open))
				model[open[i]].settled = true
				tr.settle(model[open[i]].ticket)
				open = append(open[:i], open[i+1:]...)
			}
			tr.advance()
			for len(model) > 0 && model[0].settled {
				switch e := model[0]; {
				case e.last:
					want = e.next
				case !e.late:
					want = store.Cursor{Position: e.seq, Snapshot: e.next.Snapshot}
				}
				model = model[1:]
				for i := range open {
					open[i]--
				}
			}
			if tr.cursor != want || tr.open() != len(model) {
				t.Fatalf("seed %d step %d: cursor %v with %d open, want %v with %d", seed, step, tr.cursor, tr.open(), want, len(model))
			}
		}
	}
}

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

func TestSchedulerSharesTwoToOne(t *testing.T) {
	t.Parallel()
	var s scheduler
	for range 100 {
		s.ready(unit{item: &item{}})
		s.ready(unit{item: &item{run: &run{}}})
	}
	parked := 0
	for range 90 {
		if s.next().item.run != nil {
			parked++
		}
	}
	if parked != 30 {
		t.Errorf("%d of 90 were parked ones, want 30", parked)
	}
	for s.len() > 0 {
		s.next()
	}
}

func TestQueueGivesTheOldestFirst(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	var q readyQueue
	var model, taken []*item
	order := uint64(0)
	for range 20_000 {
		switch rng.IntN(5) {
		case 0, 1:
			order++
			it := &item{order: order}
			q.push(unit{item: it})
			model = append(model, it)
		case 2: // one comes back
			if n := len(taken); n > 0 {
				i := rng.IntN(n)
				it := taken[i]
				taken = slices.Delete(taken, i, i+1)
				q.push(unit{item: it})
				at, _ := slices.BinarySearchFunc(model, it, func(a, b *item) int { return cmp.Compare(a.order, b.order) })
				model = slices.Insert(model, at, it)
			}
		default:
			if len(model) > 0 {
				got := q.pop().item
				if got != model[0] {
					t.Fatalf("got message %d, want %d", got.order, model[0].order)
				}
				taken, model = append(taken, got), model[1:]
			}
		}
		if q.len() != len(model) {
			t.Fatalf("length %d, want %d", q.len(), len(model))
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
