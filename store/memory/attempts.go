package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider"
)

var _ postrider.AttemptLog = (*Store)(nil)

// attemptRow is an attempt and the time until which it is kept.
type attemptRow struct {
	postrider.DeliveryAttempt
	expires time.Time
}

// same reports whether two rows describe the same attempt.
func (r attemptRow) same(o attemptRow) bool {
	return r.Relay == o.Relay && r.Attempt == o.Attempt && r.At.Equal(o.At)
}

// dropAtOnce is how many attempts one call drops.
const dropAtOnce = 10_000

// RecordAttempts implements postrider.AttemptLog.
func (s *Store) RecordAttempts(ctx context.Context, attempts []postrider.DeliveryAttempt, keep time.Duration) error {
	_, err := do(ctx, s, "RecordAttempts", func(db *database) (struct{}, error) {
		if db.attempts == nil {
			db.attempts = make(map[string][]attemptRow)
		}
		expires := now().Add(keep)
		for _, a := range attempts {
			a.At, a.Took = stamp(a.At), a.Took.Truncate(time.Microsecond)
			a.Answer, a.RequestSHA256 = slices.Clone(a.Answer), slices.Clone(a.RequestSHA256)
			row := attemptRow{a, expires}
			if rows := db.attempts[a.MessageID]; !slices.ContainsFunc(rows, row.same) {
				db.attempts[a.MessageID] = newestAttempts(append(rows, row), a.Relay)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// newestAttempts sorts attempts and drops the oldest ones of a relay beyond postrider.KeptAttempts.
func newestAttempts(rows []attemptRow, relay string) []attemptRow {
	slices.SortFunc(rows, func(a, b attemptRow) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Relay, b.Relay), cmp.Compare(a.Attempt, b.Attempt))
	})
	n := 0
	for _, row := range rows {
		if row.Relay == relay {
			n++
		}
	}
	return slices.DeleteFunc(rows, func(row attemptRow) bool {
		if row.Relay != relay || n <= postrider.KeptAttempts {
			return false
		}
		n--
		return true
	})
}

// Attempts implements postrider.AttemptLog.
func (s *Store) Attempts(ctx context.Context, messageID string) ([]postrider.DeliveryAttempt, error) {
	return do(ctx, s, "Attempts", func(db *database) (out []postrider.DeliveryAttempt, _ error) {
		for _, row := range db.attempts[messageID] {
			a := row.DeliveryAttempt
			a.Answer, a.RequestSHA256 = slices.Clone(a.Answer), slices.Clone(a.RequestSHA256)
			out = append(out, a)
		}
		return out, nil
	})
}

// DropAttempts implements postrider.AttemptLog.
func (s *Store) DropAttempts(ctx context.Context) (int, error) {
	return do(ctx, s, "DropAttempts", func(db *database) (int, error) {
		n, at := 0, now()
		for id, rows := range db.attempts {
			rows = slices.DeleteFunc(rows, func(row attemptRow) bool {
				over := n < dropAtOnce && !row.expires.After(at)
				if over {
					n++
				}
				return over
			})
			if db.attempts[id] = rows; len(rows) == 0 {
				delete(db.attempts, id)
			}
		}
		return n, nil
	})
}
