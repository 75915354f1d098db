package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/stored"
)

// progressLoop notes periodically how far this process has moved the cursors. From that, operators learn when a message was
// delivered and by which process. Nothing is noted if delivered messages are not kept.
func (r *Relay) progressLoop(ctx context.Context) {
	keep := r.cfg.KeepDelivered
	if keep <= 0 {
		return
	}
	var since time.Time
	for attempt.Sleep(ctx, stored.ProgressEvery(keep)) {
		since = r.noteProgress(ctx, since)
	}
}

// noteProgress notes what the cursors have passed since the last note, and returns a time on the database's clock that is not after the
// moment when the cursors were where the note says. What cannot be noted is included in the next note.
func (r *Relay) noteProgress(ctx context.Context, since time.Time) time.Time {
	began := time.Now()
	note := stored.Progress{Relay: r.cfg.Name, By: r.owner.ID, Since: since, Partitions: make(map[int]stored.Passed)}
	r.mu.Lock()
	for id, p := range r.partitions {
		if to := p.Position(); to != p.noted {
			note.Partitions[id] = stored.Passed{After: p.noted, UpTo: to}
		}
	}
	r.mu.Unlock()
	if len(note.Partitions) == 0 {
		return since
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
	defer cancel()
	now, err := stored.NoteProgress(bounded, r.store, note, r.cfg.KeepDelivered)
	if err != nil {
		if ctx.Err() == nil {
			r.cfg.Logger.Debug("the progress cannot be noted and will be noted later", "relay", r.cfg.Name, "error", err)
		}
		return since
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, q := range note.Partitions {
		if p := r.partitions[id]; p != nil && p.noted == q.After {
			p.noted = q.UpTo
		}
	}
	return now.Add(-time.Since(began))
}
