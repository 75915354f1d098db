package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
	_, err := s.mark(ctx, time.Time{})
	return err
}

// mark stores the fingerprints of causes, newest first, until all have one or the time is up (zero: never).
func (s Store) mark(ctx context.Context, until time.Time) (all bool, err error) {
	for {
		more, err := s.records.MarkCauses(ctx)
		if err != nil || !more {
			return err == nil, err
		}
		if !until.IsZero() && time.Now().After(until) {
			return false, nil
		}
	}
}

// ListDead yields dead letters, oldest first, fetched in pages. It starts after the Number after (0 for the start)
// and yields at most limit dead letters (0 for all). It reads until it has found them; see FindDead for a page.
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

// CountDead counts the dead letters that match the filter, however many there are; see FindDead for a page.
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
