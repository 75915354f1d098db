package faults

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/itest/crash"
)

// TestJumps: a checker that finds nothing proves nothing.
func TestJumps(t *testing.T) {
	t.Parallel()
	var steps []crash.Fact
	for n := range int64(4) {
		steps = append(steps, crash.Fact{Account: 1, Counter: n + 1, Transaction: n})
	}
	phantom := crash.Fact{Account: 1, Counter: 3, Transaction: 99}
	for name, tt := range map[string]struct {
		delivered []crash.Fact
		want      int
	}{
		"in order":                   {steps, 0},
		"back, and on in order":      {[]crash.Fact{steps[0], steps[1], steps[2], steps[1], steps[2], steps[3]}, 0},
		"back, and on with a gap":    {[]crash.Fact{steps[0], steps[1], steps[2], steps[0], steps[2], steps[3]}, 1},
		"begun late":                 {steps[1:], 1},
		"a phantom does not count":   {[]crash.Fact{steps[0], steps[1], phantom, steps[2], steps[3]}, 0},
		"it does not fill a gap too": {[]crash.Fact{steps[0], steps[1], phantom, steps[3]}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := jumps(steps, tt.delivered); len(got) != tt.want {
				t.Errorf("got %q, want %d", got, tt.want)
			}
		})
	}
}

// TestOverlaps: two concurrent calls of a key are detected, unless the first one's caller has gone.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		second int64         // account of the second call
		gone   time.Duration // when the first one's caller goes away
		want   int
	}{
		"same key": {1, time.Hour, 1}, "other keys": {2, time.Hour, 0}, "the first was given up": {1, 15 * time.Millisecond, 0},
		"the first was given up, and hears of it late": {1, 50 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				r.work = 20 * time.Millisecond
				first, cancel := context.WithTimeout(t.Context(), tt.gone)
				defer cancel()
				var calls sync.WaitGroup
				calls.Go(func() { _ = r.take(first, crash.Fact{Account: 1}) })
				time.Sleep(10 * time.Millisecond)
				calls.Go(func() { _ = r.take(t.Context(), crash.Fact{Account: tt.second}) })
				calls.Wait()
				if len(r.overlaps) != tt.want {
					t.Errorf("got %q, want %d", r.overlaps, tt.want)
				}
			})
		})
	}
}
