package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

const (
	decisionColumns  = `id, relay, partition_id, message_key, verb, message_id, decided_by, reason, state, outcome, message_count`
	decisionSQL      = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE id = ?`
	openDecisionsSQL = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE relay = ? AND state = 'open' AND partition_id IN ?
		ORDER BY recorded_at, id LIMIT 100`
	recordDecisionSQL = `INSERT IGNORE INTO {prefix}decisions (` + decisionColumns + `, recorded_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', '', 0, ?)`
	decidedSQL = `UPDATE {prefix}decisions SET state = ?2, outcome = ?3, message_count = ?4, done_at = {now} WHERE id = ?1`
	// checkLeaseSQL checks a lease and locks it by writing its row, as taking the lease over does.
	checkLeaseSQL = `UPDATE {prefix}cursors SET checks = checks + 1
		WHERE relay = ? AND partition_id = ? AND owner <> '' AND token = ? AND incarnation = {present}`
)

func scanDecision(rows *sql.Rows) (store.Decision, error) {
	var d store.Decision
	var verb, state string
	err := rows.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &verb, &d.MessageID, &d.By, &d.Reason, &state, &d.Outcome, &d.Count)
	d.Verb, d.State = store.Verb(verb), store.DecisionState(state)
	return d, err
}

func (t txn) decisions(ctx context.Context, query string, args ...any) (out []store.Decision, err error) {
	err = t.each(ctx, query, args, func(rows *sql.Rows) error {
		d, err := scanDecision(rows)
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

// openDecisions returns the oldest open decisions in the given partitions, at most 100.
func (t txn) openDecisions(ctx context.Context, name string, partitions []int) ([]store.Decision, error) {
	return t.decisions(ctx, openDecisionsSQL, name, partitions)
}

// RecordDecision implements store.HeldKeys.
func (s *Store) RecordDecision(ctx context.Context, d store.Decision) error {
	err := s.write(ctx, "record a decision", func(t txn) error {
		if _, err := t.decision(ctx, d.ID, ``); !errors.Is(err, store.ErrNoDecision) {
			return err
		}
		h, err := t.held(ctx, d.Relay, d.Key)
		if err == nil {
			_, err = t.exec(ctx, recordDecisionSQL, d.ID, d.Relay, h.Partition, d.Key, string(d.Verb), d.MessageID, d.By, d.Reason, t.now)
		}
		return err
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// ShowDecision implements store.HeldKeys.
func (s *Store) ShowDecision(ctx context.Context, id string) (d store.Decision, err error) {
	err = s.read(ctx, "show a decision", func(t txn) (err error) {
		d, err = t.decision(ctx, id, ``)
		return err
	})
	return d, err
}

// Decide implements store.Log. It is as durable as the server's commits.
func (s *Store) Decide(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	return s.write(ctx, "apply a decision", func(t txn) error {
		n, err := t.exec(ctx, checkLeaseSQL, name, lease.Partition, lease.Token)
		if err == nil && n == 0 {
			err = store.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		d, err := t.decision(ctx, id, ` FOR UPDATE`)
		if err != nil || d.State != store.DecisionOpen {
			return err
		}
		if err := t.decide(ctx, &d); err != nil {
			return err
		}
		d.State = store.DecisionApplied
		if d.Outcome != "" {
			d.State = store.DecisionRefused
		}
		_, err = t.exec(ctx, decidedSQL, d.ID, string(d.State), d.Outcome, d.Count)
		return err
	})
}

// decide applies a decision, or sets Outcome to why not. After a decision is applied, the key stays held and is due at once.
func (t txn) decide(ctx context.Context, d *store.Decision) error {
	locked, err := t.lockHeld(ctx, d.Relay, d.Key)
	if err != nil {
		return err
	}
	if locked == nil {
		d.Outcome = store.ErrNotHeld.Error()
		return nil
	}
	undecided := !locked.due.Valid
	if !undecided {
		if _, err := t.findHead(ctx, d.Relay, d.Key); err != nil {
			return err
		}
	}
	h, err := t.held(ctx, d.Relay, d.Key)
	if err != nil {
		return err
	}
	blocking, err := t.blocking(ctx, h, undecided)
	if err != nil {
		return err
	}
	if d.Outcome = d.Refused(blocking, undecided); d.Outcome != "" {
		return nil
	}
	switch d.Verb {
	case store.VerbSkip:
		err = t.skip(ctx, d, h, undecided)
	case store.VerbDead, store.VerbDeadAll:
		err = t.deadHeld(ctx, d, h)
	}
	if err == nil {
		_, err = t.letGo(ctx, d.Relay, d.Key)
	}
	return err
}

const (
	parkedIDSQL   = `SELECT id FROM {prefix}parked WHERE relay = ? AND seq = ?`
	letterIDOfSQL = `SELECT id FROM {prefix}dead WHERE relay = ? AND partition_id = ? AND seq = ? ORDER BY number DESC LIMIT 1`
)

// blocking returns the ID of the message that blocks a key, "" if it is unknown.
func (t txn) blocking(ctx context.Context, h store.HeldInfo, undecided bool) (id string, err error) {
	if undecided {
		err = orNone(t.get(ctx, letterIDOfSQL, []any{h.Relay, h.Partition, h.Sequence}, &id))
	}
	if err == nil && id == "" {
		err = orNone(t.get(ctx, parkedIDSQL, []any{h.Relay, h.Sequence}, &id))
	}
	return id, err
}

const discardSQL = `UPDATE {prefix}dead SET state = 'discarded', resolved_at = ?, resolved_by = ?, resolution = ?
	WHERE relay = ? AND partition_id = ? AND seq = ? AND state = 'open'`

// skip dead-letters the blocking message as discarded, or discards its open dead letter.
func (t txn) skip(ctx context.Context, d *store.Decision, h store.HeldInfo, undecided bool) error {
	if !undecided {
		rows, err := t.lockParked(ctx, d.Relay, []int64{h.Sequence})
		if err != nil {
			return err
		}
		if row, found := rows[h.Sequence]; found {
			err := t.moveToDead(ctx, toDead{
				relay: d.Relay, partition: h.Partition, seq: h.Sequence, reason: "skipped", cause: h.Cause, attempts: h.Attempts,
				history: row.history,
			})
			if err != nil {
				return err
			}
		}
	}
	n, err := t.exec(ctx, discardSQL, t.now, d.By, d.Reason, d.Relay, h.Partition, h.Sequence)
	d.Count = int(min(n, 1))
	return err
}

const headAndFollowersSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND message_key = ?2 AND due_at IS NULL
	AND (?3 OR seq = ?4) ORDER BY seq`

// deadHeld moves the blocking message, or all messages of the key, to the dead letters.
func (t txn) deadHeld(ctx context.Context, d *store.Decision, h store.HeldInfo) error {
	seqs, err := column[int64](ctx, t, headAndFollowersSQL, d.Relay, d.Key, d.Verb == store.VerbDeadAll, h.Sequence)
	if err != nil {
		return err
	}
	rows, err := t.lockParked(ctx, d.Relay, seqs)
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		row, found := rows[seq]
		if !found {
			continue
		}
		err := t.moveToDead(ctx, toDead{
			relay: d.Relay, partition: h.Partition, seq: seq, reason: d.Reason, cause: h.Cause, attempts: row.attempts,
			history: t.addEntry(row.history, 0, "moved to the dead letters by "+d.By),
		})
		if err != nil {
			return err
		}
		d.Count++
	}
	return nil
}
