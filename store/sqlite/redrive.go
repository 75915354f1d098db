package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/relay"
)

const (
	sentBackSQL = `UPDATE {prefix}dead SET state = 'redriven', resolved_at = ?, resolved_by = ?, redrive = ? WHERE number = ?`
	// Whether the key waits for a decision about this dead letter; no row if it is not held.
	heldHeadSQL = `SELECT seq = ?3 AND due_at IS NULL FROM {prefix}held WHERE relay = ?1 AND key = ?2`
	// The parameters: ?1 number, ?3 reason, ?6 due or NULL, ?7 now, ?8 history entry.
	redriveSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT relay, partition, seq, ` + messageColumns + `, ?3, 0, ?6, ?7, redrives + 1, ` + historySQL + `
		FROM {prefix}dead WHERE number = ?1
		ON CONFLICT (relay, seq) DO UPDATE SET reason = excluded.reason, attempts = 0, due_at = excluded.due_at,
			parked_at = excluded.parked_at, redrives = excluded.redrives, history = excluded.history`
	redrivenHeadSQL = `UPDATE {prefix}held SET seq = ?3, reason = ?4, cause = '', attempts = 0 WHERE relay = ?1 AND key = ?2`
)

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	if err := s.markCauses(ctx, f); err != nil {
		return 0, err
	}
	var chosen []chosenLetter
	err := s.write(ctx, "redrive dead letters", durable, func(t txn) (err error) {
		for _, n := range f.Numbers {
			redrives, err := t.openLetter(ctx, n)
			if err != nil {
				return err
			}
			if !f.Allows(redrives) {
				return deadletter.RefuseTooOften(n, redrives)
			}
		}
		allowed, bound := ` AND (redrives < ? OR ?)`, cmp.Or(f.MaxRedrives, deadletter.DefaultMaxRedrives)
		chosen, err = t.chooseOpen(ctx, f, allowed, 0, cmp.Or(limit, defaultBatch), bound, bound == deadletter.Unbounded)
		if err != nil {
			return err
		}
		return t.redriveAll(ctx, chosen, 0, by)
	})
	if err != nil {
		return 0, err
	}
	if len(chosen) > 0 {
		s.Wake()
	}
	return len(chosen), nil
}

// redriveAll closes dead letters and parks their messages.
func (t txn) redriveAll(ctx context.Context, letters []chosenLetter, id int64, by string) error {
	for _, l := range letters {
		if err := t.redrive(ctx, l, id, by); err != nil {
			return fmt.Errorf("dead letter %d: %w", l.number, err)
		}
	}
	return nil
}

// redrive closes a dead letter and parks its message, due at once. If its key is held, the message joins the queued messages of
// the key. If the key waited for the decision about this dead letter, it becomes due.
func (t txn) redrive(ctx context.Context, l chosenLetter, id int64, by string) error {
	if _, err := t.exec(ctx, sentBackSQL, t.now, by, id, l.number); err != nil {
		return err
	}
	entry, err := stored.Entry(0, t.now, "redriven by "+by)
	if err != nil {
		return err
	}
	var head bool
	err = t.get(ctx, heldHeadSQL, []any{l.relay, l.key, l.seq}, &head)
	held := err == nil
	if err := orNone(err); err != nil {
		return err
	}
	due := sql.Null[int64]{V: t.now, Valid: !held}
	reason := string(relay.ParkRedriven)
	if _, err := t.exec(ctx, redriveSQL, l.number, nil, reason, nil, nil, due, t.now, entry); err != nil || !head {
		return err
	}
	if _, err := t.exec(ctx, redrivenHeadSQL, l.relay, l.key, l.seq, reason); err != nil {
		return err
	}
	_, err = t.letGo(ctx, l.relay, l.key)
	return err
}

const (
	startRedriveSQL = `INSERT INTO {prefix}redrives (filter, rate, state, started_by, started_at, selected, up_to)
		VALUES (?, ?, 'running', ?, ?, ?, (SELECT coalesce(max(number), 0) FROM {prefix}dead)) RETURNING id`
	showRedriveSQL = `SELECT id, filter, rate, state, started_by, started_at, ended_at, cancelled_by, selected, done, refused,
			skipped, position, up_to, next_at, failures, cause
		FROM {prefix}redrives WHERE `
	// How many of the messages are parked again, and how many were dead-lettered again.
	outcomeSQL = `SELECT
		(SELECT count(*) FROM {prefix}dead d JOIN {prefix}parked p ON p.relay = d.relay AND p.seq = d.seq
			AND p.redrives = d.redrives + 1 WHERE d.redrive = ?1 AND d.redrive > 0),
		(SELECT count(*) FROM {prefix}dead d WHERE d.redrive = ?1 AND d.redrive > 0 AND EXISTS (
			SELECT 1 FROM {prefix}dead l WHERE l.relay = d.relay AND l.partition = d.partition AND l.seq = d.seq
				AND l.number > d.number))`
	saveRedriveSQL = `UPDATE {prefix}redrives SET state = ?2, ended_at = ?3, cancelled_by = ?4, selected = ?5, done = ?6,
			refused = ?7, skipped = ?8, position = ?9, next_at = ?10, failures = ?11, cause = ?12 WHERE id = ?1`
	// Redrives that ended by ?1, the oldest ?2 first.
	purgeRedrivesSQL = `DELETE FROM {prefix}redrives WHERE id IN (
		SELECT id FROM {prefix}redrives WHERE state <> 'running' AND ended_at <= ?1 ORDER BY id LIMIT ?2)`
)

// StartRedrive implements deadletter.RedriveStore.
func (s *Store) StartRedrive(ctx context.Context, p deadletter.Plan) (r deadletter.Redrive, err error) {
	if err := errors.Join(p.Validate(), s.markCauses(ctx, p.Filter)); err != nil {
		return r, err
	}
	filter, err := json.Marshal(p.Filter)
	if err != nil {
		return r, fmt.Errorf("start a redrive: %w", err)
	}
	err = s.write(ctx, "start a redrive", durable, func(t txn) error {
		if err := t.checkOpen(ctx, p.Filter.Numbers); err != nil {
			return err
		}
		var id, selected int64
		where, args := condition(p.Filter)
		if err := t.get(ctx, countDeadSQL+where, args, &selected); err != nil {
			return err
		}
		if err := t.get(ctx, startRedriveSQL, []any{string(filter), p.Rate, p.By, t.now, selected}, &id); err != nil {
			return err
		}
		r, err = t.findRedrive(ctx, id)
		return err
	})
	if err == nil {
		s.Wake()
	}
	return r, err
}

// StepRedrive implements deadletter.RedriveStore.
func (s *Store) StepRedrive(ctx context.Context, id int64, limit int) (r deadletter.Redrive, wait time.Duration, err error) {
	err = s.read(ctx, "read a redrive", func(t txn) error {
		r, err = t.findRedrive(ctx, id)
		return err
	})
	if err == nil {
		err = s.markCauses(ctx, r.Filter)
	}
	if err != nil {
		return r, 0, err
	}
	var before int64
	err = s.write(ctx, "step of a redrive", durable, func(t txn) error {
		if r, err = t.findRedrive(ctx, id); err != nil {
			return err
		}
		before = r.Done
		now := stored.Time(t.now)
		if wait = r.NextAt.Sub(now); r.State != deadletter.RedriveRunning || wait > 0 {
			return nil
		}
		if err := t.stepRedrive(ctx, &r, r.Batch(cmp.Or(limit, defaultBatch)), now); err != nil {
			return err
		}
		wait = r.NextAt.Sub(now)
		return t.saveRedrive(ctx, r)
	})
	if err == nil && r.Done > before {
		s.Wake()
	}
	return r, max(wait, 0), err
}

func (t txn) stepRedrive(ctx context.Context, r *deadletter.Redrive, batch int, now time.Time) error {
	letters, err := t.chooseOpen(ctx, r.Filter, ` AND number <= ?`, r.Position, batch, r.UpTo)
	if err != nil {
		return err
	}
	candidates := make([]deadletter.Candidate, len(letters))
	for i, l := range letters {
		candidates[i] = deadletter.Candidate{Number: l.number, Redrives: l.redrives}
	}
	send := set(r.Take(candidates, now))
	if len(letters) < batch {
		r.Finish(now)
	}
	sent := letters[:0]
	for _, l := range letters {
		if send[l.number] {
			sent = append(sent, l)
		}
	}
	return t.redriveAll(ctx, sent, r.ID, r.By)
}

func (t txn) saveRedrive(ctx context.Context, r deadletter.Redrive) error {
	_, err := t.exec(ctx, saveRedriveSQL, r.ID, string(r.State), micro(r.EndedAt), r.CancelledBy, r.Selected, r.Done, r.Refused,
		r.Skipped, r.Position, micro(r.NextAt), r.Failures, r.Cause)
	return err
}

// micro converts a time to its stored form, 0 for the zero time; moment converts it back.
func micro(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return stored.Time(micros)
}

func scanRedrive(rows *sql.Rows) (r deadletter.Redrive, err error) {
	var filter string
	var started, ended, next int64
	err = rows.Scan(&r.ID, &filter, &r.Rate, &r.State, &r.By, &started, &ended, &r.CancelledBy, &r.Selected, &r.Done, &r.Refused,
		&r.Skipped, &r.Position, &r.UpTo, &next, &r.Failures, &r.Cause)
	if err != nil {
		return r, err
	}
	r.StartedAt, r.EndedAt, r.NextAt = stored.Time(started), moment(ended), moment(next)
	if err := json.Unmarshal([]byte(filter), &r.Filter); err != nil {
		return r, fmt.Errorf("the stored filter of redrive %d: %w", r.ID, err)
	}
	return r, nil
}

func (t txn) findRedrive(ctx context.Context, id int64) (r deadletter.Redrive, err error) {
	found := false
	err = t.each(ctx, showRedriveSQL+`id = ?`, []any{id}, func(rows *sql.Rows) (err error) {
		r, err = scanRedrive(rows)
		found = true
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("redrive %d: %w", id, deadletter.ErrNoRedrive)
	}
	return r, err
}

// CancelRedrive implements deadletter.RedriveStore.
func (s *Store) CancelRedrive(ctx context.Context, id int64, by string) (r deadletter.Redrive, err error) {
	err = s.write(ctx, "cancel a redrive", durable, func(t txn) error {
		if r, err = t.findRedrive(ctx, id); err != nil {
			return err
		}
		if err := r.Cancel(by, stored.Time(t.now)); err != nil {
			return err
		}
		return t.saveRedrive(ctx, r)
	})
	return r, err
}

// FailRedrive implements deadletter.RedriveStore.
func (s *Store) FailRedrive(ctx context.Context, id int64, seen int, cause string) (r deadletter.Redrive, err error) {
	err = s.write(ctx, "note the failure of a redrive", durable, func(t txn) error {
		if r, err = t.findRedrive(ctx, id); err != nil {
			return err
		}
		if !r.Fail(seen, stored.Cause(cause), stored.Time(t.now)) {
			return nil
		}
		return t.saveRedrive(ctx, r)
	})
	return r, err
}

// purgeRedrives removes redrives that ended at least keep ago, at most deadletter.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	return s.write(ctx, "purge redrives", relaxed, func(t txn) error {
		_, err := t.exec(ctx, purgeRedrivesSQL, t.now-keep.Microseconds(), deadletter.PurgeRedrives)
		return err
	})
}

// ShowRedrive implements deadletter.RedriveStore.
func (s *Store) ShowRedrive(ctx context.Context, id int64) (r deadletter.Redrive, err error) {
	err = s.read(ctx, "show a redrive", func(t txn) error {
		if r, err = t.findRedrive(ctx, id); err != nil {
			return err
		}
		r.Outcome = &deadletter.Outcome{}
		err = t.get(ctx, outcomeSQL, []any{id}, &r.Outcome.Waiting, &r.Outcome.Failed)
		r.Outcome.Delivered = r.Done - r.Outcome.Waiting - r.Outcome.Failed
		return err
	})
	return r, err
}

// ListRedrives implements deadletter.RedriveStore.
func (s *Store) ListRedrives(ctx context.Context, state deadletter.RedriveState) iter.Seq2[deadletter.Redrive, error] {
	return func(yield func(deadletter.Redrive, error) bool) {
		for before := int64(1) << 62; ; {
			var page []deadletter.Redrive
			err := s.read(ctx, "list redrives", func(t txn) error {
				page = nil
				const text = showRedriveSQL + `id < ?1 AND ?2 IN ('', state) ORDER BY id DESC LIMIT +?3`
				return t.each(ctx, text, []any{before, string(state), listPage}, func(rows *sql.Rows) error {
					r, err := scanRedrive(rows)
					page = append(page, r)
					return err
				})
			})
			if err != nil {
				yield(deadletter.Redrive{}, err)
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
