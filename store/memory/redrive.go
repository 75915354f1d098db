package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// AddRedrive implements store.Writer.
func (r records) AddRedrive(_ context.Context, added store.Redrive) (int64, error) {
	r.db.lastRedrive++
	added.ID = r.db.lastRedrive
	added.Filter.Numbers = slices.Clone(added.Filter.Numbers)
	r.db.redrives = append(r.db.redrives, &added)
	return added.ID, nil
}

// Redrive implements store.Reader.
func (r records) Redrive(_ context.Context, id int64) (store.Redrive, error) {
	i, found := slices.BinarySearchFunc(r.db.redrives, id, func(r *store.Redrive, id int64) int { return cmp.Compare(r.ID, id) })
	if !found {
		return store.Redrive{}, fmt.Errorf("redrive %d: %w", id, store.ErrNoRedrive)
	}
	return *r.db.redrives[i], nil
}

// LockRedrive implements store.Writer.
func (r records) LockRedrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.Redrive(ctx, id)
}

// SaveRedrive implements store.Writer.
func (r records) SaveRedrive(_ context.Context, saved store.Redrive) error {
	i := slices.IndexFunc(r.db.redrives, func(r *store.Redrive) bool { return r.ID == saved.ID })
	*r.db.redrives[i] = saved
	return nil
}

// Redrives implements store.Reader.
func (r records) Redrives(_ context.Context, state store.RedriveState, before int64, limit int) (out []store.Redrive, _ error) {
	for _, r := range slices.Backward(r.db.redrives) {
		if r.ID < before && (state == "" || state == r.State) && len(out) < limit {
			out = append(out, *r)
		}
	}
	return out, nil
}

// Redriven implements store.Reader.
func (r records) Redriven(_ context.Context, id, after int64) (n store.Redriven, _ error) {
	for _, l := range r.db.deadRows {
		if l.Redrive != id || l.Number <= after || l.Message.Type == store.ErasedType {
			continue
		}
		n.Found++
		rel := r.db.relay(l.Relay)
		if rel.latest[l.Message.Sequence] != l {
			n.Dead++
		} else if p := rel.parked[l.Partition].rows[l.Message.Sequence]; p != nil {
			if n.Parked++; p.attempts > 0 {
				n.Failing++
			}
		}
	}
	return n, nil
}

// redrive resolves a dead letter and parks its message, due at once. If its key is held, the message is queued with the key's
// other messages, in sequence order; a key that waited for the decision about this dead letter resumes.
func (db *database) redrive(l *deadRow, id int64, by string, at time.Time) {
	parked := db.relay(l.Relay).parked[l.Partition]
	h := parked.waitsFor(l)
	l.close(store.DeadRedriven, by, "", at)
	l.Redrive = id
	row := &parkedRow{
		msg: l.Message, undecodable: l.undecodable, size: l.size, key: l.Message.Key, dueAt: at, parkedAt: at,
		reason: store.ParkRedriven, redrives: l.Redrives + 1, history: remember(l.History, 0, at, "redriven by "+by),
	}
	if parked.held[row.key] != nil {
		row.waits, row.dueAt = true, time.Time{}
	}
	parked.put(row)
	if h != nil {
		h = parked.resumed(h, at)
		h.cause = ""
		if h.seq == l.Message.Sequence {
			h.reason, h.attempts = store.ParkRedriven, 0
		}
		parked.putHeld(h)
	}
}

// purgeRedrives removes redrives that ended at least keep ago, at most store.PurgeRedrives of them.
func (db *database) purgeRedrives(keep time.Duration, at time.Time) {
	if keep <= 0 {
		return
	}
	left := store.PurgeRedrives
	db.redrives = slices.DeleteFunc(db.redrives, func(r *store.Redrive) bool {
		gone := r.State != store.RedriveRunning && at.Sub(r.EndedAt) >= keep.Truncate(time.Microsecond) && left > 0
		if gone {
			left--
		}
		return gone
	})
}
