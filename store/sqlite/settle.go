package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/relay"
)

const (
	fenceSQL = `SELECT position FROM {prefix}cursors WHERE relay = ? AND partition = ? AND owner = ? AND epoch = ?`
	moveSQL  = `UPDATE {prefix}cursors SET position = iif(?3, ?4, position), settled_at = ?5,
			delivered = delivered + ?6, failed = failed + ?7
		WHERE relay = ?1 AND partition = ?2`
	removeSQL = `DELETE FROM {prefix}parked WHERE relay = ?1 AND seq IN (SELECT value FROM json_each(?2))`
)

// historySQL appends the entry ?8 to a history, of which the last 20 are kept, unless it is NULL. An entry that repeats the
// last one, but for its time, is that one, settled a second time.
const historySQL = `CASE
	WHEN ?8 IS NULL OR json_remove(history -> '$[#-1]', '$.at') = json_remove(?8, '$.at') THEN history
	WHEN json_array_length(history) < 20 THEN json_insert(history, '$[#]', json(?8))
	ELSE json_insert(json_remove(history, '$[0]'), '$[#]', json(?8)) END`

const (
	copiedColumns = `relay, partition, seq, ` + messageColumns + `, reason, attempts, due_at, parked_at, redrives, history`
	// A message that has a dead letter was moved on by somebody.
	parkLogSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition, seq, ` + messageColumns + `, ?4, ?5, ?6, ?7, 0, iif(?8 IS NULL, '[]', json_array(json(?8)))
		FROM {prefix}log WHERE seq = ?2 AND partition = ?3
			AND NOT EXISTS (SELECT 1 FROM {prefix}dead WHERE relay = ?1 AND partition = ?3 AND seq = ?2)
			AND NOT EXISTS (SELECT 1 FROM {prefix}parked WHERE relay = ?1 AND seq = ?2)`
	// With the parameters of parkLogSQL, and ?9 redrives: of a message that was sent back since, nothing is said.
	parkAgainSQL = `UPDATE {prefix}parked SET reason = ?4, attempts = max(attempts, ?5), due_at = ?6, history = ` + historySQL + `
		WHERE relay = ?1 AND seq = ?2 AND partition = ?3 AND redrives = ?9`
)

// Settle implements relay.LogStore. Its commit does not wait for the disk. Delivered needs nothing here: the cursor says it.
func (s *Store) Settle(ctx context.Context, name string, owner relay.Owner, settlements []relay.Settlement) (relay.Settled, error) {
	var out relay.Settled
	err := s.write(ctx, "settle", relaxed, func(t txn) error {
		out = relay.Settled{}
		for _, st := range settlements {
			var position int64
			err := t.get(ctx, fenceSQL, []any{name, st.Partition, owner.ID, st.Epoch}, &position)
			if errors.Is(err, sql.ErrNoRows) {
				out.Lost = append(out.Lost, st.Partition)
				continue
			}
			if err != nil {
				return err
			}
			released, err := t.settle(ctx, name, st, position)
			if err != nil {
				return fmt.Errorf("partition %d: %w", st.Partition, err)
			}
			out.Released = append(out.Released, released...)
		}
		return nil
	})
	if err != nil {
		return relay.Settled{}, err
	}
	return out, nil
}

// settle applies a settlement and returns the keys that are held no longer. position is that of the stored cursor.
func (t txn) settle(ctx context.Context, name string, st relay.Settlement, position int64) ([]string, error) {
	for _, p := range st.Parked {
		if err := t.park(ctx, name, st.Partition, p, position); err != nil {
			return nil, fmt.Errorf("park message %d: %w", p.Sequence, err)
		}
	}
	for _, d := range st.Dead {
		if err := t.deadLetter(ctx, name, st.Partition, d, position); err != nil {
			return nil, fmt.Errorf("dead-letter message %d: %w", d.Sequence, err)
		}
	}
	if len(st.Removed) > 0 {
		if _, err := t.exec(ctx, removeSQL, name, list(st.Removed)); err != nil {
			return nil, err
		}
	}
	for _, h := range st.Held {
		if err := t.hold(ctx, name, st.Partition, h); err != nil {
			return nil, fmt.Errorf("hold key %q: %w", h.Key, err)
		}
	}
	released, err := t.release(ctx, name, st)
	if err != nil {
		return nil, err
	}
	_, err = t.exec(ctx, moveSQL, name, st.Partition, st.Moved, st.Cursor.Position, t.now, st.DeliveredCount, st.FailedCount)
	return released, err
}

// errNotInLog refuses a settlement that would lose a message.
var errNotInLog = errors.New("it is not in the log of this partition")

func (t txn) park(ctx context.Context, name string, partition int, p relay.Parked, position int64) error {
	due := sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: !p.Waits}
	attempt := 0
	if p.Reason == relay.ParkRetry {
		attempt = p.Attempts
	}
	entry, err := t.entry(attempt, p.Cause)
	if err != nil {
		return err
	}
	args := []any{name, p.Sequence, partition, string(p.Reason), p.Attempts, due, t.now, entry}
	if p.FromLog {
		if n, err := t.exec(ctx, parkLogSQL, args...); err != nil || n > 0 {
			return err
		}
	}
	n, err := t.exec(ctx, parkAgainSQL, append(args, p.Redrives)...)
	// What the cursor has passed was put aside by the same settlement, whose answer was lost.
	if err != nil || n > 0 || !p.FromLog || p.Sequence <= position {
		return err
	}
	if died, err := t.hasDied(ctx, name, partition, p.Sequence); err != nil || died {
		return err
	}
	return errNotInLog
}

// entry is a history entry as a parameter, NULL without a cause.
func (t txn) entry(attempt int, cause string) (sql.Null[string], error) {
	if cause == "" {
		return sql.Null[string]{}, nil
	}
	text, err := stored.Entry(attempt, t.now, cause)
	return sql.Null[string]{V: text, Valid: true}, err
}
