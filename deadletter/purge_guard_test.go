package deadletter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store/memory"
)

// TestPurgeWhileARedriveRuns: the first message of a redrive waits (its consumer is down, its key is held), and another operator purges what
// was resolved more than a minute ago. The redrive must neither go on nor say that the message was delivered.
func TestPurgeWhileARedriveRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := withDead(t, memory.Config{}, 10)
		s := deadletter.New(db)
		r, err := s.StartRedrive(t.Context(), deadletter.Plan{First: true, By: "olga"})
		must(t, err)
		step := func() {
			for range 3 {
				next, wait, err := s.StepRedrive(t.Context(), r.ID, 0)
				must(t, err)
				r = next
				time.Sleep(wait)
			}
		}
		step()
		if r.Done != 1 {
			t.Fatalf("sent %d, want the first one", r.Done)
		}
		time.Sleep(2 * time.Minute)
		p, err := s.Purge(t.Context(), deadletter.PurgePlan{ResolvedFor: time.Minute, By: "eva"}, nil)
		must(t, err)
		step()
		if r.Done != 1 {
			t.Errorf("after a purge of %d, the redrive has sent back %d; nobody has handled the first one", p.Removed, r.Done)
		}
		shown, err := s.ShowRedrive(t.Context(), r.ID)
		must(t, err)
		if shown.Outcome.Delivered != 0 {
			t.Errorf("the redrive says that %d were delivered: %+v", shown.Outcome.Delivered, *shown.Outcome)
		}
	})
}
