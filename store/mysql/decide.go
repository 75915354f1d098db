package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	decisionColumns = `id, relay, partition_id, message_key, seq, verb, message_id, decided_by, reason, state, outcome, message_count`
	decisionSQL     = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE id = ?`
	// The oldest open decisions in some partitions.
	openDecisionsSQL = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE relay = ? AND state = 'open' AND partition_id IN ?
		ORDER BY recorded_at, id LIMIT 100`
	addDecisionSQL = `INSERT IGNORE INTO {prefix}decisions (` + decisionColumns + `, recorded_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', '', 0, ?)`
	endDecisionSQL = `UPDATE {prefix}decisions SET state = ?2, outcome = ?3, message_count = ?4, done_at = {now} WHERE id = ?1`
	// checkLeaseSQL checks a lease and locks it by writing its row, as taking the lease over does.
	checkLeaseSQL = `UPDATE {prefix}cursors SET checks = checks + 1
		WHERE relay = ? AND partition_id = ? AND owner <> '' AND token = ? AND incarnation = {present}`
)

func (t txn) decisions(ctx context.Context, query string, args ...any) (out []store.Decision, err error) {
	err = t.each(ctx, query, args, func(rows *sql.Rows) error {
		var d store.Decision
		err := rows.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &d.Sequence, &d.Verb, &d.MessageID, &d.By, &d.Reason, &d.State,
			&d.Outcome, &d.Count)
		out = append(out, d)
		return err
	})
	return out, err
}

// decision reads a decision; lock is an optional locking clause. Errors: store.ErrNoDecision.
func (t txn) decision(ctx context.Context, id, lock string) (store.Decision, error) {
	found, err := t.decisions(ctx, decisionSQL+lock, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	if err != nil {
		return store.Decision{}, err
	}
	return found[0], nil
}

// CheckLease implements store.HeldWriter.
func (r records) CheckLease(ctx context.Context, name string, lease store.LeaseRef) error {
	n, err := r.exec(ctx, checkLeaseSQL, name, lease.Partition, lease.Token)
	if err == nil && n == 0 {
		err = store.ErrLeaseLost
	}
	return err
}

// AddDecision implements store.HeldWriter.
func (r records) AddDecision(ctx context.Context, d store.Decision) error {
	_, err := r.exec(ctx, addDecisionSQL, d.ID, d.Relay, d.Partition, d.Key, d.Sequence, string(d.Verb), d.MessageID, d.By, d.Reason, r.now)
	return err
}

// LockDecision implements store.HeldWriter.
func (r records) LockDecision(ctx context.Context, id string) (store.Decision, error) {
	return r.txn.decision(ctx, id, ` FOR UPDATE`)
}

// EndDecision implements store.HeldWriter.
func (r records) EndDecision(ctx context.Context, d store.Decision) error {
	_, err := r.exec(ctx, endDecisionSQL, d.ID, string(d.State), d.Outcome, d.Count)
	return err
}

// LockHeld implements store.HeldWriter.
func (r records) LockHeld(ctx context.Context, name, key string) (store.HeldInfo, error) {
	locked, err := r.lockHeld(ctx, name, key)
	if err == nil && locked != nil && locked.due.Valid {
		_, err = r.findHead(ctx, name, key)
	}
	if err != nil {
		return store.HeldInfo{}, err
	}
	return r.HeldKey(ctx, name, key)
}

// ResumeHeld implements store.HeldWriter.
func (r records) ResumeHeld(ctx context.Context, h store.HeldInfo) error {
	_, err := r.resumeKey(ctx, h.Relay, h.Key)
	return err
}

const (
	retryParkedSQL   = `UPDATE {prefix}parked SET due_at = ? WHERE relay = ? AND seq IN ?`
	deleteParkedSQL  = `DELETE FROM {prefix}parked WHERE relay = ? AND seq IN ?`
	discardOpenSQL   = `UPDATE {prefix}dead SET state = 'discarded', resolved_at = ?, resolved_by = ?, resolution = ? WHERE relay = ? AND state = 'open'`
	discardOneSQL    = discardOpenSQL + ` AND partition_id = ? AND seq = ?`
	chooseParkedSQL  = `SELECT seq FROM {prefix}parked WHERE relay = ?1`
	chooseOneSQL     = chooseParkedSQL + ` AND partition_id = ?2 AND seq = ?3 AND due_at IS NOT NULL`
	chooseQueuedSQL  = chooseParkedSQL + ` AND message_key = ?2 AND due_at IS NULL AND (?3 = 0 OR seq = ?3)`
	inOrderLockedSQL = ` ORDER BY seq FOR UPDATE`

	// deadParkedSQL copies parked messages to the dead letters: ?1 relay, ?2 sequences, ?3 now, ?4 reason, ?5 cause, ?6 its
	// fingerprint, ?7 history entry or '', ?8 state, ?9 by, ?10 resolution, ?11 resolved at.
	deadParkedSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at)
		SELECT relay, partition_id, seq, ` + messageColumns + `, attempts, redrives, ` + addEntrySQL + `, ?4, ?5, ?6, ?3, ?8, ?9, ?10, ?11
		FROM {prefix}parked FORCE INDEX (PRIMARY) WHERE relay = ?1 AND seq IN ?2 ORDER BY seq`
	// A history is as written by encodeHistory; stored.History takes its last entries. What is not a history is replaced.
	addEntrySQL = `CASE WHEN ?7 = '' THEN history
		WHEN history LIKE '[{%}]' THEN CONCAT(LEFT(history, LENGTH(history) - 1), ',', ?7, ']')
		ELSE CONCAT('[', ?7, ']') END`
	// moveAtOnce is how many messages one statement moves.
	moveAtOnce = 1_000
)

// chosenParked locks the parked messages of a choice and returns their sequences. The row of a held key is locked already, so
// that none is added to it.
func (r records) chosenParked(ctx context.Context, c store.ParkedChoice) ([]int64, error) {
	switch {
	case c.All:
		return stored.Column[int64](ctx, r.txn.query, chooseParkedSQL+inOrderLockedSQL, c.Relay)
	case c.Key != "":
		return stored.Column[int64](ctx, r.txn.query, chooseQueuedSQL+inOrderLockedSQL, c.Relay, c.Key, c.Sequence)
	}
	return stored.Column[int64](ctx, r.txn.query, chooseOneSQL+inOrderLockedSQL, c.Relay, c.Partition, c.Sequence)
}

// RetryParked implements store.HeldWriter.
func (r records) RetryParked(ctx context.Context, c store.ParkedChoice) (int, error) {
	seqs, err := r.chosenParked(ctx, c)
	if err == nil && len(seqs) > 0 {
		_, err = r.exec(ctx, retryParkedSQL, r.now, c.Relay, seqs)
	}
	return len(seqs), err
}

// DeadLetterParked implements store.HeldWriter.
func (r records) DeadLetterParked(ctx context.Context, c store.ParkedChoice, d store.MovedToDead) (int, error) {
	seqs, err := r.chosenParked(ctx, c)
	if err != nil {
		return 0, err
	}
	entry, resolved, cause := "", int64(0), stored.Cause(d.Cause)
	if d.Entry != "" {
		if entry, err = stored.Entry(0, r.now, d.Entry); err != nil {
			return 0, err
		}
	}
	if d.State != store.DeadOpen {
		resolved = r.now
	}
	for some := range slices.Chunk(seqs, moveAtOnce) {
		_, err := r.exec(ctx, deadParkedSQL, c.Relay, some, r.now, d.Reason, cause, store.Fingerprint(cause), entry, string(d.State),
			d.By, d.Resolution, resolved)
		if err != nil {
			return 0, err
		}
		if _, err := r.exec(ctx, deleteParkedSQL, c.Relay, some); err != nil {
			return 0, err
		}
	}
	return len(seqs), nil
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
