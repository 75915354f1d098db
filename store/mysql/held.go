package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

const (
	holdSQL = `INSERT INTO {prefix}held (relay, message_key, partition_id, seq, reason, cause, attempts, since, due_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON DUPLICATE KEY UPDATE seq = ?4, reason = ?5, cause = ?6, attempts = ?7, due_at = ?9`
	isOpenSQL   = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE relay = ?1 AND partition_id = ?2 AND seq = ?3 AND state = 'open')`
	lockHeldSQL = `SELECT due_at, seq FROM {prefix}held FORCE INDEX (PRIMARY) WHERE relay = ? AND message_key = ? FOR UPDATE`
	nextHeadSQL = `SELECT seq, reason, attempts FROM {prefix}parked WHERE relay = ? AND message_key = ? AND due_at IS NULL
		ORDER BY seq LIMIT 1`
	unholdSQL  = `DELETE h FROM {prefix}held h FORCE INDEX (PRIMARY) WHERE relay = ? AND message_key = ?`
	dueNowSQL  = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET due_at = ? WHERE relay = ? AND message_key = ?`
	newHeadSQL = `UPDATE {prefix}held FORCE INDEX (PRIMARY) SET seq = ?3, reason = ?4, attempts = ?5, cause = ''
		WHERE relay = ?1 AND message_key = ?2 AND seq <> ?3`
)

// hold holds a key or changes why it is held.
func (t txn) hold(ctx context.Context, name string, partition int, h store.HeldKey) error {
	return t.asTx().Hold(ctx, isOpenSQL, holdSQL, name, partition, h, t.now)
}

// release releases keys that have no queued messages, and returns those that are no longer held.
func (t txn) release(ctx context.Context, name string, st store.Settlement) ([]string, error) {
	var released []string
	for _, key := range st.Release {
		gone, err := t.releaseKey(ctx, name, key)
		if err != nil {
			return nil, fmt.Errorf("release key %q: %w", key, err)
		}
		if gone {
			released = append(released, key)
		}
	}
	return released, nil
}

// releaseKey releases a key unless it has queued messages, and reports whether it is no longer held. It locks the key before it
// looks for queued messages: parking a message locks the key too. A key that is not held cannot be locked; one that becomes held
// in the meantime stays held.
func (t txn) releaseKey(ctx context.Context, name, key string) (gone bool, err error) {
	held, err := t.lockHeld(ctx, name, key)
	if err != nil || held == nil {
		return err == nil, err
	}
	waits, err := t.resumeKey(ctx, name, key)
	if err != nil || waits {
		return false, err
	}
	_, err = t.exec(ctx, unholdSQL, name, key)
	return err == nil, err
}

// resumeKey makes a locked held key due at once, with the first of its queued messages as the blocking message, and reports whether
// there is one.
func (t txn) resumeKey(ctx context.Context, name, key string) (waits bool, err error) {
	if waits, err = t.findHead(ctx, name, key); err == nil {
		_, err = t.exec(ctx, dueNowSQL, t.now, name, key)
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
