package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

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
			seq    int64
			late   bool // with another one after it, so that the cursor cannot be there
			last   bool
			next   store.Cursor
			done   bool
			ticket uint64
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
					model = append(model, ref{late: true, last: true, next: b.Next, done: true})
				}
			} else if len(open) > 0 {
				i := rng.IntN(len(open))
				model[open[i]].done = true
				tr.finish(model[open[i]].ticket)
				open = append(open[:i], open[i+1:]...)
			}
			tr.advance()
			for len(model) > 0 && model[0].done {
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
