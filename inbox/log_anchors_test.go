package inbox

import (
	"math/rand/v2"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// TestAnchors: however many messages a log has lost, an anchor is among those that it kept, not much further back; and there are few
// anchors.
func TestAnchors(t *testing.T) {
	t.Parallel()
	for _, longest := range []int64{1, 7, 1_000, 100_000} {
		rng := rand.New(rand.NewPCG(1, uint64(longest)))
		var anchors []store.LogAnchor
		at := int64(0)
		for step := range 5_000 {
			at += 1 + rng.Int64N(longest)
			anchors = addAnchor(anchors, postrider.Position{Offset: at, Mark: "m"})
			if len(anchors) > 2*64+newestAnchors {
				t.Fatalf("%d anchors after %d moves", len(anchors), step+1)
			}
			for lost := int64(1); lost < at; lost *= 2 {
				kept := int64(0)
				for _, a := range anchors {
					if a.Offset <= at-lost {
						kept = a.Offset
					}
				}
				if lost < newestAnchors && longest == 1 && kept != max(at-lost, 0) {
					t.Fatalf("of %d lost messages, reading resumes at %d, want %d", lost, kept, at-lost)
				}
				if back := at - kept; back > 4*lost+2*longest {
					t.Fatalf("moves of up to %d: of %d lost messages, reading resumes %d back", longest, lost, back)
				}
			}
		}
	}
}
