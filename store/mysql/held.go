package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/postrider/postrider/internal/stored"
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
	waits, err := t.letGo(ctx, name, key)
	if err != nil || waits {
		return false, err
	}
	_, err = t.exec(ctx, unholdSQL, name, key)
	return err == nil, err
}

// letGo makes a locked held key due at once, with the first of its queued messages as the blocking message, and reports whether
// there is one.
func (t txn) letGo(ctx context.Context, name, key string) (waits bool, err error) {
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

const heldColumns = `h.relay, h.partition_id, h.message_key, h.seq, h.reason, h.cause, h.attempts, h.since, h.due_at`

const (
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE (?1 = '' OR h.relay = ?1)
		AND (h.since > ?2 OR h.since = ?2 AND (h.seq > ?3 OR h.seq = ?3 AND
			(h.relay > ?4 OR h.relay = ?4 AND h.message_key > ?5)))
		ORDER BY h.since, h.seq, h.relay, h.message_key LIMIT ?6`
	heldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.message_key = ?`
	// waitCountSQL counts the queued messages of a key, up to 10000; ?1 is the index of the key in a page.
	waitCountSQL = `SELECT ?1, COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?2 AND message_key = ?3 AND due_at IS NULL
		LIMIT 10000) w`
	waitingSQL = `SELECT 0, ` + parkedColumns + `, history FROM {prefix}parked WHERE relay = ? AND message_key = ? AND due_at IS NULL
		ORDER BY seq LIMIT ?`
	// heldPage is how many keys are read at a time, each with a count of its queued messages.
	heldPage = 100
)

func scanHeld(rows *sql.Rows) (store.HeldInfo, error) {
	var h store.HeldInfo
	var reason string
	var since int64
	var due sql.Null[int64]
	err := rows.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &reason, &h.Cause, &h.Attempts, &since, &due)
	h.Reason, h.Since = store.ParkReason(reason), stored.Time(since)
	if due.Valid {
		h.NextAttempt = stored.Time(due.V)
	}
	return h, err
}

// heldInfos reads held keys and counts their queued messages.
func (t txn) heldInfos(ctx context.Context, text string, args ...any) ([]store.HeldInfo, error) {
	var out []store.HeldInfo
	err := t.each(ctx, text, args, func(rows *sql.Rows) error {
		h, err := scanHeld(rows)
		out = append(out, h)
		return err
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	var counts strings.Builder
	for i, h := range out {
		if i > 0 {
			counts.WriteString(` UNION ALL `)
		}
		counts.WriteString(render(waitCountSQL, []any{i, h.Relay, h.Key}))
	}
	err = t.each(ctx, counts.String(), nil, func(rows *sql.Rows) error {
		var i, n int
		err := rows.Scan(&i, &n)
		out[i].Parked = n
		return err
	})
	return out, err
}

// ListHeld implements store.HeldKeys.
func (s *Store) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	return func(yield func(store.HeldInfo, error) bool) {
		last := store.HeldInfo{Since: stored.Time(-1 << 62)}
		for {
			var page []store.HeldInfo
			err := s.read(ctx, "list held keys", func(t txn) (err error) {
				page, err = t.heldInfos(ctx, listHeldSQL, name, last.Since.UnixMicro(), last.Sequence, last.Relay, last.Key, heldPage)
				return err
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

// held reads a held key. Errors: store.ErrNotHeld.
func (t txn) held(ctx context.Context, name, key string) (store.HeldInfo, error) {
	found, err := t.heldInfos(ctx, heldSQL, name, key)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
	}
	if err != nil {
		return store.HeldInfo{}, err
	}
	return found[0], nil
}

// ShowHeld implements store.HeldKeys.
func (s *Store) ShowHeld(ctx context.Context, name, key string, limit int) (store.HeldInfo, []store.ParkedInfo, error) {
	var info store.HeldInfo
	var parked []store.ParkedInfo
	err := s.read(ctx, "show a held key", func(t txn) (err error) {
		if info, err = t.held(ctx, name, key); err != nil {
			return err
		}
		parked, err = t.parkedInfos(ctx, waitingSQL, name, key, limit)
		return err
	})
	if err != nil {
		return store.HeldInfo{}, nil, err
	}
	return info, parked, nil
}

// parkedInfos reads parked messages with their history.
func (t txn) parkedInfos(ctx context.Context, query string, args ...any) (out []store.ParkedInfo, err error) {
	var history string
	row := newParkedRow()
	dest := append(row.row.Dest(), &history)
	err = t.each(ctx, query, args, func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		// If a message cannot be decoded, the part that can be is shown.
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

const parkedByIDSQL = `SELECT 0, ` + parkedColumns + `, history FROM {prefix}parked WHERE relay = ? AND id = ? ORDER BY seq`

// FindParked implements store.HeldKeys.
func (s *Store) FindParked(ctx context.Context, name, id string) (out []store.ParkedInfo, err error) {
	err = s.read(ctx, "find a parked message", func(t txn) (err error) {
		out, err = t.parkedInfos(ctx, parkedByIDSQL, name, id)
		return err
	})
	return out, err
}
