package deadletter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestRatesOfRedrivesAddUp: two redrives of a relay together keep to its limit, one for all relays too; without the limit, they do not wait.
func TestRatesOfRedrivesAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := deadletter.New(withDead(t, memory.Config{}, 120))
		if err := s.LimitRate(t.Context(), "view", -1); err == nil {
			t.Error("a negative rate is taken")
		}
		must(t, s.LimitRate(t.Context(), "view", 5))
		must(t, s.LimitRate(t.Context(), "view", 10))
		all, err := s.StartRedrive(t.Context(), deadletter.Plan{})
		must(t, err)
		one, err := s.StartRedrive(t.Context(), deadletter.Plan{Filter: store.DeadFilter{Relay: "view"}, Rate: 1000})
		must(t, err)
		began := time.Now()
		sent := func() (n int64) {
			for _, id := range []int64{all.ID, one.ID} {
				r, _, err := s.StepRedrive(t.Context(), id, 0)
				must(t, err)
				n += r.Done
			}
			return n
		}
		for time.Since(began) < 4*time.Second {
			if n, most := sent(), 12+int64(10*time.Since(began).Seconds()); n > most {
				t.Fatalf("%d dead letters are sent after %s, want %d at most", n, time.Since(began), most)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := sent(); n < 30 {
			t.Errorf("%d dead letters are sent in four seconds at 10 a second", n)
		}
		must(t, s.LimitRate(t.Context(), "view", 0))
		if sent(); sent() != 120 {
			t.Errorf("%d of 120 dead letters are sent without a limit", sent())
		}
	})
}
