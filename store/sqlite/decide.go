package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	decisionColumns = `id, relay, partition, key, seq, verb, message_id, decided_by, reason, state, outcome, count`
	decisionSQL     = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE id = ?`
	addDecisionSQL  = `INSERT INTO {prefix}decisions (id, relay, partition, key, seq, verb, message_id, decided_by, reason, state, recorded_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)`
	endDecisionSQL = `UPDATE {prefix}decisions SET state = ?2, outcome = ?3, count = ?4, done_at = ?5 WHERE id = ?1`
	// The open decisions of the partitions in ?2, oldest first.
	openDecisionsSQL = `SELECT ` + decisionColumns + ` FROM {prefix}decisions
		WHERE relay = ?1 AND done_at IS NULL AND partition IN (SELECT value FROM json_each(?2)) ORDER BY recorded_at, rowid LIMIT 100`
	dropDecisionsSQL = `DELETE FROM {prefix}decisions WHERE id IN (
		SELECT id FROM {prefix}decisions WHERE done_at IS NOT NULL AND done_at <= ? ORDER BY done_at LIMIT 1000)`
	// keepDecisions is how long a completed decision can still be shown.
	keepDecisions = 24 * time.Hour
)

func (t txn) decisions(ctx context.Context, text string, args ...any) (out []store.Decision, err error) {
	err = t.each(ctx, text, args, func(rows *sql.Rows) error {
		var d store.Decision
		err := rows.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &d.Sequence, &d.Verb, &d.MessageID, &d.By, &d.Reason, &d.State,
			&d.Outcome, &d.Count)
		out = append(out, d)
		return err
	})
	return out, err
}

// dropDecisions removes decisions done more than a day ago.
func (s *Store) dropDecisions(ctx context.Context) error {
	return s.write(ctx, "remove decisions that are done", relaxed, func(t txn) error {
		_, err := t.exec(ctx, dropDecisionsSQL, t.now-keepDecisions.Microseconds())
		return err
	})
}

// CheckLease implements store.HeldWriter.
func (r records) CheckLease(ctx context.Context, name string, lease store.LeaseRef) error {
	_, err := r.lease(ctx, name, lease)
	return err
}

// AddDecision implements store.HeldWriter: nobody else has added one since the transaction began.
func (r records) AddDecision(ctx context.Context, d store.Decision) error {
	_, err := r.exec(ctx, addDecisionSQL, d.ID, d.Relay, d.Partition, d.Key, d.Sequence, string(d.Verb), d.MessageID, d.By, d.Reason, r.now)
	return err
}

// LockDecision implements store.HeldWriter.
func (r records) LockDecision(ctx context.Context, id string) (store.Decision, error) {
	return r.Decision(ctx, id)
}

// EndDecision implements store.HeldWriter.
func (r records) EndDecision(ctx context.Context, d store.Decision) error {
	_, err := r.exec(ctx, endDecisionSQL, d.ID, string(d.State), d.Outcome, d.Count, r.now)
	return err
}

// LockHeld implements store.HeldWriter.
func (r records) LockHeld(ctx context.Context, name, key string) (store.HeldInfo, error) {
	h, err := r.HeldKey(ctx, name, key)
	if err != nil || h.NextAttempt.IsZero() {
		return h, err
	}
	if _, err := r.findHead(ctx, name, key); err != nil {
		return h, err
	}
	return r.HeldKey(ctx, name, key)
}

// ResumeHeld implements store.HeldWriter.
func (r records) ResumeHeld(ctx context.Context, h store.HeldInfo) error {
	_, err := r.resumeKey(ctx, h.Relay, h.Key)
	return err
}

const (
	retryParkedSQL = `UPDATE {prefix}parked SET due_at = ?5 WHERE `
	deleteSQL      = `DELETE FROM {prefix}parked WHERE `
	// deadParkedSQL is followed by a choice: ?5 reason, ?6 cause, ?7 now, ?8 history entry or NULL, ?9 state, ?10 by, ?11
	// resolution, ?12 resolved at.
	deadParkedSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + resolvedColumns + `)
		SELECT relay, partition, seq, ` + messageColumns + `, attempts, redrives, ` + historySQL + `, ?5, ?6, ?7, ?9, ?10, ?11, ?12
		FROM {prefix}parked WHERE `
	discardOpenSQL = `UPDATE {prefix}dead SET state = 'discarded', resolved_at = ?1, resolved_by = ?2, resolution = ?3
		WHERE relay = ?4 AND state = 'open'`
	discardOneSQL = discardOpenSQL + ` AND partition = ?5 AND seq = ?6`
)

// chosenParked returns the condition of a choice, which uses all parameters: ?1 relay, ?2 partition, ?3 key, ?4 sequence.
func chosenParked(c store.ParkedChoice) (condition string, args []any) {
	args = []any{c.Relay, c.Partition, c.Key, c.Sequence}
	switch {
	case c.All:
		return `relay = ?1 AND ?2 >= 0 AND ?3 = '' AND ?4 = 0`, args
	case c.Key != "":
		return `relay = ?1 AND ?2 >= 0 AND key = ?3 AND due_at IS NULL AND (?4 = 0 OR seq = ?4)`, args
	}
	return `relay = ?1 AND partition = ?2 AND ?3 = '' AND seq = ?4 AND due_at IS NOT NULL`, args
}

// RetryParked implements store.HeldWriter.
func (r records) RetryParked(ctx context.Context, c store.ParkedChoice) (int, error) {
	condition, args := chosenParked(c)
	n, err := r.exec(ctx, retryParkedSQL+condition, append(args, r.now)...)
	return int(n), err
}

// DeadLetterParked implements store.HeldWriter.
func (r records) DeadLetterParked(ctx context.Context, c store.ParkedChoice, d store.MovedToDead) (int, error) {
	entry, err := r.entry(0, d.Entry)
	if err != nil {
		return 0, err
	}
	resolved := int64(0)
	if d.State != store.DeadOpen {
		resolved = r.now
	}
	condition, chosen := chosenParked(c)
	args := append(chosen[:4:4], d.Reason, stored.Cause(d.Cause), r.now, entry, string(d.State), d.By, d.Resolution, resolved)
	n, err := r.exec(ctx, deadParkedSQL+condition+` ORDER BY seq`, args...)
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = r.exec(ctx, deleteSQL+condition, chosen...)
	return int(n), err
}

// DiscardOpen implements store.HeldWriter.
func (r records) DiscardOpen(ctx context.Context, c store.ParkedChoice, by, resolution string) (int, error) {
	text, args := discardOpenSQL, []any{r.now, by, resolution, c.Relay}
	if !c.All {
		text, args = discardOneSQL, append(args, c.Partition, c.Sequence)
	}
	n, err := r.exec(ctx, text, args...)
	return int(n), err
}
