package mysqlstore

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

var _ deadletter.Store = (*Store)(nil)

const (
	historyOfSQL = `SELECT history FROM {prefix}dead WHERE number = ?`
	// redriveSQL parks the message of a dead letter: ?1 number, ?2 reason, ?3 due or NULL, ?4 now, ?5 history.
	redriveSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT relay, partition_id, seq, ` + messageColumns + `, ?2, 0, ?3, ?4, redrives + 1, ?5 FROM {prefix}dead WHERE number = ?1
		ON DUPLICATE KEY UPDATE reason = VALUES(reason), attempts = 0, due_at = VALUES(due_at), parked_at = VALUES(parked_at),
			redrives = VALUES(redrives), history = VALUES(history)`
	redrivenHeadSQL = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET reason = ?3, cause = '', attempts = 0 WHERE relay = ?1 AND message_key = ?2`
)

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	bounds := ``
	if len(f.Numbers) == 0 && f.MaxRedrives != deadletter.Unbounded {
		bounds = fmt.Sprintf(` AND redrives < %d`, cmp.Or(f.MaxRedrives, deadletter.DefaultMaxRedrives))
	}
	return s.resolve(ctx, "redrive dead letters", f, bounds, limit, func(t txn, l chosenLetter) error {
		if !f.Allows(l.redrives) {
			return deadletter.RefuseTooOften(l.number, l.redrives)
		}
		return t.redrive(ctx, l, 0, by)
	})
}

// redrive resolves a dead letter and parks its message, due at once. If its key is held, the message is queued with the key's
// other messages, in sequence order; a key that waited for the decision about this dead letter resumes.
func (t txn) redrive(ctx context.Context, l chosenLetter, id int64, by string) error {
	var history string
	if err := t.get(ctx, historyOfSQL, []any{l.number}, &history); err != nil {
		return err
	}
	if _, err := t.exec(ctx, resolveSQL, string(deadletter.Redriven), t.now, by, "", id, l.number); err != nil {
		return err
	}
	var held *lockedKey
	if l.key != "" {
		var err error
		if held, err = t.lockHeld(ctx, l.relay, l.key); err != nil {
			return err
		}
	}
	due := sql.Null[int64]{V: t.now, Valid: held == nil}
	reason := string(relay.ParkRedriven)
	history = t.addEntry(history, 0, "redriven by "+by)
	_, err := t.exec(ctx, redriveSQL, l.number, reason, due, t.now, history)
	if err != nil || held == nil || held.due.Valid || held.seq != l.seq {
		return err
	}
	if _, err := t.exec(ctx, redrivenHeadSQL, l.relay, l.key, reason); err != nil {
		return err
	}
	_, err = t.letGo(ctx, l.relay, l.key)
	return err
}

const (
	newestLetterSQL = `SELECT COALESCE(MAX(number), 0) FROM {prefix}dead`
	startRedriveSQL = `INSERT INTO {prefix}redrives (state, body) VALUES (?, ?)`
	lockRedriveSQL  = `SELECT body FROM {prefix}redrives WHERE id = ?`
	storeRedriveSQL = `UPDATE {prefix}redrives SET state = ?2, body = ?3 WHERE id = ?1`
	listRedrivesSQL = `SELECT id, body FROM {prefix}redrives WHERE id < ?1 AND (?2 = '' OR state = ?2) ORDER BY id DESC LIMIT 50`
	// endedRedrivesSQL reads ?2 ended redrives with an ID above ?1, oldest first.
	endedRedrivesSQL = `SELECT id, body FROM {prefix}redrives WHERE id > ?1 AND state <> 'running' ORDER BY id LIMIT ?2`
	purgeRedrivesSQL = `DELETE FROM {prefix}redrives WHERE id IN ? AND state <> 'running'`
	// outcomeSQL counts how many of the messages are parked, and how many have been dead-lettered again.
	outcomeSQL = `SELECT
		(SELECT COUNT(*) FROM {prefix}dead d JOIN {prefix}parked p ON p.relay = d.relay AND p.seq = d.seq
			AND p.redrives = d.redrives + 1 WHERE d.redrive = ?1 AND d.redrive > 0),
		(SELECT COUNT(*) FROM {prefix}dead d WHERE d.redrive = ?1 AND d.redrive > 0 AND EXISTS (
			SELECT 1 FROM {prefix}dead l WHERE l.relay = d.relay AND l.partition_id = d.partition_id AND l.seq = d.seq
				AND l.number > d.number))`
)

// StartRedrive implements deadletter.RedriveStore.
func (s *Store) StartRedrive(ctx context.Context, p deadletter.Plan) (r deadletter.Redrive, err error) {
	if err := p.Validate(); err != nil {
		return r, err
	}
	p.Filter.State = deadletter.Open
	err = s.write(ctx, "start a redrive", func(t txn) error {
		if err := t.checkNamed(ctx, p.Filter); err != nil {
			return err
		}
		r = deadletter.Redrive{
			Filter: p.Filter, Rate: p.Rate, By: p.By, State: deadletter.RedriveRunning, StartedAt: stored.Time(t.now),
		}
		if err := t.get(ctx, newestLetterSQL, nil, &r.UpTo); err != nil {
			return err
		}
		var err error
		if r.Selected, err = t.countDead(ctx, s.condition(p.Filter)+fmt.Sprintf(` AND number <= %d`, r.UpTo)); err != nil {
			return err
		}
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		res, err := t.run(ctx, startRedriveSQL, string(r.State), body)
		if err == nil {
			r.ID, err = res.LastInsertId()
		}
		return err
	})
	if err == nil {
		s.Wake()
	}
	return r, err
}

// StepRedrive implements deadletter.RedriveStore.
func (s *Store) StepRedrive(ctx context.Context, id int64, limit int) (r deadletter.Redrive, wait time.Duration, err error) {
	sent := 0
	err = s.write(ctx, "step a redrive", func(t txn) error {
		sent = 0
		if r, err = t.redriveOf(ctx, id, ` FOR UPDATE`); err != nil {
			return err
		}
		if err := t.look(ctx); err != nil { // after waiting for the redrive
			return err
		}
		now := stored.Time(t.now)
		if r.State == deadletter.RedriveRunning && !r.NextAt.After(now) {
			if sent, err = t.stepRedrive(ctx, &r, r.Batch(cmp.Or(limit, defaultBatch)), now); err != nil {
				return err
			}
		}
		wait = max(r.NextAt.Sub(now), 0)
		return nil
	})
	if err == nil && sent > 0 {
		s.Wake()
	}
	return r, wait, err
}

// stepRedrive redrives one batch. If others have resolved dead letters of the batch, the next step tries again.
func (t txn) stepRedrive(ctx context.Context, r *deadletter.Redrive, batch int, now time.Time) (sent int, err error) {
	bounds := fmt.Sprintf(` AND number > %d AND number <= %d`, r.Position, r.UpTo)
	letters, overtaken, err := t.chooseOpen(ctx, r.Filter, bounds, batch)
	if err != nil {
		return 0, err
	}
	candidates := make([]deadletter.Candidate, len(letters))
	for i, l := range letters {
		candidates[i] = deadletter.Candidate{Number: l.number, Redrives: l.redrives}
	}
	send := set(r.Take(candidates, now))
	if len(letters) < batch && !overtaken {
		r.Finish(now)
	}
	for _, l := range letters {
		if send[l.number] {
			if err := t.redrive(ctx, l, r.ID, r.By); err != nil {
				return 0, fmt.Errorf("dead letter %d: %w", l.number, err)
			}
		}
	}
	return len(send), t.storeRedrive(ctx, *r)
}

func (t txn) storeRedrive(ctx context.Context, r deadletter.Redrive) error {
	body, err := json.Marshal(r)
	if err == nil {
		_, err = t.exec(ctx, storeRedriveSQL, r.ID, string(r.State), body)
	}
	return err
}

// redriveOf reads a redrive; lock is an optional locking clause.
func (t txn) redriveOf(ctx context.Context, id int64, lock string) (r deadletter.Redrive, err error) {
	var body string
	err = t.get(ctx, lockRedriveSQL+lock, []any{id}, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fmt.Errorf("redrive %d: %w", id, deadletter.ErrNoRedrive)
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &r)
	}
	r.ID = id
	return r, err
}

// CancelRedrive implements deadletter.RedriveStore.
func (s *Store) CancelRedrive(ctx context.Context, id int64, by string) (r deadletter.Redrive, err error) {
	err = s.write(ctx, "cancel a redrive", func(t txn) (err error) {
		if r, err = t.redriveOf(ctx, id, ` FOR UPDATE`); err != nil {
			return err
		}
		if err := r.Cancel(by, stored.Time(t.now)); err != nil {
			return err
		}
		return t.storeRedrive(ctx, r)
	})
	return r, err
}

// FailRedrive implements deadletter.RedriveStore.
func (s *Store) FailRedrive(ctx context.Context, id int64, seen int, cause string) (r deadletter.Redrive, err error) {
	err = s.write(ctx, "note the failure of a redrive", func(t txn) (err error) {
		if r, err = t.redriveOf(ctx, id, ` FOR UPDATE`); err != nil {
			return err
		}
		if err := t.look(ctx); err != nil { // after waiting for the redrive
			return err
		}
		if !r.Fail(seen, stored.Cause(cause), stored.Time(t.now)) {
			return nil
		}
		return t.storeRedrive(ctx, r)
	})
	return r, err
}

// purgeRedrives removes redrives that ended by a time. It stops after about deadletter.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, by time.Time) error {
	const pageSize = 100
	var old []int64
	for after := int64(0); len(old) < deadletter.PurgeRedrives; {
		page, err := s.redrivesOf(ctx, endedRedrivesSQL, after, pageSize)
		if err != nil {
			return err
		}
		for _, r := range page {
			if after = r.ID; !r.EndedAt.After(by) {
				old = append(old, r.ID)
			}
		}
		if len(page) < pageSize {
			break
		}
	}
	if len(old) == 0 {
		return nil
	}
	return s.write(ctx, "purge redrives", func(t txn) error {
		_, err := t.exec(ctx, purgeRedrivesSQL, old)
		return err
	})
}

// ShowRedrive implements deadletter.RedriveStore.
func (s *Store) ShowRedrive(ctx context.Context, id int64) (r deadletter.Redrive, err error) {
	err = s.read(ctx, "show a redrive", func(t txn) (err error) {
		if r, err = t.redriveOf(ctx, id, ``); err != nil {
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
			page, err := s.redrivesOf(ctx, listRedrivesSQL, before, string(state))
			if err != nil {
				yield(deadletter.Redrive{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, r := range page {
				if before = r.ID; !yield(r, nil) {
					return
				}
			}
		}
	}
}

// redrivesOf reads the redrives that a query returns.
func (s *Store) redrivesOf(ctx context.Context, query string, args ...any) (page []deadletter.Redrive, err error) {
	err = s.read(ctx, "list redrives", func(t txn) error {
		page = nil
		return t.each(ctx, query, args, func(rows *sql.Rows) error {
			var id int64
			var body string
			if err := rows.Scan(&id, &body); err != nil {
				return err
			}
			var r deadletter.Redrive
			err := json.Unmarshal([]byte(body), &r)
			r.ID = id
			page = append(page, r)
			return err
		})
	})
	return page, err
}
