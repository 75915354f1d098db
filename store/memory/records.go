package memory

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// records implements store.Reader and store.Writer while the database is locked.
type records struct {
	db *database
	// undo is how to undo what database.before does not, in the order in which it was done.
	undo *[]func()
}

// onError adds to undo.
func (r records) onError(undo func()) { *r.undo = append(*r.undo, undo) }

// View implements store.Records.
func (s *Store) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	_, err := do(ctx, s, op.Method, func(db *database) (struct{}, error) { return struct{}{}, f(records{db: db}) })
	return err
}

// Change implements store.Records.
func (s *Store) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	_, err := do(ctx, s, op.Method, func(db *database) (struct{}, error) {
		in, undo := records{db, new([]func())}, db.before()
		err := f(in)
		if err != nil {
			for _, undo := range slices.Backward(*in.undo) {
				undo()
			}
			undo()
		}
		return struct{}{}, err
	})
	return err
}

// MarkCauses implements store.Records: fingerprints are computed when they are needed.
func (s *Store) MarkCauses(context.Context) (bool, error) { return false, nil }

// Now implements store.Writer.
func (r records) Now(context.Context) (time.Time, error) { return now(), nil }

// DeadLetters implements store.Reader.
func (r records) DeadLetters(_ context.Context, q store.DeadQuery) (out []store.DeadLetter, _ error) {
	for _, l := range r.db.choose(q) {
		out = append(out, r.db.shown(l))
	}
	return out, nil
}

// CountDead implements store.Reader.
func (r records) CountDead(_ context.Context, q store.DeadQuery) (int64, error) {
	return int64(len(r.db.choose(q))), nil
}

// SpanDead implements store.Reader.
func (r records) SpanDead(_ context.Context, q store.DeadQuery, newest bool) (store.DeadSpan, error) {
	limit := q.Limit
	if newest {
		q.Limit = 0
	}
	chosen := r.db.choose(q)
	if newest && limit > 0 {
		chosen = chosen[max(0, len(chosen)-limit):]
	}
	if len(chosen) == 0 {
		return store.DeadSpan{}, nil
	}
	return store.DeadSpan{N: int64(len(chosen)), First: chosen[0].Number, Last: chosen[len(chosen)-1].Number}, nil
}

// NamedDead implements store.Writer.
func (r records) NamedDead(_ context.Context, numbers []int64) (out []store.NamedDead, _ error) {
	for _, number := range numbers {
		if l, err := r.db.deadRowOf(number); err == nil {
			out = append(out, store.NamedDead{Number: number, State: l.State, ResolvedBy: l.ResolvedBy, Redrives: l.Redrives})
		}
	}
	return out, nil
}

// LockDead implements store.Writer.
func (r records) LockDead(_ context.Context, q store.DeadQuery, below int) (found store.LockedDead, _ error) {
	limit := q.Limit
	q.Limit = 0
	for _, l := range r.db.choose(q) {
		if below >= 0 && l.Redrives >= below {
			continue
		}
		found.Last = l.Number
		found.Open = append(found.Open, store.OpenDead{Number: l.Number, Redrives: l.Redrives})
		if found.More = len(found.Open) == limit; found.More {
			break
		}
	}
	return found, nil
}

// Resolve implements store.Writer.
func (r records) Resolve(_ context.Context, numbers []int64, how store.Resolution) error {
	at := now()
	for _, number := range numbers {
		l, err := r.db.deadRowOf(number)
		if err != nil {
			return err
		}
		if how.State == store.DeadRedriven {
			r.db.redrive(l, how.Redrive, how.By, at)
			continue
		}
		l.close(store.DeadDiscarded, how.By, how.Reason, at)
		parked := r.db.relay(l.Relay).parked[l.Partition]
		if h := parked.waitsFor(l); h != nil {
			parked.resumeKey(h, at)
		}
	}
	return nil
}
