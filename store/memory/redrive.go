package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	n, err := do(ctx, s, "RedriveDead", func(db *database) (int, error) {
		if err := db.checkNamed(f); err != nil {
			return 0, err
		}
		at, n := now(), 0
		for _, l := range db.chooseOpen(f, 0, 0) {
			if !f.Allows(l.Redrives) && len(f.Numbers) > 0 {
				return 0, deadletter.RefuseTooOften(l.Number, l.Redrives)
			}
		}
		for _, l := range db.chooseOpen(f, 0, 0) {
			if n < cmp.Or(limit, defaultBatch) && f.Allows(l.Redrives) {
				db.redrive(l, 0, by, at)
				n++
			}
		}
		return n, nil
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// chooseOpen is choose for open dead letters.
func (db *database) chooseOpen(f deadletter.Filter, after int64, limit int) []*deadRow {
	if f.State != "" && f.State != deadletter.AnyState && f.State != deadletter.Open {
		return nil
	}
	f.State = deadletter.Open
	return db.choose(f, after, limit)
}

// redrive resolves a dead letter and parks its message, due at once. If its key is held, the message is queued with the key's
// other messages, in sequence order; a key that waited for the decision about this dead letter resumes.
func (db *database) redrive(l *deadRow, id int64, by string, at time.Time) {
	parked := db.relay(l.Relay).parked[l.Partition]
	h := parked.waitsFor(l)
	l.close(deadletter.Redriven, by, "", at)
	l.Redrive = id
	row := &parkedRow{
		msg: l.Message, undecodable: l.undecodable, size: l.size, key: l.Message.Key, dueAt: at, parkedAt: at,
		reason: relay.ParkRedriven, redrives: l.Redrives + 1, history: remember(l.History, 0, at, "redriven by "+by),
	}
	if parked.held[row.key] != nil {
		row.waits, row.dueAt = true, time.Time{}
	}
	parked.put(row)
	if h != nil {
		parked.letGo(h, at)
		h.cause = ""
		if h.seq == l.Message.Sequence {
			h.reason, h.attempts = relay.ParkRedriven, 0
		}
	}
}

// StartRedrive implements deadletter.RedriveStore.
func (s *Store) StartRedrive(ctx context.Context, p deadletter.Plan) (deadletter.Redrive, error) {
	if err := p.Validate(); err != nil {
		return deadletter.Redrive{}, err
	}
	r, err := do(ctx, s, "StartRedrive", func(db *database) (deadletter.Redrive, error) {
		if err := db.checkNamed(p.Filter); err != nil {
			return deadletter.Redrive{}, err
		}
		r := &deadletter.Redrive{
			ID: db.lastRedrive + 1, Filter: p.Filter, Rate: p.Rate, By: p.By, State: deadletter.RedriveRunning,
			StartedAt: now(), UpTo: db.lastNumber, Selected: int64(len(db.chooseOpen(p.Filter, 0, 0))),
		}
		r.Filter.Numbers = slices.Clone(r.Filter.Numbers)
		db.redrives = append(db.redrives, r)
		db.lastRedrive = r.ID
		return *r, nil
	})
	if err == nil {
		s.Wake()
	}
	return r, err
}

// StepRedrive implements deadletter.RedriveStore.
func (s *Store) StepRedrive(ctx context.Context, id int64, limit int) (deadletter.Redrive, time.Duration, error) {
	var wait time.Duration
	var before int64
	r, err := do(ctx, s, "StepRedrive", func(db *database) (deadletter.Redrive, error) {
		r, err := db.findRedrive(id)
		if err != nil {
			return deadletter.Redrive{}, err
		}
		at := now()
		before = r.Done
		if wait = r.NextAt.Sub(at); r.State == deadletter.RedriveRunning && wait <= 0 {
			db.stepRedrive(r, r.Batch(cmp.Or(limit, defaultBatch)), at)
			wait = r.NextAt.Sub(at)
		}
		wait = max(wait, 0)
		return *r, nil
	})
	if r.Done > before {
		s.Wake()
	}
	return r, wait, err
}

func (db *database) stepRedrive(r *deadletter.Redrive, batch int, at time.Time) {
	letters := db.chooseOpen(r.Filter, r.Position, batch)
	letters = slices.DeleteFunc(letters, func(l *deadRow) bool { return l.Number > r.UpTo })
	candidates := make([]deadletter.Candidate, len(letters))
	for i, l := range letters {
		candidates[i] = deadletter.Candidate{Number: l.Number, Redrives: l.Redrives}
	}
	send := r.Take(candidates, at)
	for _, l := range letters {
		if slices.Contains(send, l.Number) {
			db.redrive(l, r.ID, r.By, at)
		}
	}
	if len(letters) < batch {
		r.Finish(at)
	}
}

func (db *database) findRedrive(id int64) (*deadletter.Redrive, error) {
	i, found := slices.BinarySearchFunc(db.redrives, id, func(r *deadletter.Redrive, id int64) int { return cmp.Compare(r.ID, id) })
	if !found {
		return nil, fmt.Errorf("redrive %d: %w", id, deadletter.ErrNoRedrive)
	}
	return db.redrives[i], nil
}

// purgeRedrives removes redrives that ended at least keep ago, at most deadletter.PurgeRedrives of them.
func (db *database) purgeRedrives(keep time.Duration, at time.Time) {
	if keep <= 0 {
		return
	}
	left := deadletter.PurgeRedrives
	db.redrives = slices.DeleteFunc(db.redrives, func(r *deadletter.Redrive) bool {
		gone := r.State != deadletter.RedriveRunning && at.Sub(r.EndedAt) >= keep.Truncate(time.Microsecond) && left > 0
		if gone {
			left--
		}
		return gone
	})
}

// outcome counts the outcomes of the messages that a redrive has parked.
func (db *database) outcome(r *deadletter.Redrive) *deadletter.Outcome {
	out := &deadletter.Outcome{}
	for _, l := range db.letters {
		if l.Redrive != r.ID {
			continue
		}
		rel := db.relay(l.Relay)
		if rel.latest[l.Message.Sequence] != l {
			out.Failed++
		} else if row := rel.parked[l.Partition].rows[l.Message.Sequence]; row != nil {
			out.Waiting++
		}
	}
	out.Delivered = r.Done - out.Waiting - out.Failed
	return out
}

// CancelRedrive implements deadletter.RedriveStore.
func (s *Store) CancelRedrive(ctx context.Context, id int64, by string) (deadletter.Redrive, error) {
	return do(ctx, s, "CancelRedrive", func(db *database) (deadletter.Redrive, error) {
		r, err := db.findRedrive(id)
		if err != nil {
			return deadletter.Redrive{}, err
		}
		if err := r.Cancel(by, now()); err != nil {
			return deadletter.Redrive{}, err
		}
		return *r, nil
	})
}

// FailRedrive implements deadletter.RedriveStore.
func (s *Store) FailRedrive(ctx context.Context, id int64, seen int, cause string) (deadletter.Redrive, error) {
	return do(ctx, s, "FailRedrive", func(db *database) (deadletter.Redrive, error) {
		r, err := db.findRedrive(id)
		if err != nil {
			return deadletter.Redrive{}, err
		}
		r.Fail(seen, cut(cause), now())
		return *r, nil
	})
}

// ShowRedrive implements deadletter.RedriveStore.
func (s *Store) ShowRedrive(ctx context.Context, id int64) (deadletter.Redrive, error) {
	return do(ctx, s, "ShowRedrive", func(db *database) (deadletter.Redrive, error) {
		r, err := db.findRedrive(id)
		if err != nil {
			return deadletter.Redrive{}, err
		}
		out := *r
		out.Outcome = db.outcome(r)
		return out, nil
	})
}

// ListRedrives implements deadletter.RedriveStore.
func (s *Store) ListRedrives(ctx context.Context, state deadletter.RedriveState) iter.Seq2[deadletter.Redrive, error] {
	return func(yield func(deadletter.Redrive, error) bool) {
		list, err := do(ctx, s, "ListRedrives", func(db *database) (out []deadletter.Redrive, _ error) {
			for _, r := range slices.Backward(db.redrives) {
				if state == "" || state == r.State {
					out = append(out, *r)
				}
			}
			return out, nil
		})
		if err != nil {
			yield(deadletter.Redrive{}, err)
			return
		}
		for _, r := range list {
			if !yield(r, nil) {
				return
			}
		}
	}
}
