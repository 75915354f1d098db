package resilience_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/resilience"
	memorystore "github.com/postrider/postrider/store/memory"
)

// TestRelayNextToASlowDependency: what the handlers of a relay with 16 workers call answers after 30 s, and no longer after 50 ms. The
// breaker is open within 12 s, and the messages of another relay in the same process wait no longer than before.
func TestRelayNextToASlowDependency(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, resilience.Config{}).Operation("payment")
		s := memorystore.New(memorystore.Config{Partitions: 4})
		var slow atomic.Bool
		var calls, most, latest atomic.Int64
		runTopic(t, s, "slow", resilience.Handler(o, func(ctx context.Context, _ *postrider.Message) error {
			most.Store(max(most.Load(), calls.Add(1)))
			defer calls.Add(-1)
			answer := 50 * time.Millisecond
			if slow.Load() {
				answer = 30 * time.Second
			}
			select {
			case <-time.After(answer):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		runTopic(t, s, "fast", func(_ context.Context, m *postrider.Message) error {
			latest.Store(max(latest.Load(), int64(time.Since(m.Time))))
			return nil
		})
		publish := func(during time.Duration) (longest time.Duration) {
			latest.Store(0)
			for n := range during / (100 * time.Millisecond) {
				at := time.Now()
				commit(t, s, []*postrider.Message{
					{ID: postrider.NewID(), Type: "t", Topic: "slow", Key: fmt.Sprint(n), Time: at},
					{ID: postrider.NewID(), Type: "t", Topic: "fast", Key: fmt.Sprint(n), Time: at},
				})
				pass(100 * time.Millisecond)
			}
			return time.Duration(latest.Load())
		}
		normal := publish(10 * time.Second)
		slow.Store(true)
		longest := publish(12 * time.Second)
		if o.State().Breaker != resilience.BreakerOpen || most.Load() > 16*(1+4) { // with those that are slow and no longer have a worker
			t.Errorf("after 12 s: %+v; %d calls at a time", o.State(), most.Load())
		}
		longest = max(longest, publish(time.Minute))
		if longest > max(2*normal, 10*time.Millisecond) {
			t.Errorf("a message of the other relay waited for %s, before for %s", longest, normal)
		}
	})
}

// runTopic runs a relay of the topic that has its name.
func runTopic(t *testing.T, s *memorystore.Store, name string, h postrider.Handler) {
	t.Helper()
	r, err := relay.New(s, relay.Config{Name: name, Topics: []string{name}, Concurrency: 16, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = r.HandleFunc("t", h)
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
}
