package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	decisionColumns = `id, relay, partition, key, verb, message_id, decided_by, reason, state, outcome, count`
	decisionSQL     = `SELECT ` + decisionColumns + ` FROM {prefix}decisions WHERE id = ?`
	recordSQL       = `INSERT INTO {prefix}decisions (id, relay, partition, key, verb, message_id, decided_by, reason, state, recorded_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)`
	doneSQL = `UPDATE {prefix}decisions SET state = ?2, outcome = ?3, count = ?4, done_at = ?5 WHERE id = ?1`
	// The open decisions of the partitions in ?2, oldest first.
	openDecisionsSQL = `SELECT ` + decisionColumns + ` FROM {prefix}decisions
		WHERE relay = ?1 AND done_at IS NULL AND partition IN (SELECT value FROM json_each(?2)) ORDER BY recorded_at, rowid LIMIT 100`
	dropDecisionsSQL = `DELETE FROM {prefix}decisions WHERE id IN (
		SELECT id FROM {prefix}decisions WHERE done_at IS NOT NULL AND done_at <= ? ORDER BY done_at LIMIT 1000)`
	// keepDecisions is how long a completed decision can still be shown.
	keepDecisions = 24 * time.Hour
)

func scanDecision(rows *sql.Rows) (d store.Decision, err error) {
	err = rows.Scan(&d.ID, &d.Relay, &d.Partition, &d.Key, &d.Verb, &d.MessageID, &d.By, &d.Reason, &d.State, &d.Outcome, &d.Count)
	return d, err
}

func (t txn) decisions(ctx context.Context, text string, args ...any) (out []store.Decision, err error) {
	err = t.each(ctx, text, args, func(rows *sql.Rows) error {
		d, err := scanDecision(rows)
		out = append(out, d)
		return err
	})
	return out, err
}

// decision finds a decision. Errors: store.ErrNoDecision.
func (t txn) decision(ctx context.Context, id string) (store.Decision, error) {
	found, err := t.decisions(ctx, decisionSQL, id)
	if err != nil {
		return store.Decision{}, err
	}
	if len(found) == 0 {
		return store.Decision{}, fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	return found[0], nil
}

// RecordDecision implements store.HeldKeys.
func (s *Store) RecordDecision(ctx context.Context, d store.Decision) error {
	err := s.write(ctx, "record a decision", durable, func(t txn) error {
		_, err := t.decision(ctx, d.ID)
		if !errors.Is(err, store.ErrNoDecision) {
			return err
		}
		h, err := t.held(ctx, d.Relay, d.Key)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, recordSQL, d.ID, d.Relay, h.Partition, d.Key, string(d.Verb), d.MessageID, d.By, d.Reason, t.now)
		return err
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// ShowDecision implements store.HeldKeys.
func (s *Store) ShowDecision(ctx context.Context, id string) (d store.Decision, err error) {
	err = s.read(ctx, "show a decision", func(t txn) error {
		d, err = t.decision(ctx, id)
		return err
	})
	return d, err
}

// Decide implements store.Log.
func (s *Store) Decide(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	err := s.write(ctx, "apply a decision", durable, func(t txn) error {
		if _, err := t.lease(ctx, name, lease); err != nil {
			return err
		}
		d, err := t.decision(ctx, id)
		if err != nil || d.State != store.DecisionOpen {
			return err
		}
		if d.Relay != name || d.Partition != lease.Partition {
			return fmt.Errorf("decision %s is about partition %d of relay %q", id, d.Partition, d.Relay)
		}
		if d.State, err = store.DecisionApplied, t.decide(ctx, &d); err != nil {
			return err
		}
		if d.Outcome != "" {
			d.State = store.DecisionRefused
		}
		_, err = t.exec(ctx, doneSQL, id, string(d.State), d.Outcome, d.Count, t.now)
		return err
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// undecided reports whether a key waits for an operator: its blocking message is a dead letter.
func undecided(h store.HeldInfo) bool { return h.NextAttempt.IsZero() }

const (
	parkedIDSQL = `SELECT id FROM {prefix}parked WHERE relay = ? AND seq = ?`
	deadIDSQL   = `SELECT id FROM {prefix}dead WHERE relay = ? AND partition = ? AND seq = ? ORDER BY number DESC LIMIT 1`
)

// decide applies a decision, or records in its Outcome the reason for refusing it. The key stays held, due at once, so that the
// process that holds its partition continues or releases it: only that process knows what it has in memory.
func (t txn) decide(ctx context.Context, d *store.Decision) error {
	h, err := t.held(ctx, d.Relay, d.Key)
	if errors.Is(err, store.ErrNotHeld) {
		d.Outcome = store.ErrNotHeld.Error()
		return nil
	}
	if err == nil && !undecided(h) {
		if _, err = t.findHead(ctx, d.Relay, d.Key); err == nil {
			h, err = t.held(ctx, d.Relay, d.Key)
		}
	}
	if err != nil {
		return err
	}
	var blocking string
	if undecided(h) {
		err = t.get(ctx, deadIDSQL, []any{d.Relay, h.Partition, h.Sequence}, &blocking)
	} else {
		err = t.get(ctx, parkedIDSQL, []any{d.Relay, h.Sequence}, &blocking)
	}
	if err = orNone(err); err != nil {
		return err
	}
	if d.Outcome = d.Refused(blocking, undecided(h)); d.Outcome != "" {
		return nil
	}
	switch d.Verb {
	case store.VerbSkip:
		err = t.skip(ctx, d, h)
	case store.VerbDead, store.VerbDeadAll:
		err = t.deadLetterHeld(ctx, d, h)
	}
	if err != nil {
		return err
	}
	_, err = t.letGo(ctx, d.Relay, d.Key)
	return err
}

const discardSQL = `UPDATE {prefix}dead SET state = 'discarded', resolved_at = ?, resolved_by = ?, resolution = ?
	WHERE relay = ? AND partition = ? AND seq = ? AND state = 'open'`

// skip discards the blocking message.
func (t txn) skip(ctx context.Context, d *store.Decision, h store.HeldInfo) error {
	if !undecided(h) {
		_, err := t.moveToDead(ctx, toDead{
			relay: d.Relay, partition: h.Partition, seq: h.Sequence, reason: "skipped", cause: h.Cause,
			attempts: sql.Null[int]{V: h.Attempts, Valid: true},
		})
		if err != nil {
			return err
		}
	}
	n, err := t.exec(ctx, discardSQL, t.now, d.By, d.Reason, d.Relay, h.Partition, h.Sequence)
	d.Count = int(n)
	return err
}

const blockingAndQueuedSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND key = ?2 AND due_at IS NULL
	AND (?3 OR seq = ?4) ORDER BY seq`

// deadLetterHeld moves the blocking message to the dead letters, or all parked messages of the key.
func (t txn) deadLetterHeld(ctx context.Context, d *store.Decision, h store.HeldInfo) error {
	seqs, err := t.sequences(ctx, blockingAndQueuedSQL, d.Relay, d.Key, d.Verb == store.VerbDeadAll, h.Sequence)
	if err != nil {
		return err
	}
	entry, err := stored.Entry(0, t.now, "moved to the dead letters by "+d.By)
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		_, err := t.moveToDead(ctx, toDead{
			relay: d.Relay, partition: h.Partition, seq: seq, reason: d.Reason, cause: h.Cause,
			entry: sql.Null[string]{V: entry, Valid: true},
		})
		if err != nil {
			return err
		}
		d.Count++
	}
	return nil
}

// dropDecisions removes decisions done more than a day ago.
func (s *Store) dropDecisions(ctx context.Context) error {
	return s.write(ctx, "remove decisions that are done", relaxed, func(t txn) error {
		_, err := t.exec(ctx, dropDecisionsSQL, t.now-keepDecisions.Microseconds())
		return err
	})
}
