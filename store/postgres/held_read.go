package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// heldColumns: the message that blocks a key is a dead letter if the key waits for a decision, otherwise the queued message.
	heldColumns = `h.relay, h.partition::int4, h.key, h.seq, coalesce(case when h.next_attempt_at is null then (
			select d.id from (select number, id from {dead} d
				where d.relay = h.relay and d.partition = h.partition and d.seq = h.seq offset 0) as d order by d.number desc limit 1)
		else (select p.id from {parked} p
			where p.relay = h.relay and p.partition = h.partition and p.seq = h.seq and p.due_at is null) end, ''),
	h.reason, h.cause, h.attempts, h.since, h.next_attempt_at,
	(select count(*) from (select 1 from {parked} p where p.relay = h.relay and p.partition = h.partition and p.key = h.key
		and p.due_at is null limit %d) as p)::int4`

	// nextRelaySQL: after $1.
	nextRelaySQL = `select coalesce(least((select min(relay) from {held} where relay > $1::text),
	(select min(relay) from {parked} where relay > $1::text)), '')`

	// listHeldSQL returns a page of the held keys of relay $1: after $2 since and $3 key, $4 rows.
	listHeldSQL = `select ` + heldColumns + ` from {held} h where h.relay = $1::text and (h.since, h.key) > ($2::timestamptz, $3::text)
order by h.since, h.key limit $4::int8`
	showHeldSQL = `select ` + heldColumns + ` from {held} h where h.relay = $1::text and h.key = $2::text`
)

func scanHeld(row pgx.CollectableRow) (store.HeldInfo, error) {
	var h store.HeldInfo
	var next *time.Time
	err := row.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &h.MessageID, &h.Reason, &h.Cause, &h.Attempts, &h.Since, &next,
		&h.Parked)
	h.Since, h.NextAttempt = h.Since.UTC(), utc(next)
	return h, err
}

func (r records) heldKeys(ctx context.Context, sql string, args ...any) (out []store.HeldInfo, err error) {
	err = r.query(ctx, fmt.Sprintf(sql, store.CountLimit), args, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, scanHeld)
		return err
	})
	return out, err
}

// NextRelay implements store.HeldReader.
func (r records) NextRelay(ctx context.Context, after string) (string, error) {
	return onlyOf[string](ctx, r, nextRelaySQL, after)
}

// HeldKeys implements store.HeldReader.
func (r records) HeldKeys(ctx context.Context, q store.HeldQuery) ([]store.HeldInfo, error) {
	var after store.HeldInfo
	if q.After != nil {
		after = *q.After
	}
	return r.heldKeys(ctx, listHeldSQL, q.Relay, after.Since, after.Key, int64(q.Limit))
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
	parkedColumns = `relay, partition::int4, reason, attempts, parked_at, due_at, history, {message}`
	parkedMessage = 7 // the column where the message begins

	// queuedSQL: $1 relay, $2 key, $3 rows.
	queuedSQL = `select ` + parkedColumns + ` from {parked} where relay = $1::text and key = $2::text and due_at is null
	and partition = (select h.partition from {held} h where h.relay = $1::text and h.key = $2::text) order by seq limit $3::int8`

	// listParkedSQL returns a page of the messages of relay $1 that wait by themselves: after $2 due, $3 partition and $4
	// sequence, $5 rows.
	listParkedSQL = `select ` + parkedColumns + ` from {parked} p where relay = $1::text and due_at is not null
	and (due_at, partition, seq) > ($2::timestamptz, $3::int2, $4::int8)
order by p.due_at, p.partition, p.seq limit $5::int8`

	// findParkedSQL: $1 relay, $2 message.
	findParkedSQL = `select ` + parkedColumns + ` from {parked} where id = $2::text and relay = $1::text order by seq limit 100`

	// parkedCountsSQL: $1 relay or ''.
	parkedCountsSQL = `select relay, reason, count(*), min(parked_at) from {parked}
where due_at is not null and ($1::text = '' or relay = $1::text) group by relay, reason order by relay, reason`
)

func decodeParked(d *decoder) (p store.ParkedInfo, err error) {
	p.Relay, p.Reason = d.string(0), store.ParkReason(d.string(2))
	partition, err := d.int(1)
	if err != nil {
		return p, err
	}
	attempts, err := d.int(3)
	if err != nil {
		return p, err
	}
	p.Partition, p.Attempts = int(partition), int(attempts)
	if p.ParkedAt, err = d.time(4); err != nil {
		return p, err
	}
	if p.DueAt, err = d.time(5); err != nil {
		return p, err
	}
	p.History = readHistory(d.json(6))
	p.Message, _, err = d.message(parkedMessage) // an unreadable message is shown as far as it can be read
	return p, err
}

// parked reads parked messages; in a transaction, where a refusal would end it, without contents.
func (r records) parked(ctx context.Context, sql string, args ...any) (out []store.ParkedInfo, err error) {
	read := func(rows pgx.Rows) error {
		for d := newDecoder(rows); d.next(); {
			p, err := decodeParked(d)
			if err != nil {
				return err
			}
			out = append(out, p)
		}
		return rows.Err()
	}
	if r.tx == nil {
		if err = r.query(ctx, sql, args, read); code(err) != insufficientPrivilege {
			return out, err
		}
	}
	// An operator may have no right to read contents (Grants).
	err = r.query(ctx, strings.Replace(sql, "{message}", withoutContent, 1), args, read)
	for i := range out {
		out[i].Unreadable = notReadable
	}
	return out, err
}

// Queued implements store.HeldReader.
func (r records) Queued(ctx context.Context, name, key string, limit int) ([]store.ParkedInfo, error) {
	return r.parked(ctx, queuedSQL, name, key, int64(limit))
}

// Parked implements store.HeldReader.
func (r records) Parked(ctx context.Context, q store.ParkedQuery) ([]store.ParkedInfo, error) {
	due, partition, seq := time.Time{}, int16(0), int64(0)
	if a := q.After; a != nil {
		due, partition, seq = a.DueAt, int16(a.Partition), a.Message.Sequence
	}
	return r.parked(ctx, listParkedSQL, q.Relay, due, partition, seq, int64(q.Limit))
}

// ParkedByID implements store.HeldReader.
func (r records) ParkedByID(ctx context.Context, name, id string) ([]store.ParkedInfo, error) {
	return r.parked(ctx, findParkedSQL, name, id)
}

// CountParked implements store.HeldReader.
func (r records) CountParked(ctx context.Context, name string) (out []store.ParkedCount, err error) {
	err = r.query(ctx, parkedCountsSQL, []any{name}, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c store.ParkedCount, err error) {
			err = row.Scan(&c.Relay, &c.Reason, &c.Count, &c.Oldest)
			c.Oldest = c.Oldest.UTC()
			return c, err
		})
		return err
	})
	return out, err
}

// Decision implements store.HeldReader.
func (r records) Decision(ctx context.Context, id string) (store.Decision, error) {
	return r.decision(ctx, id, "")
}

// decision reads a decision; lock is "" or " for update".
func (r records) decision(ctx context.Context, id, lock string) (d store.Decision, err error) {
	err = r.query(ctx, showDecisionSQL+lock, []any{id}, func(rows pgx.Rows) error {
		d, err = pgx.CollectExactlyOneRow(rows, scanDecision)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	return d, err
}
