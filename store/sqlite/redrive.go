package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
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

// redrive closes a dead letter and parks its message, due at once. If its key is held, the message joins the queued messages of
// the key. If the key waited for the decision about this dead letter, it becomes due.
func (r records) redrive(ctx context.Context, l chosenDead, how store.Resolution) error {
	if _, err := r.exec(ctx, sentBackSQL, r.now, how.By, how.Redrive, l.number); err != nil {
		return err
	}
	entry, err := stored.Entry(0, r.now, "redriven by "+how.By)
	if err != nil {
		return err
	}
	var head bool
	err = r.get(ctx, heldHeadSQL, []any{l.relay, l.key, l.seq}, &head)
	held := err == nil
	if err := stored.OrNone(err); err != nil {
		return err
	}
	due := sql.Null[int64]{V: r.now, Valid: !held}
	reason := string(store.ParkRedriven)
	if _, err := r.exec(ctx, redriveSQL, l.number, nil, reason, nil, nil, due, r.now, entry); err != nil || !head {
		return err
	}
	if _, err := r.exec(ctx, redrivenHeadSQL, l.relay, l.key, l.seq, reason); err != nil {
		return err
	}
	_, err = r.resumeKey(ctx, l.relay, l.key)
	return err
}

const (
	startRedriveSQL = `INSERT INTO {prefix}redrives (filter, rate, state, started_by, started_at, selected, up_to)
		VALUES (?, ?, 'running', ?, ?, ?, ?) RETURNING id`
	showRedriveSQL = `SELECT id, filter, rate, state, started_by, started_at, ended_at, cancelled_by, selected, done, refused,
			skipped, position, up_to, next_at, failures, cause
		FROM {prefix}redrives WHERE `
	// How many of the messages are parked again, how many of these have failed since, and how many were dead-lettered again.
	outcomeSQL = `SELECT count(*), count(p.seq), coalesce(sum(p.attempts > 0), 0), coalesce(sum(EXISTS (
			SELECT 1 FROM {prefix}dead l WHERE l.relay = d.relay AND l.partition = d.partition AND l.seq = d.seq
				AND l.number > d.number)), 0)
		FROM {prefix}dead d LEFT JOIN {prefix}parked p ON p.relay = d.relay AND p.seq = d.seq AND p.redrives = d.redrives + 1
		WHERE d.redrive = ?1 AND d.redrive > 0 AND d.number > ?2 AND d.type <> '` + store.ErasedType + `'`
	saveRedriveSQL = `UPDATE {prefix}redrives SET state = ?2, ended_at = ?3, cancelled_by = ?4, selected = ?5, done = ?6,
			refused = ?7, skipped = ?8, position = ?9, next_at = ?10, failures = ?11, cause = ?12 WHERE id = ?1`
	// Redrives that ended by ?1, the oldest ?2 first.
	purgeRedrivesSQL = `DELETE FROM {prefix}redrives WHERE id IN (
		SELECT id FROM {prefix}redrives WHERE state <> 'running' AND ended_at <= ?1 ORDER BY id LIMIT ?2)`
)

// AddRedrive implements store.Writer.
func (r records) AddRedrive(ctx context.Context, added store.Redrive) (id int64, err error) {
	filter, err := json.Marshal(added.Filter)
	if err != nil {
		return 0, err
	}
	args := []any{string(filter), added.Rate, added.By, micro(added.StartedAt), added.Selected, added.UpTo}
	err = r.get(ctx, startRedriveSQL, args, &id)
	return id, err
}

// SaveRedrive implements store.Writer.
func (r records) SaveRedrive(ctx context.Context, saved store.Redrive) error {
	_, err := r.exec(ctx, saveRedriveSQL, saved.ID, string(saved.State), micro(saved.EndedAt), saved.CancelledBy, saved.Selected,
		saved.Done, saved.Refused, saved.Skipped, saved.Position, micro(saved.NextAt), saved.Failures, saved.Cause)
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

func scanRedrive(rows *sql.Rows) (r store.Redrive, err error) {
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

// redrives reads the redrives that a condition selects.
func (r records) redrives(ctx context.Context, where string, args ...any) (out []store.Redrive, err error) {
	err = r.each(ctx, showRedriveSQL+where, args, func(rows *sql.Rows) error {
		found, err := scanRedrive(rows)
		out = append(out, found)
		return err
	})
	return out, err
}

// Redrive implements store.Reader.
func (r records) Redrive(ctx context.Context, id int64) (store.Redrive, error) {
	found, err := r.redrives(ctx, `id = ?`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("redrive %d: %w", id, store.ErrNoRedrive)
	}
	if err != nil {
		return store.Redrive{}, err
	}
	return found[0], nil
}

// LockRedrive implements store.Writer: the transaction has locked the database.
func (r records) LockRedrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.Redrive(ctx, id)
}

// Redrives implements store.Reader.
func (r records) Redrives(ctx context.Context, state store.RedriveState, before int64, limit int) ([]store.Redrive, error) {
	return r.redrives(ctx, `id < ?1 AND ?2 IN ('', state) ORDER BY id DESC LIMIT +?3`, before, string(state), limit)
}

// Redriven implements store.Reader.
func (r records) Redriven(ctx context.Context, id, after int64) (n store.Redriven, err error) {
	err = r.get(ctx, outcomeSQL, []any{id, after}, &n.Found, &n.Parked, &n.Failing, &n.Dead)
	return n, err
}

// purgeRedrives removes redrives that ended at least keep ago, at most store.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	return s.write(ctx, "purge redrives", relaxed, func(t txn) error {
		_, err := t.exec(ctx, purgeRedrivesSQL, t.now-keep.Microseconds(), store.PurgeRedrives)
		return err
	})
}
