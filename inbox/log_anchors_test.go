package inbox

import (
	"context"
	"log/slog"
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

// otherLog has none of the messages that it is asked for.
type otherLog struct{ postrider.Log }

func (otherLog) VerifyPosition(context.Context, postrider.Position) (postrider.PositionState, error) {
	return postrider.PositionReplaced, nil
}

// TestMissingInAnotherLog: what was missing in a log says nothing about the offsets of the next one, which are reported if it loses them.
func TestMissingInAnotherLog(t *testing.T) {
	t.Parallel()
	c := &Consumer[any]{}
	c.cfg.Logger = slog.New(slog.DiscardHandler)
	r := &logRun[any]{ctx: t.Context(), src: &logSource[any]{c: c, log: otherLog{}}}
	p := store.LogPosition{
		Number: 7, Incarnation: "old", Offset: 120, Missing: 10, MissingFrom: 91, MissingTo: 100, Anchors: []store.LogAnchor{{Offset: 120, Mark: "m"}},
	}
	if changed, err := r.resume(&p, postrider.LogPartition{Incarnation: "new", First: 1, End: 30}); !changed || err != nil || p.Offset != 0 {
		t.Fatalf("resumes with %+v, %v; want the beginning of the new log", p, err)
	}
	if _, err := r.resume(&p, postrider.LogPartition{Incarnation: "new", First: 21, End: 30}); err != nil || p.Missing != 30 || p.MissingTo != 20 {
		t.Errorf("resumes with %+v, %v; want that 20 more messages are missing", p, err)
	}
}
