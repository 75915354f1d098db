package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	defaultLimit = 1_000 // dead letters that a call resolves without a limit
	listPage     = 100   // dead letters or redrives read at a time
)

// Store is the dead letters and redrives of a store.
type Store struct{ records store.Records }

// New returns the dead letters of a store: of store/postgres, store/mysql, store/sqlite or store/memory.
func New(r store.Records) Store { return Store{r} }

// view reads with a prepared filter.
func (s Store) view(ctx context.Context, op store.Operation, f store.DeadFilter, read func(store.Reader) error) error {
	if err := s.prepare(ctx, f); err != nil {
		return err
	}
	return s.records.View(ctx, op, read)
}

// change is view for changes.
func (s Store) change(ctx context.Context, op store.Operation, f store.DeadFilter, change func(store.Writer) error) error {
	if err := s.prepare(ctx, f); err != nil {
		return err
	}
	return s.records.Change(ctx, op, change)
}

// prepare does what a filter needs beforehand.
func (s Store) prepare(ctx context.Context, f store.DeadFilter) error {
	if f.Fingerprint == "" {
		return nil
	}
	return s.records.MarkCauses(ctx)
}

// ListDead yields dead letters, oldest first, fetched in pages. It starts after the Number after (0 for the start)
// and yields at most limit dead letters (0 for all).
func (s Store) ListDead(ctx context.Context, f store.DeadFilter, after int64, limit int) iter.Seq2[store.DeadLetter, error] {
	return func(yield func(store.DeadLetter, error) bool) {
		q := store.DeadQuery{DeadFilter: f, After: after}
		for left := limit; limit == 0 || left > 0; left -= listPage {
			if q.Limit = listPage; limit > 0 {
				q.Limit = min(q.Limit, left)
			}
			var page []store.DeadLetter
			err := s.view(ctx, store.Operation{Method: "ListDead", Doing: "list dead letters"}, f, func(r store.Reader) (err error) {
				page, err = r.DeadLetters(ctx, q)
				return err
			})
			if err != nil {
				yield(store.DeadLetter{}, err)
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				q.After = l.Number
			}
			if len(page) < q.Limit {
				return
			}
		}
	}
}

// ShowDead returns one dead letter. Errors: ErrNotFound.
func (s Store) ShowDead(ctx context.Context, number int64) (l store.DeadLetter, err error) {
	err = s.view(ctx, store.Operation{Method: "ShowDead", Doing: "show a dead letter"}, store.DeadFilter{}, func(r store.Reader) error {
		l, err = find(ctx, r, number)
		return err
	})
	return l, err
}

// CountDead counts the dead letters that match the filter.
func (s Store) CountDead(ctx context.Context, f store.DeadFilter) (n int64, err error) {
	err = s.view(ctx, store.Operation{Method: "CountDead", Doing: "count dead letters"}, f, func(r store.Reader) (err error) {
		n, err = r.CountDead(ctx, store.DeadQuery{DeadFilter: f})
		return err
	})
	return n, err
}

// RedriveDead sends up to limit open dead letters (0 means 1,000) that match the filter back to their relays or
// consumers, oldest first, in one transaction: parked and due at once, attempts from 1 again. It returns how many it
// sent; call it again until that is 0. Concurrent callers never redrive the same dead letter twice.
//
//   - A dead letter whose key is held is queued with the key's waiting messages, by sequence.
//   - If a held key waits for a decision about the dead letter, the key continues.
//   - A dead letter that store.DeadFilter.MaxRedrives refuses is skipped.
//   - If the filter names Numbers and one of them is not open, or is refused, nothing is done.
//
// Errors: ErrNotFound, ErrResolved, ErrRedrivenTooOften.
func (s Store) RedriveDead(ctx context.Context, f store.DeadFilter, by string, limit int) (int, error) {
	if err := checkMaxRedrives(f); err != nil {
		return 0, err
	}
	below := cmp.Or(f.MaxRedrives, DefaultMaxRedrives)
	return s.resolve(ctx, store.Operation{Method: "RedriveDead", Doing: "redrive dead letters"}, store.DeadQuery{DeadFilter: f, Limit: limit}, below,
		store.Resolution{State: store.DeadRedriven, By: by})
}

// DiscardDead marks up to limit open dead letters (0 means 1,000) as discarded, in one transaction, and releases keys
// that were held for them. Errors: ErrNotFound, ErrResolved as in RedriveDead.
func (s Store) DiscardDead(ctx context.Context, f store.DeadFilter, by, reason string, limit int) (int, error) {
	return s.DiscardUpTo(ctx, f, 0, by, reason, limit)
}

// DiscardUpTo is DiscardDead for dead letters with numbers up to the given one, 0 for all.
func (s Store) DiscardUpTo(ctx context.Context, f store.DeadFilter, upTo int64, by, reason string, limit int) (int, error) {
	return s.resolve(ctx, store.Operation{Method: "DiscardDead", Doing: "discard dead letters"},
		store.DeadQuery{DeadFilter: f, UpTo: upTo, Limit: limit}, Unbounded,
		store.Resolution{State: store.DeadDiscarded, By: by, Reason: stored.Text(reason)})
}

// resolve resolves the open dead letters that a query selects, in one transaction. It continues with the next ones if others
// resolved all of them before they were locked.
func (s Store) resolve(ctx context.Context, op store.Operation, q store.DeadQuery, below int, r store.Resolution) (n int, err error) {
	if err := checkLimit(q.Limit); err != nil {
		return 0, err
	}
	r.By, q.Limit = stored.Text(r.By), cmp.Or(q.Limit, defaultLimit)
	err = s.change(ctx, op, q.DeadFilter, func(w store.Writer) error {
		n = 0
		for q := q; ; {
			found, err := lockOpen(ctx, w, q, below)
			if err == nil {
				err = checkNamed(ctx, w, q.Numbers, below)
			}
			if err != nil || found.Last == 0 {
				return err
			}
			if q.After = found.Last; len(found.Open) == 0 {
				continue
			}
			n = len(found.Open)
			return w.Resolve(ctx, numbersOf(found.Open), r)
		}
	})
	if err != nil {
		return 0, err
	}
	if n > 0 {
		s.records.Wake()
	}
	return n, nil
}

// checkLimit refuses a negative limit, which stores would understand differently.
func checkLimit(limit int) error {
	if limit < 0 {
		return fmt.Errorf("the limit is %d; it must not be negative", limit)
	}
	return nil
}

func numbersOf(open []store.OpenDead) []int64 {
	numbers := make([]int64, len(open))
	for i, l := range open {
		numbers[i] = l.Number
	}
	return numbers
}

// lockOpen locks open dead letters. A filter for another state selects none.
func lockOpen(ctx context.Context, w store.Writer, q store.DeadQuery, below int) (store.LockedDead, error) {
	if q.State != "" && q.State != store.DeadOpen && q.State != store.DeadAny {
		return store.LockedDead{}, nil
	}
	q.State = store.DeadOpen
	return w.LockDead(ctx, q, below)
}

// checkNamed refuses numbers that are not those of open dead letters, or whose messages were redriven too often.
func checkNamed(ctx context.Context, w store.Writer, numbers []int64, below int) error {
	if len(numbers) == 0 {
		return nil
	}
	found, err := w.NamedDead(ctx, numbers)
	if err != nil {
		return err
	}
	states := make(map[int64]store.NamedDead, len(found))
	for _, l := range found {
		states[l.Number] = l
	}
	for _, number := range numbers {
		l, exists := states[number]
		switch {
		case !exists:
			return fmt.Errorf("%w: %d", ErrNotFound, number)
		case l.State != store.DeadOpen:
			return fmt.Errorf("%w: %d was %s by %s", ErrResolved, number, l.State, l.ResolvedBy)
		case below >= 0 && l.Redrives >= below:
			return refuseTooOften(number, l.Redrives)
		}
	}
	return nil
}

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
		if r.UpTo, err = w.NewestDead(ctx); err != nil {
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
		return g.put(ctx, w, true, now)
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
	var before int64
	r, err = s.changeRedrive(ctx, op, r.Filter, id, func(w store.Writer, r *store.Redrive, now time.Time) (bool, error) {
		before = r.Done
		if wait = r.NextAt.Sub(now); r.State != store.RedriveRunning {
			return false, nil
		}
		g, err := findGuard(ctx, w, id)
		if err != nil {
			return false, err
		}
		if g != nil {
			r.Guard = &g.RedriveGuard
		}
		switch {
		case wait > 0:
			return false, nil
		case g == nil:
			err = step(ctx, w, r, batch(*r, cmp.Or(limit, defaultLimit)), now)
		default:
			err = guardedStep(ctx, w, r, g, cmp.Or(limit, defaultLimit), now)
		}
		if err != nil {
			return false, err
		}
		wait = r.NextAt.Sub(now)
		return true, nil
	})
	if err == nil && r.Done > before {
		s.records.Wake()
	}
	return r, max(wait, 0), err
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
		return w.SaveRedrive(ctx, saved)
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
		n, err := read.Redriven(ctx, id)
		if err != nil {
			return err
		}
		delivered := max(0, r.Done-n.Parked-n.Dead) // a step may have been taken in between
		r.Outcome = &store.RedriveOutcome{Delivered: delivered, Waiting: n.Parked, Failing: n.Failing, Failed: n.Dead}
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
