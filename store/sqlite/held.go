package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
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
	due := sql.Null[int64]{V: t.now + h.After.Microseconds(), Valid: true}
	if h.UntilDecided {
		var open bool
		if err := t.get(ctx, isOpenSQL, []any{name, partition, h.Sequence}, &open); err != nil {
			return err
		}
		due = sql.Null[int64]{V: t.now, Valid: !open}
	}
	_, err := t.exec(ctx, holdSQL, name, h.Key, partition, h.Sequence, string(h.Reason), stored.Cause(h.Cause), h.Attempts,
		t.now, due)
	return err
}

// release releases the keys that have no queued messages and returns those that are no longer held.
func (t txn) release(ctx context.Context, name string, st *store.Settlement) ([]string, error) {
	var released []string
	for _, key := range st.Release {
		waits, err := t.letGo(ctx, name, key)
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
	held, err := t.strings(ctx, heldAmongSQL, name, list(keys))
	if err != nil {
		return nil, err
	}
	holding := set(held)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return holding[key] }), nil
}

// letGo makes a key due at once, if it is held, with its first queued message as the blocking one, and reports whether there is
// one.
func (t txn) letGo(ctx context.Context, name, key string) (waits bool, err error) {
	if waits, err = t.findHead(ctx, name, key); err != nil {
		return false, err
	}
	held, err := t.exec(ctx, dueNowSQL, t.now, name, key)
	return waits && held > 0, err
}

// findHead makes the first queued message of a key its blocking message, and reports whether there is one.
func (t txn) findHead(ctx context.Context, name, key string) (bool, error) {
	var seq int64
	var reason string
	var attempts int
	err := t.get(ctx, nextHeadSQL, []any{name, key}, &seq, &reason, &attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = t.exec(ctx, newHeadSQL, name, key, seq, reason, attempts)
	return true, err
}

const heldColumns = `h.relay, h.partition, h.key, h.seq, h.reason, h.cause, h.attempts, h.since, h.due_at,
	(SELECT count(*) FROM (SELECT 1 FROM {prefix}parked p WHERE p.relay = h.relay AND p.key = h.key AND p.due_at IS NULL
		LIMIT 10000))`

const (
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE (?1 = '' OR h.relay = ?1)
		AND (h.since, h.seq, h.relay, h.key) > (?2, ?3, ?4, ?5) ORDER BY h.since, h.seq, h.relay, h.key LIMIT +?6`
	heldSQL    = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.key = ?`
	waitingSQL = `SELECT ` + parkedColumns + `, history FROM {prefix}parked p WHERE relay = ? AND key = ? AND due_at IS NULL
		ORDER BY seq LIMIT +?`
	// heldPage is how many keys are read at a time, each with a count of its queued messages.
	heldPage = 200
)

func scanHeld(rows *sql.Rows) (store.HeldInfo, error) {
	var h store.HeldInfo
	var reason string
	var since int64
	var due sql.Null[int64]
	err := rows.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &reason, &h.Cause, &h.Attempts, &since, &due, &h.Parked)
	h.Reason, h.Since = store.ParkReason(reason), stored.Time(since)
	if due.Valid {
		h.NextAttempt = stored.Time(due.V)
	}
	return h, err
}

// ListHeld implements store.HeldKeys.
func (s *Store) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	return func(yield func(store.HeldInfo, error) bool) {
		last := store.HeldInfo{Since: stored.Time(-1 << 62)}
		for {
			var page []store.HeldInfo
			err := s.read(ctx, "list held keys", func(t txn) error {
				page = nil
				args := []any{name, last.Since.UnixMicro(), last.Sequence, last.Relay, last.Key, heldPage}
				return t.each(ctx, listHeldSQL, args, func(rows *sql.Rows) error {
					h, err := scanHeld(rows)
					page = append(page, h)
					return err
				})
			})
			if err != nil {
				yield(store.HeldInfo{}, err)
				return
			}
			for _, h := range page {
				if !yield(h, nil) {
					return
				}
				last = h
			}
			if len(page) < heldPage {
				return
			}
		}
	}
}

// held finds a held key.
func (t txn) held(ctx context.Context, name, key string) (store.HeldInfo, error) {
	h, found := store.HeldInfo{}, false
	err := t.each(ctx, heldSQL, []any{name, key}, func(rows *sql.Rows) (err error) {
		h, err = scanHeld(rows)
		found = true
		return err
	})
	if err == nil && !found {
		return h, fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
	}
	return h, err
}

// ShowHeld implements store.HeldKeys.
func (s *Store) ShowHeld(ctx context.Context, name, key string, limit int) (store.HeldInfo, []store.ParkedInfo, error) {
	var info store.HeldInfo
	var parked []store.ParkedInfo
	err := s.read(ctx, "show a held key", func(t txn) (err error) {
		parked = nil
		if info, err = t.held(ctx, name, key); err != nil {
			return err
		}
		parked, err = t.parked(ctx, waitingSQL, name, key, limit)
		return err
	})
	if err != nil {
		return store.HeldInfo{}, nil, err
	}
	return info, parked, nil
}

const findParkedSQL = `SELECT ` + parkedColumns + `, history FROM {prefix}parked p WHERE relay = ? AND id = ? ORDER BY seq`

// FindParked implements store.HeldKeys.
func (s *Store) FindParked(ctx context.Context, name, id string) (out []store.ParkedInfo, err error) {
	err = s.read(ctx, "find a parked message", func(t txn) error {
		out, err = t.parked(ctx, findParkedSQL, name, id)
		return err
	})
	return out, err
}

// parked reads parked messages for operators. An unreadable message is shown as far as it can be read.
func (t txn) parked(ctx context.Context, text string, args ...any) (out []store.ParkedInfo, err error) {
	var history string
	row := newParkedRow()
	dest := append(row.row.Dest(), &history)
	err = t.each(ctx, text, args, func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		m, _ := row.row.Message(row.seq)
		p := store.ParkedInfo{
			Message: m, Reason: store.ParkReason(row.reason), Attempts: row.attempts, ParkedAt: stored.Time(row.parkedAt),
		}
		if row.due.Valid {
			p.DueAt = stored.Time(row.due.V)
		}
		p.History, err = stored.History(history)
		out = append(out, p)
		return err
	})
	return out, err
}
