package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// beforeAll is a time before all others.
const beforeAll = int64(-1 << 62)

const (
	// heldColumns: the message that blocks a key is a dead letter if the key waits for a decision, otherwise the queued message.
	heldColumns = `h.relay, h.partition, h.key, h.seq, coalesce(iif(h.due_at IS NULL,
		(SELECT d.id FROM {prefix}dead d WHERE d.relay = h.relay AND d.partition = h.partition AND d.seq = h.seq
			ORDER BY d.number DESC LIMIT 1),
		(SELECT p.id FROM {prefix}parked p WHERE p.relay = h.relay AND p.seq = h.seq AND p.due_at IS NULL)), ''),
		h.reason, h.cause, h.attempts, h.since, h.due_at,
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}parked p WHERE p.relay = h.relay AND p.key = h.key AND p.due_at IS NULL
			LIMIT 10000))`

	// nextRelaySQL: after ?1.
	nextRelaySQL = `SELECT coalesce(min(relay), '') FROM (SELECT min(relay) AS relay FROM {prefix}held WHERE relay > ?1
		UNION ALL SELECT min(relay) FROM {prefix}parked WHERE relay > ?1)`

	// listHeldSQL returns a page of the held keys of relay ?1: after ?2 since and ?3 key, ?4 rows.
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ?1 AND (h.since, h.key) > (?2, ?3)
		ORDER BY h.since, h.key LIMIT +?4`
	showHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.key = ?`
)

func (r records) heldKeys(ctx context.Context, text string, args ...any) (out []store.HeldInfo, err error) {
	err = r.each(ctx, text, args, func(rows *sql.Rows) error {
		var h store.HeldInfo
		var since int64
		var due sql.Null[int64]
		err := rows.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &h.MessageID, &h.Reason, &h.Cause, &h.Attempts, &since, &due,
			&h.Parked)
		h.Since = stored.Time(since)
		if due.Valid {
			h.NextAttempt = stored.Time(due.V)
		}
		out = append(out, h)
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
	shownSQL  = `SELECT ` + parkedColumns + `, p.history, p.relay FROM {prefix}parked p WHERE p.relay = ?1 AND `
	queuedSQL = shownSQL + `p.key = ?2 AND p.due_at IS NULL ORDER BY p.seq LIMIT +?3`
	// listParkedSQL returns a page of the messages of relay ?1 that wait by themselves: after ?2 due, ?3 partition and ?4 sequence,
	// ?5 rows.
	listParkedSQL = shownSQL + `p.due_at IS NOT NULL AND (p.due_at, p.partition, p.seq) > (?2, ?3, ?4)
		ORDER BY p.due_at, p.partition, p.seq LIMIT +?5`
	parkedByIDSQL   = shownSQL + `p.id = ?2 ORDER BY p.seq`
	parkedCountsSQL = `SELECT relay, reason, count(*), min(parked_at) FROM {prefix}parked WHERE due_at IS NOT NULL
		AND (?1 = '' OR relay = ?1) GROUP BY relay, reason ORDER BY relay, reason`
)

// parked reads parked messages with their history. An unreadable message is shown as far as it can be read.
func (r records) parked(ctx context.Context, text string, args ...any) (out []store.ParkedInfo, err error) {
	var history, name string
	row := newParkedRow()
	dest := append(row.row.Dest(), &history, &name)
	err = r.each(ctx, text, args, func(rows *sql.Rows) error {
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
	})
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
	found, err := r.decisions(ctx, decisionSQL, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	if err != nil {
		return store.Decision{}, err
	}
	return found[0], nil
}
