package relay

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var p pace
	for _, step := range []struct {
		after time.Duration
		found int
		fast  bool
	}{
		{0, 5000, false},                     // a backlog when the relay starts says nothing about the pace
		{10 * time.Millisecond, 1000, false}, // the window is not over
		{40 * time.Millisecond, 0, true},     // 1,000 in 50 ms
		{20 * time.Millisecond, 0, true},
		{30 * time.Millisecond, 99, false}, // 99 in 50 ms
		{50 * time.Millisecond, 100, true},
		{time.Hour, 0, false},
	} {
		now = now.Add(step.after)
		if p.note(step.found, now); p.fast != step.fast {
			t.Errorf("%d messages after %s: fast is %v", step.found, step.after, p.fast)
		}
	}
}
