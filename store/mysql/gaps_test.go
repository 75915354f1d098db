package mysqlstore

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// members returns the sequences in gaps, up to a bound.
func (g gaps) members(upTo int64) map[int64]bool {
	out := make(map[int64]bool)
	for _, s := range g {
		for seq := s.from; seq <= min(s.to, upTo); seq++ {
			out[seq] = true
		}
	}
	return out
}

// gapsOf converts a set to gaps.
func gapsOf(in map[int64]bool) gaps {
	var g gaps
	for seq := range int64(200) {
		if in[seq] {
			g = g.add(span{seq, seq})
		}
	}
	return g
}

// TestGapsAreASet compares every operation with the same operation on a set.
func TestGapsAreASet(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	some := func() map[int64]bool {
		out := make(map[int64]bool)
		for seq := int64(1); seq < 100; seq++ {
			if rng.IntN(3) > 0 != (seq%17 < 5) {
				out[seq] = true
			}
		}
		return out
	}
	for range 500 {
		a, b := some(), some()
		at := rng.Int64N(110)
		ga, gb := gapsOf(a), gapsOf(b)
		merged, without := ga.merge(gb).members(200), ga.without(slices.Sorted(keys(b))).members(200)
		upTo, beyond := ga.upTo(at).members(200), ga.beyond(at).members(200)
		for seq := range int64(120) {
			for what, pair := range map[string][2]bool{
				"contains": {ga.contains(seq), a[seq]}, "merge": {merged[seq], a[seq] || b[seq]}, "without": {without[seq], a[seq] && !b[seq]},
				"upTo": {upTo[seq], a[seq] && seq <= at}, "beyond": {beyond[seq], a[seq] && seq > at},
			} {
				if pair[0] != pair[1] {
					t.Fatalf("%s of %d at %d: %t, want %t\n%v\n%v", what, seq, at, pair[0], pair[1], ga, gb)
				}
			}
		}
		first, missing := int64(0), ga.upTo(at)
		if len(missing) > 0 {
			first = missing[0].from
		}
		if solid := ga.solid(at); len(missing) > 0 && solid != first-1 || len(missing) == 0 && solid != at {
			t.Fatalf("solid at %d is %d for %v", at, solid, ga)
		}
		back, err := parseGaps(ga.encode())
		if err != nil || !slices.Equal(back, ga) {
			t.Fatalf("%v is written as %q and read as %v, %v", ga, ga.encode(), back, err)
		}
	}
}

func TestConditionOfGaps(t *testing.T) {
	t.Parallel()
	got := gaps{{3, 3}, {5, 9}, {11, 11}}.condition("seq")
	if want := "(seq BETWEEN 3 AND 11 AND (seq BETWEEN 5 AND 9 OR seq IN (3,11)))"; got != want {
		t.Errorf("condition %s, want %s", got, want)
	}
}

func keys(m map[int64]bool) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func FuzzParseGaps(f *testing.F) {
	f.Add("1")
	f.Add("3+2,1,zz+7")
	f.Add("9223372036854775807")
	f.Add("1+1y2p0ij32e8e7,1")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := parseGaps(text)
		if err != nil {
			return
		}
		last := int64(0)
		for _, s := range g {
			if s.from <= last || s.to < s.from {
				t.Fatalf("%q is read as %v", text, g)
			}
			last = s.to
		}
		if back, err := parseGaps(g.encode()); err != nil || !slices.Equal(back, g) {
			t.Fatalf("%q is read as %v, which reads back as %v, %v", text, g, back, err)
		}
	})
}
