package postrider

import (
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestNewIDIsUUIDv7(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 1000 {
		if id := NewID(); !form.MatchString(id) {
			t.Fatalf("%q is not a UUID of version 7 and variant 10", id)
		}
	}
}

func TestNewIDsRiseAndDifferAcrossGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 2000
	all := make([][]string, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				all[g] = append(all[g], NewID())
			}
		})
	}
	wg.Wait()
	seen := make(map[string]bool)
	for _, ids := range all {
		if !slices.IsSorted(ids) {
			t.Error("IDs of one goroutine do not rise")
		}
		for _, id := range ids {
			seen[id] = true
		}
	}
	if len(seen) != goroutines*each {
		t.Errorf("%d different IDs of %d", len(seen), goroutines*each)
	}
}

func TestIDClockRisesWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	var c idClock
	now := time.Now()
	first := c.next(now)
	if second := c.next(now.Add(-time.Hour)); second != first+1 {
		t.Errorf("after setting the clock back the time part went from %x to %x", first, second)
	}
}

func TestIDClockHoldsTheMoment(t *testing.T) {
	t.Parallel()
	var c idClock
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_500_000, time.UTC)
	got := c.next(at)
	if ms := int64(got >> 12); ms != at.UnixMilli() {
		t.Errorf("milliseconds: got %d, want %d", ms, at.UnixMilli())
	}
	if got&0xfff != 2048 {
		t.Errorf("half a millisecond: got %d of 4096, want 2048", got&0xfff)
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewID()
	}
}

func BenchmarkNewIDParallel(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			NewID()
		}
	})
}
