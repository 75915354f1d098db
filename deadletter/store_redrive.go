package deadletter

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// StartRedrive records a redrive of the dead letters that exist now. It sends nothing back yet. Errors: those of
// Plan.Validate; ErrNotFound, ErrResolved when the filter names Numbers and one of them is not open.
func (s Store) StartRedrive(ctx context.Context, p Plan) (r store.Redrive, err error) {
	if err := p.Validate(); err != nil {
		return r, err
	}
	err = s.change(ctx, store.Operation{Method: "StartRedrive", Doing: "start a redrive"}, p.Filter, func(w store.Writer) error {
		if err := checkNamed(ctx, w, p.Filter.Numbers, Unbounded); err != nil {
			return err
		}
		now, err := w.Now(ctx)
		if err != nil {
			return err
		}
		r = store.Redrive{Filter: p.Filter, Rate: p.Rate, By: stored.Text(p.By), State: store.RedriveRunning, StartedAt: now}
		if r.UpTo, err = stored.NewestDead(ctx, w); err != nil {
			return err
		}
		if p.UpTo > 0 {
			r.UpTo = min(r.UpTo, p.UpTo)
		}
		if r.UpTo > 0 {
			if r.Selected, err = w.CountDead(ctx, store.DeadQuery{DeadFilter: p.Filter, UpTo: r.UpTo}); err != nil {
				return err
			}
		}
		if r.ID, err = w.AddRedrive(ctx, r); err != nil {
			return err
		}
		g := newGuard(p, r)
		if g == nil {
			return nil
		}
		r.Guard = &g.RedriveGuard
		return g.put(ctx, w)
	})
	if err == nil {
		s.records.Wake()
	}
	return r, err
}

// StepRedrive runs the next step of a running redrive, in one transaction that locks the redrive: it sends back up to
// limit dead letters (0 means 1,000), as RedriveDead does, and stores the progress. It returns the redrive and the
// time until its rate allows the next step; if that time has not come, it does nothing. Any number of processes may
// call it for the same redrive: each dead letter is sent back once. A redrive that has ended is returned unchanged.
// Errors: store.ErrNoRedrive.
func (s Store) StepRedrive(ctx context.Context, id int64, limit int) (r store.Redrive, wait time.Duration, err error) {
	op := store.Operation{Method: "StepRedrive", Doing: "step of a redrive"}
	if err := checkLimit(limit); err != nil {
		return r, 0, err
	}
	err = s.view(ctx, op, store.DeadFilter{}, func(read store.Reader) (err error) {
		r, err = read.Redrive(ctx, id)
		return err
	})
	if err != nil {
		return r, 0, err
	}
	before := r
	r, err = s.changeRedrive(ctx, op, r.Filter, id, func(w store.Writer, r *store.Redrive, now time.Time) (changed bool, err error) {
		before.Done = r.Done
		changed, wait, err = stepNow(ctx, w, r, cmp.Or(limit, defaultLimit), now)
		return changed, err
	})
	if errors.Is(err, store.ErrRecordChanged) { // another redrive of the relay has made a step at the same time
		return before, paceRetry, nil
	}
	if err == nil && r.Done > before.Done {
		s.records.Wake()
	}
	return r, max(wait, 0), err
}

// stepNow makes a step of a redrive if its time has come. It reports whether anything has changed, and the time until the next step.
func stepNow(ctx context.Context, w store.Writer, r *store.Redrive, limit int, now time.Time) (changed bool, wait time.Duration, err error) {
	if wait = r.NextAt.Sub(now); r.State != store.RedriveRunning {
		return false, wait, nil
	}
	g, err := findGuard(ctx, w, r.ID)
	if err != nil {
		return false, wait, err
	}
	if g != nil {
		r.Guard = &g.RedriveGuard
	}
	found, err := findPaces(ctx, w, r.Filter.Relay)
	if err != nil {
		return false, wait, err
	}
	limits := paces(found)
	if wait = max(wait, limits.next().Sub(now)); wait > 0 {
		return false, wait, nil
	}
	sent, most := r.Done, limits.batch(limit)
	if g == nil {
		err = step(ctx, w, r, batch(*r, most), now)
	} else {
		err = guardedStep(ctx, w, r, g, most, now)
	}
	if err == nil {
		err = limits.spend(ctx, w, r.Done-sent, now)
	}
	return err == nil, max(r.NextAt.Sub(now), limits.next().Sub(now)), err
}

// step sends back the next dead letters of a redrive.
func step(ctx context.Context, w store.Writer, r *store.Redrive, batch int, now time.Time) error {
	var found store.LockedDead
	if r.Position < r.UpTo {
		var err error
		q := store.DeadQuery{DeadFilter: r.Filter, After: r.Position, UpTo: r.UpTo, Limit: batch}
		if found, err = lockOpen(ctx, w, q, Unbounded); err != nil {
			return err
		}
	}
	send := take(r, found.Open, now)
	r.Position = max(r.Position, found.Last)
	if !found.More {
		finish(r, now)
	}
	if len(send) == 0 {
		return nil
	}
	return w.Resolve(ctx, send, store.Resolution{State: store.DeadRedriven, By: r.By, Redrive: r.ID})
}

// changeRedrive locks a redrive, and stores it if change reports a change.
func (s Store) changeRedrive(ctx context.Context, op store.Operation, f store.DeadFilter, id int64,
	change func(w store.Writer, r *store.Redrive, now time.Time) (bool, error)) (r store.Redrive, err error) {
	err = s.change(ctx, op, f, func(w store.Writer) error {
		if r, err = w.LockRedrive(ctx, id); err != nil {
			return err
		}
		now, err := w.Now(ctx)
		if err != nil {
			return err
		}
		changed, err := change(w, &r, now)
		if err != nil || !changed {
			return err
		}
		saved := r
		saved.Guard, saved.Outcome = nil, nil // a record of its own, and counted
		if err := w.SaveRedrive(ctx, saved); err != nil || r.State == store.RedriveRunning {
			return err
		}
		return endGuard(ctx, w, id, now)
	})
	return r, err
}

// CancelRedrive ends a running redrive; it does not undo what was sent back. Errors: store.ErrNoRedrive, ErrRedriveEnded.
func (s Store) CancelRedrive(ctx context.Context, id int64, by string) (store.Redrive, error) {
	op := store.Operation{Method: "CancelRedrive", Doing: "cancel a redrive"}
	return s.changeRedrive(ctx, op, store.DeadFilter{}, id, func(_ store.Writer, r *store.Redrive, now time.Time) (bool, error) {
		return true, cancel(r, stored.Text(by), now)
	})
}

// FailRedrive records that a step has failed, so that the next one waits and the cause is
// visible. StepRedrive does not record it, because a failed step changes nothing. It returns the updated redrive.
// Errors: store.ErrNoRedrive.
func (s Store) FailRedrive(ctx context.Context, id int64, seen int, cause string) (store.Redrive, error) {
	op := store.Operation{Method: "FailRedrive", Doing: "record the failure of a redrive"}
	return s.changeRedrive(ctx, op, store.DeadFilter{}, id, func(_ store.Writer, r *store.Redrive, now time.Time) (bool, error) {
		return fail(r, seen, stored.Text(cause), now), nil
	})
}

// withGuard sets the guard of a redrive, if it has one.
func withGuard(ctx context.Context, read store.Reader, r *store.Redrive) error {
	g, err := findGuard(ctx, read, r.ID)
	if err == nil && g != nil {
		r.Guard = &g.RedriveGuard
	}
	return err
}

// ShowRedrive returns one redrive. Errors: store.ErrNoRedrive.
func (s Store) ShowRedrive(ctx context.Context, id int64) (r store.Redrive, err error) {
	err = s.view(ctx, store.Operation{Method: "ShowRedrive", Doing: "show a redrive"}, store.DeadFilter{}, func(read store.Reader) error {
		if r, err = read.Redrive(ctx, id); err != nil {
			return err
		}
		n, err := read.Redriven(ctx, id, 0)
		if err != nil {
			return err
		}
		r.Outcome = &store.RedriveOutcome{
			Delivered: n.Delivered(), Waiting: n.Parked, Failing: n.Failing, Failed: n.Dead,
			Unknown: max(0, r.Done-n.Found), // a step may have been taken in between
		}
		return withGuard(ctx, read, &r)
	})
	return r, err
}

// ListRedrives yields the redrives of a state ("" for all), newest first.
func (s Store) ListRedrives(ctx context.Context, state store.RedriveState) iter.Seq2[store.Redrive, error] {
	return func(yield func(store.Redrive, error) bool) {
		for before := int64(math.MaxInt64); ; {
			var page []store.Redrive
			err := s.view(ctx, store.Operation{Method: "ListRedrives", Doing: "list redrives"}, store.DeadFilter{}, func(r store.Reader) (err error) {
				if page, err = r.Redrives(ctx, state, before, listPage); err != nil {
					return err
				}
				for i := range page {
					if page[i].State == store.RedriveRunning {
						err = cmp.Or(err, withGuard(ctx, r, &page[i]))
					}
				}
				return err
			})
			if err != nil {
				yield(store.Redrive{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				before = r.ID
			}
			if len(page) < listPage {
				return
			}
		}
	}
}
