package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	moveSQL = `UPDATE {prefix}cursors SET position = iif(?3, ?4, position), settled_at = ?5,
			delivered = delivered + ?6, failed = failed + ?7, number = ?8, content = ?9
		WHERE relay = ?1 AND partition = ?2`
	removeSQL = `DELETE FROM {prefix}parked WHERE relay = ?1 AND seq IN (SELECT value FROM json_each(?2))`
)

// historySQL appends the entry ?8, unless it is NULL, to a history and keeps the last 20. It skips an entry without an attempt
// that repeats the last one except for its time: a message may be put off often.
const historySQL = `CASE
	WHEN ?8 IS NULL OR coalesce(?8 ->> '$.attempt', 0) = 0
		AND json_remove(history -> '$[#-1]', '$.at') = json_remove(?8, '$.at') THEN history
	WHEN json_array_length(history) < 20 THEN json_insert(history, '$[#]', json(?8))
	ELSE json_insert(json_remove(history, '$[0]'), '$[#]', json(?8)) END`

const (
	copiedColumns = `relay, partition, seq, ` + messageColumns + `, reason, attempts, due_at, parked_at, redrives, history`
	// A message that is already parked is parked again.
	parkLogSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition, seq, ` + messageColumns + `, ?4, ?5, ?6, ?7, 0, iif(?8 IS NULL, '[]', json_array(json(?8)))
		FROM {prefix}log WHERE seq = ?2 AND partition = ?3
		ON CONFLICT (relay, seq) DO UPDATE SET reason = ?4, attempts = ?5, due_at = ?6, history = ` + historySQL
	// Takes the parameters of parkLogSQL.
	parkAgainSQL = `UPDATE {prefix}parked SET reason = ?4, attempts = ?5, due_at = ?6, history = ` + historySQL + `
		WHERE relay = ?1 AND seq = ?2 AND partition = ?3`
)

// Settle implements store.Log. Its commit does not wait for the disk. Delivered messages need no work here: the cursor
// records them.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	out, err := s.settleTogether(ctx, name, settlements)
	if err == nil || !s.cfg.concernsContent(err) {
		return out, err
	}
	out = store.Settled{Failed: make(map[int]error)}
	for _, st := range settlements {
		one, err := s.settleTogether(ctx, name, []store.Settlement{st})
		if err != nil && !s.cfg.concernsContent(err) {
			return store.Settled{}, err
		}
		if err != nil {
			out.Failed[st.Partition] = err
			continue
		}
		out.Lost, out.Released = append(out.Lost, one.Lost...), append(out.Released, one.Released...)
	}
	return out, nil
}

// settleTogether applies settlements in one transaction: all whose leases hold, or none.
func (s *Store) settleTogether(ctx context.Context, name string, settlements []store.Settlement) (out store.Settled, err error) {
	err = s.write(ctx, "settle", relaxed, func(t txn) error {
		out = store.Settled{}
		for i := range settlements {
			st := &settlements[i]
			released, err := t.settleFenced(ctx, name, st)
			if errors.Is(err, store.ErrLeaseLost) {
				out.Lost = append(out.Lost, st.Partition)
				continue
			}
			if err != nil {
				return fmt.Errorf("partition %d: %w", st.Partition, err)
			}
			out.Released = append(out.Released, released...)
		}
		return nil
	})
	if err != nil {
		return store.Settled{}, err
	}
	return out, nil
}

// settleFenced applies a settlement if it is the next one under a lease that holds, and returns the keys that are no longer held.
// Errors: store.ErrLeaseLost.
func (t txn) settleFenced(ctx context.Context, name string, st *store.Settlement) ([]string, error) {
	if err := t.s.checkPartition(st.Partition); err != nil {
		return nil, &unsettled{err}
	}
	last, err := t.lease(ctx, name, store.LeaseRef{Partition: st.Partition, Token: st.Token})
	if err != nil {
		return nil, err
	}
	content := st.Digest()
	switch {
	case st.Number == last.number && bytes.Equal(content[:], last.content):
		return t.notHeld(ctx, name, st.Release)
	case st.Number != last.number+1:
		return nil, store.ErrLeaseLost
	}
	return t.settle(ctx, name, st, content[:])
}

// settle applies a settlement and returns the keys that are no longer held.
func (t txn) settle(ctx context.Context, name string, st *store.Settlement, content []byte) ([]string, error) {
	for i := range st.Parked {
		if err := t.park(ctx, name, st.Partition, &st.Parked[i]); err != nil {
			return nil, fmt.Errorf("park message %d: %w", st.Parked[i].Sequence, err)
		}
	}
	for i := range st.Dead {
		if err := t.deadLetter(ctx, name, st.Partition, &st.Dead[i]); err != nil {
			return nil, fmt.Errorf("dead-letter message %d: %w", st.Dead[i].Sequence, err)
		}
	}
	if len(st.Removed) > 0 {
		if _, err := t.exec(ctx, removeSQL, name, list(st.Removed)); err != nil {
			return nil, err
		}
	}
	for i := range st.Held {
		if err := t.hold(ctx, name, st.Partition, st.Held[i]); err != nil {
			return nil, fmt.Errorf("hold key %q: %w", st.Held[i].Key, err)
		}
	}
	released, err := t.release(ctx, name, st)
	if err != nil {
		return nil, err
	}
	if err := t.countUnrouted(ctx, name, st); err != nil {
		return nil, fmt.Errorf("count unrouted messages: %w", err)
	}
	_, err = t.exec(ctx, moveSQL, name, st.Partition, st.Moved, st.Cursor.Position, t.now, st.DeliveredCount, st.FailedCount,
		st.Number, content)
	return released, err
}

// unsettled says that a settlement cannot be applied because of its content.
type unsettled struct{ error }

func (u *unsettled) Unwrap() error { return u.error }

// errNotInLog refuses a settlement that would lose a message.
var errNotInLog = &unsettled{errors.New("it is not in the log of this partition")}

// concernsContent reports whether an error is due to what was to be written, and not to the database.
func (c Config) concernsContent(err error) bool {
	if _, ok := errors.AsType[*unsettled](err); ok {
		return true
	}
	switch c.primary(err) {
	case codeGeneric, codeTooBig, codeConstraint, codeMismatch:
		return true
	}
	return false
}

func (t txn) park(ctx context.Context, name string, partition int, p *store.ParkOutcome) error {
	due := sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: !p.Waits}
	attempt := 0
	if p.Reason == store.ParkRetry {
		attempt = p.Attempts
	}
	entry, err := t.entry(attempt, p.Cause)
	if err != nil {
		return err
	}
	args := []any{name, p.Sequence, partition, string(p.Reason), p.Attempts, due, t.now, entry}
	if !p.FromLog {
		_, err := t.exec(ctx, parkAgainSQL, args...)
		return err
	}
	n, err := t.exec(ctx, parkLogSQL, args...)
	if err == nil && n == 0 {
		return errNotInLog
	}
	return err
}

// entry returns a history entry as a parameter, NULL without a cause.
func (t txn) entry(attempt int, cause string) (sql.Null[string], error) {
	if cause == "" {
		return sql.Null[string]{}, nil
	}
	text, err := stored.Entry(attempt, t.now, cause)
	return sql.Null[string]{V: text, Valid: true}, err
}
