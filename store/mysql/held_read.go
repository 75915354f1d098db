package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// beforeAll is a time before all others.
const beforeAll = int64(-1 << 62)

const (
	// heldColumns: the message that blocks a key is a dead letter if the key waits for a decision, otherwise the queued message.
	heldColumns = `h.relay, h.partition_id, h.message_key, h.seq, COALESCE(IF(h.due_at IS NULL,
		(SELECT d.id FROM {prefix}dead d WHERE d.relay = h.relay AND d.partition_id = h.partition_id AND d.seq = h.seq
			ORDER BY d.number DESC LIMIT 1),
		(SELECT p.id FROM {prefix}parked p WHERE p.relay = h.relay AND p.seq = h.seq AND p.due_at IS NULL)), ''),
		h.reason, h.cause, h.attempts, h.since, h.due_at`

	// nextRelaySQL: after ?1.
	nextRelaySQL = `SELECT COALESCE(MIN(relay), '') FROM (SELECT MIN(relay) AS relay FROM {prefix}held WHERE relay > ?1
		UNION ALL SELECT MIN(relay) FROM {prefix}parked WHERE relay > ?1) n`

	// listHeldSQL returns a page of the held keys of relay ?1: after ?2 since and ?3 key, ?4 rows.
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h FORCE INDEX ({prefix}held_since) WHERE h.relay = ?1 AND h.since >= ?2
		AND (h.since > ?2 OR h.message_key > ?3) ORDER BY h.since, h.message_key LIMIT ?4`
	showHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.message_key = ?`

	// waitCountSQL counts the queued messages of a key, up to 10000; ?1 is the index of the key in a page.
	waitCountSQL = `SELECT ?1, COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?2 AND message_key = ?3 AND due_at IS NULL
		LIMIT 10000) w`
)

func scanHeld(rows *sql.Rows) (store.HeldInfo, error) {
	var h store.HeldInfo
	var since int64
	var due sql.Null[int64]
	err := rows.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &h.MessageID, &h.Reason, &h.Cause, &h.Attempts, &since, &due)
	h.Since = stored.Time(since)
	if due.Valid {
		h.NextAttempt = stored.Time(due.V)
	}
	return h, err
}

// heldKeys reads held keys and counts their queued messages.
func (r records) heldKeys(ctx context.Context, text string, args ...any) ([]store.HeldInfo, error) {
	var out []store.HeldInfo
	err := r.each(ctx, text, args, func(rows *sql.Rows) error {
		h, err := scanHeld(rows)
		out = append(out, h)
		return err
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	counts := make([]string, len(out))
	for i, h := range out {
		counts[i] = render(waitCountSQL, []any{i, h.Relay, h.Key})
	}
	err = r.each(ctx, strings.Join(counts, ` UNION ALL `), nil, func(rows *sql.Rows) error {
		var i, n int
		err := rows.Scan(&i, &n)
		out[i].Parked = n
		return err
	})
	return out, err
}

// NextRelay implements store.HeldReader.
func (r records) NextRelay(ctx context.Context, after string) (name string, err error) {
	err = r.get(ctx, nextRelaySQL, []any{after}, &name)
	return name, err
}

// HeldKeys implements store.HeldReader.
func (r records) HeldKeys(ctx context.Context, q store.HeldQuery) ([]store.HeldInfo, error) {
	since, key := beforeAll, ""
	if q.After != nil {
		since, key = q.After.Since.UnixMicro(), q.After.Key
	}
	return r.heldKeys(ctx, listHeldSQL, q.Relay, since, key, q.Limit)
}

// HeldKey implements store.HeldReader.
func (r records) HeldKey(ctx context.Context, name, key string) (store.HeldInfo, error) {
	found, err := r.heldKeys(ctx, showHeldSQL, name, key)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
	}
	if err != nil {
		return store.HeldInfo{}, err
	}
	return found[0], nil
}

const (
	shownSQL  = `SELECT 0, ` + parkedColumns + `, history, relay FROM {prefix}parked `
	queuedSQL = shownSQL + `WHERE relay = ? AND message_key = ? AND due_at IS NULL ORDER BY seq LIMIT ?`

	// listParkedSQL returns a page of the messages of relay ?1 that wait by themselves: after ?2 due, ?3 partition and ?4 sequence,
	// ?5 rows.
	listParkedSQL = shownSQL + `FORCE INDEX ({prefix}parked_next) WHERE relay = ?1 AND due_at >= ?2
		AND (due_at > ?2 OR partition_id > ?3 OR partition_id = ?3 AND seq > ?4) ORDER BY due_at, partition_id, seq LIMIT ?5`

	parkedByIDSQL   = shownSQL + `WHERE relay = ? AND id = ? ORDER BY seq`
	parkedCountsSQL = `SELECT relay, reason, COUNT(*), MIN(parked_at) FROM {prefix}parked WHERE due_at IS NOT NULL
		AND (?1 = '' OR relay = ?1) GROUP BY relay, reason ORDER BY relay, reason`
)

// parked reads parked messages with their history. Of a message that cannot be decoded, the part that can be is shown.
func (r records) parked(ctx context.Context, query string, args ...any) (out []store.ParkedInfo, err error) {
	var history, name string
	row := newParkedRow()
	dest := append(row.row.Dest(), &history, &name)
	read := func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		m, _ := row.row.Message(row.seq)
		p := store.ParkedInfo{
			Relay: name, Partition: row.partition, Message: m, Reason: store.ParkReason(row.reason), Attempts: row.attempts,
			ParkedAt: stored.Time(row.parkedAt),
		}
		if row.due.Valid {
			p.DueAt = stored.Time(row.due.V)
		}
		p.History, err = stored.History(history)
		out = append(out, p)
		return err
	}
	err = r.each(ctx, query, args, read)
	if !errors.Is(kinds[r.s.cfg.ErrorCode(err)], ErrDenied) {
		return out, err
	}
	// An operator may have no right to read contents (Grants).
	err = r.each(ctx, strings.Replace(query, messageColumns, withoutContent, 1), args, read)
	for i := range out {
		out[i].Unreadable = notReadable
	}
	return out, err
}

// Queued implements store.HeldReader.
func (r records) Queued(ctx context.Context, name, key string, limit int) ([]store.ParkedInfo, error) {
	return r.parked(ctx, queuedSQL, name, key, limit)
}

// Parked implements store.HeldReader.
func (r records) Parked(ctx context.Context, q store.ParkedQuery) ([]store.ParkedInfo, error) {
	due, partition, seq := beforeAll, -1, int64(0)
	if a := q.After; a != nil {
		due, partition, seq = a.DueAt.UnixMicro(), a.Partition, a.Message.Sequence
	}
	return r.parked(ctx, listParkedSQL, q.Relay, due, partition, seq, q.Limit)
}

// ParkedByID implements store.HeldReader.
func (r records) ParkedByID(ctx context.Context, name, id string) ([]store.ParkedInfo, error) {
	return r.parked(ctx, parkedByIDSQL, name, id)
}

// CountParked implements store.HeldReader.
func (r records) CountParked(ctx context.Context, name string) (out []store.ParkedCount, err error) {
	err = r.each(ctx, parkedCountsSQL, []any{name}, func(rows *sql.Rows) error {
		var c store.ParkedCount
		var oldest int64
		err := rows.Scan(&c.Relay, &c.Reason, &c.Count, &oldest)
		c.Oldest = stored.Time(oldest)
		out = append(out, c)
		return err
	})
	return out, err
}

// Decision implements store.HeldReader.
func (r records) Decision(ctx context.Context, id string) (store.Decision, error) {
	return r.txn.decision(ctx, id, ``)
}
