package inbox

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// A position is only as good as the log that it belongs to. A log that is restored from a backup, or whose new leader lacks the
// tail, reuses offsets, and nobody says so. So a position has anchors, messages of the log whose distances from it double, and
// each of them is compared with the log: the newest before anything is read and before the position moves, the older ones to
// find out up to where the log is the same. Reading resumes there, at most about twice as far back as the log has changed, and
// what was processed is recognized by its ID.

// So many of the newest anchors all stay: on a slow log, where a message can be older than its ID is kept, each of the last
// messages is an anchor.
const newestAnchors = 64

// addAnchor returns the anchors with one more at the end. Beyond the newest ones, of those at similar distances from it, the oldest
// and the newest stay: the one moves on to the next distance while the other is young.
func addAnchor(anchors []store.LogAnchor, at postrider.Position) []store.LogAnchor {
	out := make([]store.LogAnchor, 0, len(anchors)+1)
	distance := func(a store.LogAnchor) int { return bits.Len64(uint64(at.Offset - a.Offset)) }
	for i, a := range anchors {
		switch {
		case a.Offset >= at.Offset:
			continue
		case i > 0 && i < len(anchors)-newestAnchors && distance(anchors[i-1]) == distance(a) && distance(anchors[i+1]) == distance(a):
			continue
		}
		out = append(out, a)
	}
	if at.Mark == "" {
		return out
	}
	return append(out, store.LogAnchor{Offset: at.Offset, Mark: at.Mark})
}

// locate compares a position with the log, and moves it back to where the log is still the same if it is another one now.
func locate(ctx context.Context, log postrider.Log, p *store.LogPosition, now postrider.LogPartition) (replaced bool, err error) {
	replaced = p.Offset > now.End || len(p.Anchors) == 0 && p.Incarnation != now.Incarnation && p.Offset >= now.First
	kept := -1
	for i, a := range slices.Backward(p.Anchors) {
		state, err := verify(ctx, log, postrider.Position{Incarnation: p.Incarnation, Partition: p.Partition, Offset: a.Offset, Mark: a.Mark})
		if err != nil {
			return false, err
		}
		if state == postrider.PositionKept {
			kept = i
			break
		}
		replaced = replaced || state == postrider.PositionReplaced
	}
	if p.Incarnation = now.Incarnation; !replaced {
		return false, nil
	}
	p.Replaced++
	p.Anchors = p.Anchors[:kept+1]
	if p.Offset = now.First - 1; kept >= 0 {
		p.Offset = p.Anchors[kept].Offset
	}
	return true, nil
}

// verifyTimeout limits a request to the broker.
const verifyTimeout = 10 * time.Second

// verify asks the log whether it still has a message.
func verify(ctx context.Context, log postrider.Log, at postrider.Position) (postrider.PositionState, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	state, err := log.VerifyPosition(ctx, at)
	if err != nil {
		return 0, fmt.Errorf("compare offset %d of %s with the log: %w", at.Offset, at.Partition, err)
	}
	return state, nil
}
