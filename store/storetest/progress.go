package storetest

import (
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// progressIsFound: the notes of several processes of a relay say when a message was passed, and by which of them. Those of a relay whose
// name begins alike are not looked at.
func progressIsFound(e *env) {
	note := func(relay, by string, partition int, after, upTo int64) time.Time {
		e.t.Helper()
		e.clockMoves(2 * time.Millisecond)
		at, err := stored.NoteProgress(e.ctx, e.database, stored.Progress{
			Relay: relay, By: by, Partitions: map[int]stored.Passed{partition: {After: after, UpTo: upTo}},
		}, time.Hour)
		e.must(err, "note the progress")
		return at
	}
	began := note("r", "a", 1, 0, 10)
	note("r/0", "other", 1, 0, 100)
	first := note("r", "a", 1, 10, 20)
	note("r", "b", 2, 0, 100)
	last := note("r", "b", 1, 30, 40) // a ended before it could note 21 to 30
	for _, tt := range []struct {
		sequence int64
		by       string
		from     time.Time // when it was noted, at the earliest
	}{
		{1, "a", began}, {10, "a", began}, {11, "a", first}, {20, "a", first}, {25, "", last}, {31, "b", last}, {41, "", time.Time{}},
	} {
		e.viewRecords(func(r store.Reader) error {
			at, p, err := stored.FindPassed(e.ctx, r, "r", 1, tt.sequence, began.Add(-time.Second))
			by := ""
			if p != nil {
				by = p.By
			}
			if by != tt.by || at.IsZero() != tt.from.IsZero() || at.Before(tt.from) {
				e.t.Errorf("message %d was passed at %v by %q, want %q from %v on", tt.sequence, at, by, tt.by, tt.from)
			}
			return err
		})
	}
}
