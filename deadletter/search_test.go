package deadletter_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// slow is a store on which each reading takes a while.
type slow struct {
	*memory.Store
	reading time.Duration
	// unmarked: there are always causes without a fingerprint.
	unmarked bool
}

func (s slow) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	time.Sleep(s.reading)
	return s.Store.View(ctx, op, f)
}

func (s slow) MarkCauses(context.Context) (bool, error) {
	time.Sleep(s.reading)
	return s.unmarked, nil
}

// reasons returns what a search has left out, and checks that it says so in words.
func reasons(t *testing.T, e store.Extent) (out []store.GapReason) {
	t.Helper()
	if e.Complete != (len(e.Incomplete) == 0) {
		t.Errorf("complete is %v, with gaps %+v", e.Complete, e.Incomplete)
	}
	for _, gap := range e.Incomplete {
		if !strings.HasSuffix(gap.Text, ".") {
			t.Errorf("gap %q is no sentence", gap.Text)
		}
		out = append(out, gap.Reason)
	}
	return out
}

func TestSearchStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes
		for _, tt := range []struct {
			n, total int
			complete bool
		}{
			{0, 0, true}, {store.SearchLimit, store.SearchLimit, true}, {store.SearchLimit + 1, store.SearchLimit, false},
		} {
			d := deadletter.New(withDead(t, memory.Config{}, tt.n))
			var listed []int64
			found, err := d.FindDead(t.Context(), store.DeadFilter{}, 0, 10, func(l store.DeadLetter) { listed = append(listed, l.Number) })
			must(t, err)
			if got := reasons(t, found.Extent); found.Complete != tt.complete || !tt.complete && got[0] != store.GapDeadLetters || int(found.Total) != tt.total {
				t.Errorf("of %d dead letters, %d were found: %v", tt.n, found.Total, got)
			}
			if len(listed) != min(10, tt.n) || tt.n > 10 && found.Next != listed[9] {
				t.Errorf("of %d dead letters, the first page has %v, and goes on after %d", tt.n, listed, found.Next)
			}
			causes, err := d.CountCauses(t.Context(), store.DeadFilter{}, 10)
			must(t, err)
			if causes.Complete != tt.complete || tt.n > 0 && (int(causes.Causes[0].DeadLetters) != tt.total || causes.Causes[0].AtLeast == tt.complete) {
				t.Errorf("causes of %d dead letters: %+v", tt.n, causes)
			}
		}
	})
}

// TestSearchStopsInTime: it goes on where it stopped until it has found what it is for, and says from when on.
func TestSearchStopsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deadletter.New(slow{Store: withDead(t, memory.Config{}, 35_000), reading: 1100 * time.Millisecond})
		after, pages := int64(0), 0
		for id := ""; id == ""; pages++ {
			begun := time.Now()
			found, err := d.FindDead(t.Context(), store.DeadFilter{Cause: "order 34999 "}, after, 10, func(l store.DeadLetter) { id = l.Message.ID })
			must(t, err)
			if got := reasons(t, found.Extent); found.Complete || got[0] != store.GapTime || found.Incomplete[0].Until.IsZero() {
				t.Fatalf("page %d: %+v", pages, found)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("page %d took %s", pages, took)
			}
			if id == "" && found.Next <= after || id != "" && (id != "m-34999" || found.Total != 1) {
				t.Fatalf("page %d found %q and goes on after %d: %+v", pages, id, found.Next, found)
			}
			after = found.Next
		}
		if pages != 4 {
			t.Errorf("found on page %d, want the fourth", pages)
		}
		causes, err := d.CountCauses(t.Context(), store.DeadFilter{}, 10)
		must(t, err)
		if got := reasons(t, causes.Extent); len(got) != 1 || got[0] != store.GapTime || len(causes.Causes) != 1 ||
			causes.Causes[0].DeadLetters != 10_000 || causes.Causes[0].Cause != "order 34999 is unknown" {
			t.Errorf("causes: %+v", causes)
		}
	})
}

// TestSearchSaysEverythingItLeftOut: causes are not grouped yet, and there are more dead letters than are looked at.
func TestSearchSaysEverythingItLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deadletter.New(slow{Store: withDead(t, memory.Config{}, store.SearchLimit+1), reading: 10 * time.Millisecond, unmarked: true})
		causes, err := d.CountCauses(t.Context(), store.DeadFilter{}, 10)
		must(t, err)
		f := store.DeadFilter{Fingerprint: causes.Causes[0].Fingerprint, Cause: "order"}
		found, err := d.FindDead(t.Context(), f, 0, 5, func(store.DeadLetter) {})
		must(t, err)
		if got := reasons(t, found.Extent); !slices.Equal(got, []store.GapReason{store.GapCauses, store.GapDeadLetters}) {
			t.Errorf("a search for a cause left out %v", got)
		}
	})
}

func TestSearchSaysThatCausesAreNotGrouped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deadletter.New(slow{withDead(t, memory.Config{}, 10), 100 * time.Millisecond, true})
		causes, err := d.CountCauses(t.Context(), store.DeadFilter{}, 10)
		must(t, err)
		if got := reasons(t, causes.Extent); len(got) != 1 || got[0] != store.GapCauses || causes.Causes[0].DeadLetters != 10 || !causes.Causes[0].AtLeast {
			t.Errorf("causes: %+v", causes)
		}
		found, err := d.FindDead(t.Context(), store.DeadFilter{Fingerprint: causes.Causes[0].Fingerprint}, 0, 5, func(store.DeadLetter) {})
		must(t, err)
		if got := reasons(t, found.Extent); len(got) != 1 || got[0] != store.GapCauses || found.Total != 10 {
			t.Errorf("dead letters of a cause: %+v", found)
		}
	})
}

// TestSearchOfManyCauses: a cause of which each piece has few may be one of the most frequent.
func TestSearchOfManyCauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withDead(t, memory.Config{}, 0)
		var dead []store.ParkRequest
		for i := range 12_000 {
			dead = append(dead, request(i, strings.Repeat("x", i%1_500)))
		}
		deadLetter(t, s, dead)
		causes, err := deadletter.New(s).CountCauses(t.Context(), store.DeadFilter{}, 10)
		must(t, err)
		if got := reasons(t, causes.Extent); len(got) != 1 || got[0] != store.GapCauses || len(causes.Causes) != 10 || !causes.Causes[0].AtLeast {
			t.Errorf("causes: %+v", causes)
		}
	})
}
