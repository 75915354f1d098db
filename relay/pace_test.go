package relay

import (
	"testing"
	"time"

	"github.com/postrider/postrider/observe"
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
		if p.note(observe.WokenByPoll, step.found, now); p.fast != step.fast {
			t.Errorf("%d messages after %s: fast is %v", step.found, step.after, p.fast)
		}
	}
}

// TestPaceOfEmptyWakeups: a poll in between means that there is no storm.
func TestPaceOfEmptyWakeups(t *testing.T) {
	t.Parallel()
	var p pace
	for i, step := range []struct {
		by    observe.WokenBy
		found int
		times int
		want  time.Duration
	}{
		{observe.WokenByCommit, 0, manyEmpty - 1, 0},
		{observe.WokenByCommit, 0, 10, time.Second},
		{observe.WokenByCommit, 1, 1, 0},
		{observe.WokenByCommit, 0, manyEmpty, time.Second},
		{observe.WokenByPoll, 0, 1, 0},
	} {
		for range step.times {
			p.note(step.by, step.found, time.Time{})
		}
		if got := p.gatherFor(time.Second); got != step.want {
			t.Errorf("step %d: a wake-up waits for %s, want %s", i+1, got, step.want)
		}
	}
}
