package relay

import (
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// TestDueFrom: parked messages are read from the first on with leases that the last read did not have, and from time to time.
func TestDueFrom(t *testing.T) {
	t.Parallel()
	a, b, again := store.LeaseRef{Partition: 1, Token: "a"}, store.LeaseRef{Partition: 2, Token: "b"}, store.LeaseRef{Partition: 1, Token: "c"}
	now := time.Now()
	at, d := now.Add(-time.Hour), &dueFrom{}
	for _, step := range []struct {
		name   string
		leases []store.LeaseRef
		after  time.Duration
		all    bool
	}{
		{"first", []store.LeaseRef{a}, 0, true},
		{"the same lease", []store.LeaseRef{a}, time.Second, false},
		{"another one too", []store.LeaseRef{b, a}, 0, true},
		{"both", []store.LeaseRef{a, b}, time.Second, false},
		{"one of them", []store.LeaseRef{b}, 0, false},
		{"the other one again", []store.LeaseRef{a, b}, 0, true},
		{"a new lease of a partition", []store.LeaseRef{again, b}, 0, true},
		{"shortly before it is time", []store.LeaseRef{again, b}, fullDueEvery - 1, false},
		{"it is time", []store.LeaseRef{again, b}, 1, true},
		{"after that", []store.LeaseRef{again, b}, 0, false},
		{"without a lease", nil, fullDueEvery - 1, false},
	} {
		now = now.Add(step.after)
		req := store.DueRequest{Leases: step.leases, From: d.request(step.leases, now)}
		if all := req.From.IsZero(); all != step.all || !all && !req.From.Equal(at) {
			t.Errorf("%s: from %v, want everything %v", step.name, req.From, step.all)
		}
		at = at.Add(time.Second)
		d.answered(&req, &store.DueResult{From: at}, now)
	}
}
