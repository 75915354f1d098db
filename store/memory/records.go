package memory

import (
	"context"
	"time"

	"github.com/postrider/postrider/deadletter"
)

// records implements deadletter.Records and, while its database is locked, deadletter.Writer.
type records struct {
	s  *Store
	db *database
}

// View implements deadletter.Records.
func (r records) View(ctx context.Context, op deadletter.Operation, f func(deadletter.Reader) error) error {
	_, err := do(ctx, r.s, op.Method, func(db *database) (struct{}, error) { return struct{}{}, f(records{r.s, db}) })
	return err
}

// Change implements deadletter.Records.
func (r records) Change(ctx context.Context, op deadletter.Operation, f func(deadletter.Writer) error) error {
	_, err := do(ctx, r.s, op.Method, func(db *database) (struct{}, error) { return struct{}{}, f(records{r.s, db}) })
	return err
}

// MarkCauses implements deadletter.Records: fingerprints are computed when they are needed.
func (r records) MarkCauses(context.Context) error { return nil }

// Wake implements deadletter.Records.
func (r records) Wake() { r.s.Wake() }

// Now implements deadletter.Writer.
func (r records) Now(context.Context) (time.Time, error) { return now(), nil }

// DeadLetters implements deadletter.Reader.
func (r records) DeadLetters(_ context.Context, q deadletter.Query) (out []deadletter.Record, _ error) {
	for _, l := range r.db.choose(q) {
		out = append(out, r.db.shown(l))
	}
	return out, nil
}

// CountDead implements deadletter.Reader.
func (r records) CountDead(_ context.Context, q deadletter.Query) (int64, error) {
	return int64(len(r.db.choose(q))), nil
}

// NamedDead implements deadletter.Writer.
func (r records) NamedDead(_ context.Context, numbers []int64) (out []deadletter.Named, _ error) {
	for _, number := range numbers {
		if l, err := r.db.letter(number); err == nil {
			out = append(out, deadletter.Named{Number: number, State: l.State, ResolvedBy: l.ResolvedBy, Redrives: l.Redrives})
		}
	}
	return out, nil
}

// LockDead implements deadletter.Writer.
func (r records) LockDead(_ context.Context, q deadletter.Query, below int) (found deadletter.Locked, _ error) {
	limit := q.Limit
	q.Limit = 0
	for _, l := range r.db.choose(q) {
		if below >= 0 && l.Redrives >= below {
			continue
		}
		found.Last = l.Number
		found.Open = append(found.Open, deadletter.Candidate{Number: l.Number, Redrives: l.Redrives})
		if found.More = len(found.Open) == limit; found.More {
			break
		}
	}
	return found, nil
}

// Resolve implements deadletter.Writer.
func (r records) Resolve(_ context.Context, numbers []int64, how deadletter.Resolution) error {
	at := now()
	for _, number := range numbers {
		l, err := r.db.letter(number)
		if err != nil {
			return err
		}
		if how.State == deadletter.Redriven {
			r.db.redrive(l, how.Redrive, how.By, at)
			continue
		}
		l.close(deadletter.Discarded, how.By, how.Reason, at)
		parked := r.db.relay(l.Relay).parked[l.Partition]
		if h := parked.waitsFor(l); h != nil {
			parked.letGo(h, at)
		}
	}
	return nil
}
