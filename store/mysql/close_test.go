package mysqlstore

import (
	"slices"
	"testing"
	"time"
)

// TestGapsAreClosedAfterTheClockWasSetBack checks that gaps are closed after the usual wait, not earlier, and not only when the
// clock is back where it was.
func TestGapsAreClosedAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{CloseGapAfter: 5 * time.Second}}
	candidates := func(now time.Duration, end int64, missing ...int64) gaps {
		g := &freshGroup{end: end}
		p := &partitionFetch{group: g}
		for _, seq := range missing {
			p.gaps = p.gaps.add(span{seq, seq})
		}
		f := &fetch{s: s, now: (1_000_000*time.Second + now).Microseconds(), groups: []*freshGroup{g}, parts: []*partitionFetch{p}}
		return s.closing.candidates(f)
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	candidates(0, 10, 4)
	if got, want := candidates(seconds(6), 10, 4), (gaps{{4, 4}}); !slices.Equal(got, want) {
		t.Fatalf("candidates are %v, want %v", got, want)
	}
	s.closing.note([]int64{4}, (1_000_000*time.Second + seconds(7)).Microseconds()) // a transaction writes there
	back := -time.Hour
	if got := candidates(back, 20, 4, 15); slices.Contains(got, span{15, 15}) {
		t.Errorf("a sequence that has only now been missed is a candidate: %v", got)
	}
	candidates(back+seconds(6), 20, 4, 15)
	if got, want := candidates(back+seconds(12), 20, 4, 15), (gaps{{4, 4}, {15, 15}}); !slices.Equal(got, want) {
		t.Errorf("12 s after the clock was set back candidates are %v, want %v", got, want)
	}
}
