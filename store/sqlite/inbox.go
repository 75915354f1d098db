package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Inbox[*sql.Tx] = (*Store)(nil)

const (
	savepointSQL  = `SAVEPOINT postrider_inbox`
	releasePutSQL = `RELEASE postrider_inbox`
	rollbackToSQL = `ROLLBACK TO postrider_inbox`
)

// Savepoint implements store.Transactor. SQLite uses the innermost savepoint of a name.
func (s *Store) Savepoint(ctx context.Context, tx *sql.Tx, f func(context.Context, *sql.Tx) error) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	if _, err := tx.ExecContext(ctx, savepointSQL); err != nil {
		return s.inTransaction("make a savepoint", err)
	}
	err := f(ctx, tx)
	if err == nil {
		if _, err = tx.ExecContext(ctx, releasePutSQL); err == nil {
			return nil
		}
		err = s.inTransaction("release a savepoint", err)
	}
	ctx = context.WithoutCancel(ctx)
	for _, text := range []string{rollbackToSQL, releasePutSQL} {
		if _, undo := tx.ExecContext(ctx, text); undo != nil {
			return errors.Join(err, store.ErrUndone, s.inTransaction("return to a savepoint", undo))
		}
	}
	return err
}

// Conflicted implements store.Transactor. A transaction that writes has the database to itself.
func (s *Store) Conflicted(error) bool { return false }

const (
	claimSQL = `INSERT INTO {prefix}claims (consumer, id, claimed_at)
		SELECT ?1, value, ?3 FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING RETURNING id`
	heldAmongSQL = `SELECT key FROM {prefix}held WHERE relay = ?1 AND key IN (SELECT value FROM json_each(?2))`
)

// Claim implements store.Ledger.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	ids, keys := make([]string, len(msgs)), make([]string, len(msgs))
	for i, c := range msgs {
		ids[i], keys[i] = c.ID, c.Key
	}
	out := make([]store.ClaimResult, len(msgs))
	err := s.within("claim messages", tx, func(t txn) error {
		fresh, err := stored.Column[string](ctx, t.query, claimSQL, consumer, list(ids), t.now)
		if err != nil {
			return err
		}
		held, err := stored.Column[string](ctx, t.query, heldAmongSQL, consumer, list(keys))
		if err != nil {
			return err
		}
		fresher, holding := set(fresh), set(held)
		for i, c := range msgs {
			out[i] = store.ClaimResult{Fresh: fresher[c.ID], Held: c.Key != "" && holding[c.Key]}
			fresher[c.ID] = false
		}
		return nil
	})
	return out, err
}

const (
	versionSQL    = `SELECT version FROM {prefix}versions WHERE consumer = ? AND key = ?`
	setVersionSQL = `INSERT INTO {prefix}versions (consumer, key, version) VALUES (?1, ?2, ?3)
		ON CONFLICT DO UPDATE SET version = excluded.version`
)

// Version implements store.Ledger.
func (s *Store) Version(ctx context.Context, tx *sql.Tx, consumer, key string) (int64, error) {
	return find(s, "read an aggregate version", tx, func(t txn) (v int64, err error) {
		if _, err := t.exec(ctx, lockSQL); err != nil {
			return 0, err
		}
		err = stored.OrNone(t.get(ctx, versionSQL, []any{consumer, key}, &v))
		return v, err
	})
}

// SetVersion implements store.Ledger.
func (s *Store) SetVersion(ctx context.Context, tx *sql.Tx, consumer, key string, version int64) error {
	return s.within("note an aggregate version", tx, func(t txn) error {
		_, err := t.exec(ctx, setVersionSQL, consumer, key, version)
		return err
	})
}

const removeClaimsSQL = `DELETE FROM {prefix}claims WHERE (consumer, id) IN (
	SELECT consumer, id FROM {prefix}claims WHERE consumer = ?1 AND claimed_at < ?2 ORDER BY claimed_at LIMIT +?3)`

// RemoveClaims implements store.Ledger.
func (s *Store) RemoveClaims(ctx context.Context, consumer string, age time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "remove claims", relaxed, func(t txn) (err error) {
		n, err = t.exec(ctx, removeClaimsSQL, consumer, t.now-age.Microseconds(), limit)
		return err
	})
	return int(n), err
}

// Enroll implements store.Parker.
func (s *Store) Enroll(ctx context.Context, consumer string) error {
	return s.write(ctx, fmt.Sprintf("enroll consumer %q", consumer), durable, func(t txn) error {
		return t.begin(ctx, consumer, store.KindConsumer, false)
	})
}

const (
	nextSequenceSQL = `UPDATE {prefix}meta SET value = value + ?1 WHERE name = 'aside' RETURNING value - ?1`
	failedValues    = `(?, ?, ?` + questionMarks + `, ?, ?, ?, ?, 0, ?)`
	parkSQL         = `INSERT INTO {prefix}parked (` + copiedColumns + `) VALUES ` + failedValues
	isHeldSQL       = `SELECT EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ? AND key = ?)`
)

// questionMarks are the parameters of messageColumns.
const questionMarks = `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`

// nextSequences assigns n sequences to messages that are parked or dead-lettered, and returns the one before the first.
func (t txn) nextSequences(ctx context.Context, n int) (seq int64, err error) {
	err = t.get(ctx, nextSequenceSQL, []any{n}, &seq)
	return seq, err
}

// Park implements store.Parker.
func (s *Store) Park(ctx context.Context, tx *sql.Tx, consumer string, failed []store.ParkRequest) error {
	return s.within("park messages", tx, func(t txn) error {
		seq, err := t.nextSequences(ctx, len(failed))
		if err != nil {
			return err
		}
		for i := range failed {
			seq++
			if err := t.writeFailed(ctx, consumer, seq, &failed[i]); err != nil {
				return fmt.Errorf("message %s: %w", failed[i].Message.ID, t.s.cfg.storable(err))
			}
		}
		return nil
	})
}

func (t txn) writeFailed(ctx context.Context, consumer string, seq int64, p *store.ParkRequest) error {
	m, text := p.Message, parkSQL
	row, err := t.failedRow(ctx, consumer, seq, m)
	if err != nil {
		return err
	}
	h := store.HeldKey{Key: m.Key, Sequence: seq, Reason: p.Reason, Cause: p.Why(), Attempts: len(p.Attempts), After: p.After}
	if d := p.Dead; d != nil {
		text, h.Reason, h.UntilDecided = deadLetterSQL, store.ParkDead, true
		row = append(row, len(p.Attempts), t.history(p.Attempts, ""), d.Reason, stored.Cause(p.Cause), t.now)
		row = append(row, stored.Resolution(d.Discarded, consumer, d.Reason, t.now)...)
	} else {
		due := sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: m.Key == ""}
		row = append(row, string(p.Reason), len(p.Attempts), due, t.now, t.history(p.Attempts, p.Cause))
	}
	if _, err := t.exec(ctx, text, row...); err != nil || !p.HoldsKey() {
		return err
	}
	return t.holdUnlessHeld(ctx, consumer, h)
}

// failedRow returns the first columns of the row of a parked or dead-lettered message.
func (t txn) failedRow(ctx context.Context, consumer string, seq int64, m *postrider.Message) ([]any, error) {
	partition, err := t.partitionOf(ctx, m.Key, m.ID)
	if err != nil {
		return nil, err
	}
	row := append(make([]any, 0, 3+stored.Columns+8), consumer, partition, seq)
	return stored.Append(row, m, t.now)
}

// history encodes the history of a parked or dead-lettered message as JSON.
func (t txn) history(attempts []store.FailedAttempt, cause string) string {
	const kept = 20
	entries := make([]postrider.AttemptInfo, len(attempts))
	for i, a := range attempts {
		entries[i] = postrider.AttemptInfo{
			Attempt: i + 1, At: stored.Time(t.now - a.Ago.Microseconds()), Cause: stored.Cause(a.Cause),
		}
	}
	if cause != "" {
		entries = append(entries, postrider.AttemptInfo{At: stored.Time(t.now), Cause: stored.Cause(cause)})
	}
	return list(entries[max(0, len(entries)-kept):])
}

// holdUnlessHeld holds a key, unless it is held already. Errors: store.ErrKeyHeld, if it is held and a dead letter was to hold it.
func (t txn) holdUnlessHeld(ctx context.Context, consumer string, h store.HeldKey) error {
	var held bool
	if err := t.get(ctx, isHeldSQL, []any{consumer, h.Key}, &held); err != nil || held && !h.UntilDecided {
		return err
	}
	if held {
		return store.ErrKeyHeld
	}
	partition, err := t.partitionOf(ctx, h.Key, "")
	if err != nil {
		return err
	}
	return t.hold(ctx, consumer, partition, h)
}

const deadLetterSQL = `INSERT INTO {prefix}dead (relay, partition, seq, ` + messageColumns + `, attempts, redrives, history, reason,
	cause, died_at, state` + resolvedColumns + `) VALUES (?, ?, ?` + questionMarks + `, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)`

const takeSQL = `DELETE FROM {prefix}parked WHERE relay = ? AND seq = ? AND id = ? RETURNING parked_at`

// Take implements store.Parker.
func (s *Store) Take(ctx context.Context, tx *sql.Tx, consumer string, m *postrider.Message) (store.TakeResult, error) {
	var taken store.TakeResult
	err := s.within("take a parked message", tx, func(t txn) error {
		var at int64
		err := t.get(ctx, takeSQL, []any{consumer, m.Sequence, m.ID}, &at)
		if taken.Found = err == nil; taken.Found {
			taken.ParkedFor = stored.Duration(t.now - at)
		}
		return stored.OrNone(err)
	})
	return taken, err
}
