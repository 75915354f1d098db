package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	holdSQL = `INSERT INTO {prefix}held (relay, key, partition, seq, reason, cause, attempts, since, due_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (relay, key) DO UPDATE SET seq = ?4, reason = ?5, cause = ?6, attempts = ?7, due_at = ?9`
	isOpenSQL   = `SELECT EXISTS (SELECT 1 FROM {prefix}dead WHERE relay = ?1 AND partition = ?2 AND seq = ?3 AND state = 'open')`
	nextHeadSQL = `SELECT seq, reason, attempts FROM {prefix}parked WHERE relay = ? AND key = ? AND due_at IS NULL
		ORDER BY seq LIMIT 1`
	unholdSQL  = `DELETE FROM {prefix}held WHERE relay = ? AND key = ?`
	dueNowSQL  = `UPDATE {prefix}held SET due_at = ? WHERE relay = ? AND key = ?`
	newHeadSQL = `UPDATE {prefix}held SET seq = ?3, reason = ?4, attempts = ?5, cause = ''
		WHERE relay = ?1 AND key = ?2 AND seq <> ?3`
)

// hold holds a key, or changes why it is held.
func (t txn) hold(ctx context.Context, name string, partition int, h store.HeldKey) error {
	return t.asTx().Hold(ctx, isOpenSQL, holdSQL, name, partition, h, t.now)
}

// release releases the keys that have no queued messages and returns those that are no longer held.
func (t txn) release(ctx context.Context, name string, st *store.Settlement) ([]string, error) {
	var released []string
	for _, key := range st.Release {
		waits, err := t.resumeKey(ctx, name, key)
		if err != nil {
			return nil, fmt.Errorf("release key %q: %w", key, err)
		}
		if waits {
			continue
		}
		if _, err := t.exec(ctx, unholdSQL, name, key); err != nil {
			return nil, fmt.Errorf("release key %q: %w", key, err)
		}
		released = append(released, key)
	}
	return released, nil
}

// notHeld returns those of the keys that are not held.
func (t txn) notHeld(ctx context.Context, name string, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	held, err := stored.Column[string](ctx, t.query, heldAmongSQL, name, list(keys))
	if err != nil {
		return nil, err
	}
	holding := set(held)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return holding[key] }), nil
}

// resumeKey makes a key due at once, if it is held, with its first queued message as the blocking one, and reports whether there is
// one.
func (t txn) resumeKey(ctx context.Context, name, key string) (waits bool, err error) {
	if waits, err = t.findHead(ctx, name, key); err != nil {
		return false, err
	}
	held, err := t.exec(ctx, dueNowSQL, t.now, name, key)
	return waits && held > 0, err
}

// findHead makes the first queued message of a key its blocking message, and reports whether there is one.
func (t txn) findHead(ctx context.Context, name, key string) (bool, error) {
	return t.asTx().FindHead(ctx, nextHeadSQL, newHeadSQL, name, key)
}
