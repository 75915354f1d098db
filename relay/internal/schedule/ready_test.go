package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFreshAndParkedShareTwoToOne(t *testing.T) {
	t.Parallel()
	s := New[int](Config{})
	for range 100 {
		s.ready(unit[int]{item: &Item[int]{}})
		s.ready(unit[int]{item: &Item[int]{run: &run{}}})
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
	for s.Ready() > 0 {
		s.next()
	}
}

func TestQueueGivesTheOldestFirst(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	var q readyQueue[int]
	var model, taken []*Item[int]
	order := uint64(0)
	for range 20_000 {
		switch rng.IntN(5) {
		case 0, 1:
			order++
			it := &Item[int]{order: order}
			q.push(unit[int]{item: it})
			model = append(model, it)
		case 2: // one comes back
			if n := len(taken); n > 0 {
				i := rng.IntN(n)
				it := taken[i]
				taken = slices.Delete(taken, i, i+1)
				q.push(unit[int]{item: it})
				at, _ := slices.BinarySearchFunc(model, it, func(a, b *Item[int]) int { return cmp.Compare(a.order, b.order) })
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
