package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// holdSQL: ?1 relay, ?2 partition, ?3 now; %s are rows of holdRow.
	holdSQL = `INSERT INTO {prefix}held (relay, message_key, partition_id, seq, reason, cause, attempts, since, due_at)
		SELECT ?1, new_key, ?2, new_seq, new_reason, new_cause, new_attempts, ?3, new_due_at FROM (%s) i
		ON DUPLICATE KEY UPDATE seq = new_seq, reason = new_reason, cause = new_cause, attempts = new_attempts, due_at = new_due_at`
	holdRow     = `SELECT ? AS new_key, ? AS new_seq, ? AS new_reason, ? AS new_cause, ? AS new_attempts, ? AS new_due_at`
	openDeadSQL = `SELECT seq FROM {prefix}dead WHERE relay = ? AND partition_id = ? AND seq IN ? AND state = 'open'`

	lockHeldSQL = `SELECT due_at, seq FROM {prefix}held FORCE INDEX (PRIMARY) WHERE relay = ? AND message_key = ? FOR UPDATE`
	lockKeysSQL = `SELECT message_key FROM {prefix}held FORCE INDEX (PRIMARY) WHERE relay = ? AND message_key IN ? ORDER BY message_key FOR UPDATE`
	nextHeadSQL = `SELECT seq, reason, attempts FROM {prefix}parked WHERE relay = ? AND message_key = ? AND due_at IS NULL
		ORDER BY seq LIMIT 1`
	// nextHeadsSQL is nextHeadSQL for held keys.
	nextHeadsSQL = `SELECT h.message_key, p.seq, p.reason, p.attempts FROM (
			SELECT k.message_key, (SELECT q.seq FROM {prefix}parked q WHERE q.relay = ?1 AND q.message_key = k.message_key AND q.due_at IS NULL
				ORDER BY q.seq LIMIT 1) AS head
			FROM {prefix}held k FORCE INDEX (PRIMARY) WHERE k.relay = ?1 AND k.message_key IN ?2) h
		STRAIGHT_JOIN {prefix}parked p FORCE INDEX (PRIMARY) ON p.relay = ?1 AND p.seq = h.head`
	unholdSQL = `DELETE h FROM {prefix}held h FORCE INDEX (PRIMARY) WHERE relay = ? AND message_key IN ?`
	dueNowSQL = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET due_at = ? WHERE relay = ? AND message_key IN ?`
	// newHeadsSQL is newHeadSQL for several keys: %s are rows of newHeadRow.
	newHeadsSQL = `UPDATE (%s) i STRAIGHT_JOIN {prefix}held h FORCE INDEX (PRIMARY) ON h.relay = ?1 AND h.message_key = i.new_key
		SET h.seq = new_seq, h.reason = new_reason, h.attempts = new_attempts, h.cause = '' WHERE h.seq <> new_seq`
	newHeadRow = `SELECT ? AS new_key, ? AS new_seq, ? AS new_reason, ? AS new_attempts`
	newHeadSQL = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET seq = ?3, reason = ?4, attempts = ?5, cause = ''
		WHERE relay = ?1 AND message_key = ?2 AND seq <> ?3`
)

// hold holds keys, or changes why they are held. If a key has several entries, the last one counts. A key that waits for a decision
// about a dead letter is due at once if the decision was made already.
func (t txn) hold(ctx context.Context, name string, st store.Settlement) error {
	last := make(map[string]store.HeldKey, len(st.Held))
	var dead []int64
	for _, h := range st.Held {
		last[h.Key] = h
		if h.UntilDecided {
			dead = append(dead, h.Sequence)
		}
	}
	open := make(map[int64]bool)
	if len(dead) > 0 {
		seqs, err := stored.Column[int64](ctx, t.query, openDeadSQL, name, st.Partition, dead)
		if err != nil {
			return err
		}
		open = set(seqs)
	}
	var rows []string
	for _, key := range slices.Sorted(maps.Keys(last)) {
		h := last[key]
		due := sql.Null[int64]{V: t.now + h.After.Microseconds(), Valid: true}
		if h.UntilDecided {
			due = sql.Null[int64]{V: t.now, Valid: !open[h.Sequence]}
		}
		rows = append(rows, render(holdRow, []any{key, h.Sequence, string(h.Reason), stored.Cause(h.Cause), h.Attempts, due}))
	}
	_, err := t.execRows(ctx, holdSQL, rows, name, st.Partition, t.now)
	return err
}

// release releases keys that have no queued messages, and returns those that are no longer held.
func (t txn) release(ctx context.Context, name string, st store.Settlement) ([]string, error) {
	var released []string
	for keys := range slices.Chunk(st.Release, rowsAtOnce) {
		gone, err := t.releaseKeys(ctx, name, keys)
		if err != nil {
			return nil, fmt.Errorf("release keys: %w", err)
		}
		released = append(released, gone...)
	}
	return released, nil
}

// releaseKeys releases keys unless they have queued messages: those become due at once, with the first queued message as the blocking
// one. It locks the keys before it looks for queued messages: parking a message locks its key too. A key that is not held cannot be
// locked; one that becomes held in the meantime stays held.
func (t txn) releaseKeys(ctx context.Context, name string, keys []string) (gone []string, err error) {
	held, err := stored.Column[string](ctx, t.query, lockKeysSQL, name, keys)
	if err != nil || len(held) == 0 {
		return keys, err
	}
	var heads, resumed []string
	err = t.each(ctx, nextHeadsSQL, []any{name, held}, func(rows *sql.Rows) error {
		var key, reason string
		var seq int64
		var attempts int
		err := rows.Scan(&key, &seq, &reason, &attempts)
		heads, resumed = append(heads, render(newHeadRow, []any{key, seq, reason, attempts})), append(resumed, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	waits := set(resumed)
	if len(resumed) > 0 {
		if _, err = t.execRows(ctx, newHeadsSQL, heads, name); err == nil {
			_, err = t.exec(ctx, dueNowSQL, t.now, name, resumed)
		}
	}
	if held = slices.DeleteFunc(held, func(key string) bool { return waits[key] }); err == nil && len(held) > 0 {
		_, err = t.exec(ctx, unholdSQL, name, held)
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return waits[key] }), err
}

// resumeKey makes a locked held key due at once, with the first of its queued messages as the blocking message, and reports whether
// there is one.
func (t txn) resumeKey(ctx context.Context, name, key string) (waits bool, err error) {
	if waits, err = t.findHead(ctx, name, key); err == nil {
		_, err = t.exec(ctx, dueNowSQL, t.now, name, []string{key})
	}
	return waits, err
}

// lockedKey is a locked held key.
type lockedKey struct {
	due sql.Null[int64] // not valid: it waits for a decision
	seq int64
}

// lockHeld locks a held key; nil if the key is not held.
func (t txn) lockHeld(ctx context.Context, name, key string) (*lockedKey, error) {
	var k lockedKey
	err := t.get(ctx, lockHeldSQL, []any{name, key}, &k.due, &k.seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &k, err
}

// findHead makes the first queued message of a key its blocking message, and reports whether there is one.
func (t txn) findHead(ctx context.Context, name, key string) (bool, error) {
	return t.asTx().FindHead(ctx, nextHeadSQL, newHeadSQL, name, key)
}
