package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// The statements of a settlement that work on held keys. Their parameters are those of mineSQL.
const (
	// lockHeldSQL locks the keys that the following statements read. Others who park messages of a key hold the key in the same
	// transaction. So the statements after this one, each with its own snapshot, see the messages that they parked; or the others
	// find the key released and hold it again.
	lockHeldSQL = mineSQL + `
select 1 from (select name from mine order by name) as m cross join lateral (
	select from {held} h where h.relay = $1::text and h.key = m.name offset 0 for update) as h`

	// heldPlaceSQL is the place (ctid) of the row of a key that lockHeldSQL has locked.
	heldPlaceSQL = `lateral (select h.ctid as place from {held} h where h.relay = $1::text and h.key = m.name offset 0) as k`

	// holdSQL holds a key for a decision (after < 0) only while the blocking message's dead letter is open. Otherwise an operator
	// has already decided, and the key is due at once. The state is not a bare column, so that the planner does not use the index of
	// open dead letters instead of the one by sequence.
	holdSQL = mineSQL + `
insert into {held} as h (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
select $1::text, m.name, m.part, m.number, m.why, m.what, m.tries, clock_timestamp(),
	case when m.after >= 0 then clock_timestamp() + m.after::float8 * interval '1 microsecond'
		when not exists (select 1 from {dead} d
			where d.relay = $1::text and d.partition = m.part and d.seq = m.number and d.state || '' = 'open' offset 0)
		then clock_timestamp() end
from mine m order by m.name
on conflict (relay, key) do update set seq = excluded.seq, reason = excluded.reason, cause = excluded.cause,
	attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at`

	// releaseKeysSQL comes after lockHeldSQL. It releases the keys that have no queued messages and returns them.
	releaseKeysSQL = mineSQL + `, free as materialized (
	select m.name from mine m where not exists (
		select 1 from {parked} p
		where p.relay = $1::text and p.partition = m.part and p.key = m.name and p.due_at is null offset 0)
), freed as (
	delete from {held} h using free m cross join ` + heldPlaceSQL + ` where h.ctid = k.place
)
select name from free`

	// letGoSQL makes the keys that are still held due at once.
	letGoSQL = mineSQL + `
update {held} h set next_attempt_at = clock_timestamp(), ` + newHeadSQL + `
from mine m cross join ` + heldPlaceSQL + `
left join lateral (` + firstWaitingSQL + ` and p.partition = m.part and p.key = m.name ` + firstOnlySQL + `) w on true
where h.ctid = k.place`

	// newHeadSQL makes the first queued message the blocking one if the blocking message is gone.
	newHeadSQL = `seq = coalesce(w.seq, h.seq), reason = case when w.seq <> h.seq then w.reason else h.reason end,
	cause = case when w.seq <> h.seq then '' else h.cause end,
	attempts = case when w.seq <> h.seq then w.attempts else h.attempts end`
	firstWaitingSQL = `select p.seq, p.reason, p.attempts from {parked} p where p.relay = $1::text and p.due_at is null`
	firstOnlySQL    = `order by p.seq limit 1`
)

const (
	heldColumns = `h.relay, h.partition::int4, h.key, h.seq, h.reason, h.cause, h.attempts, h.since, h.next_attempt_at,
	(select count(*) from (select 1 from {parked} p where p.relay = h.relay and p.partition = h.partition and p.key = h.key
		and p.due_at is null limit %d) as p)::int4`

	// listHeldSQL reads one page: $1 relay or '', after $2 since, $3 relay and $4 key (if $5), $6 rows.
	listHeldSQL = `select ` + heldColumns + ` from {held} h
where ($1::text = '' or h.relay = $1::text)
	and (not $5::bool or (h.since, h.relay, h.key) > ($2::timestamptz, $3::text, $4::text))
order by h.since, h.relay, h.key limit $6::int8`

	showHeldSQL = `select ` + heldColumns + ` from {held} h where h.relay = $1::text and h.key = $2::text`

	// waitingSQL: $1 relay, $2 partition, $3 key, $4 rows.
	waitingSQL = `select reason, attempts, parked_at, due_at, history, {message} from {parked}
where relay = $1::text and partition = $2::int4 and key = $3::text and due_at is null order by seq limit $4::int8`
)

// listPage is how many held keys or dead letters are read at a time.
const listPage = 100

func scanHeld(row pgx.CollectableRow) (store.HeldInfo, error) {
	var h store.HeldInfo
	var next *time.Time
	err := row.Scan(&h.Relay, &h.Partition, &h.Key, &h.Sequence, &h.Reason, &h.Cause, &h.Attempts, &h.Since, &next, &h.Parked)
	h.Since = h.Since.UTC()
	if next != nil {
		h.NextAttempt = next.UTC()
	}
	return h, err
}

func (s *Store) heldSQL(sql string) string { return s.names.expand(fmt.Sprintf(sql, store.CountLimit)) }

// ListHeld implements store.HeldKeys.
func (s *Store) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	return func(yield func(store.HeldInfo, error) bool) {
		var last store.HeldInfo
		for begun := false; ; begun = true {
			page, err := s.heldPage(ctx, name, last, begun)
			if err != nil {
				yield(store.HeldInfo{}, translate("list held keys", err))
				return
			}
			for _, h := range page {
				if !yield(h, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			last = page[len(page)-1]
		}
	}
}

func (s *Store) heldPage(ctx context.Context, name string, last store.HeldInfo, begun bool) ([]store.HeldInfo, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	var page []store.HeldInfo
	args := []any{name, last.Since, last.Relay, last.Key, begun, int64(listPage)}
	err := s.read(ctx, s.heldSQL(listHeldSQL), args, func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, scanHeld)
		return err
	})
	return page, err
}

// ShowHeld implements store.HeldKeys.
func (s *Store) ShowHeld(ctx context.Context, name, key string, limit int) (store.HeldInfo, []store.ParkedInfo, error) {
	if _, err := s.open(ctx); err != nil {
		return store.HeldInfo{}, nil, err
	}
	var h store.HeldInfo
	var parked []store.ParkedInfo
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) (err error) {
		if h, err = s.showHeld(ctx, tx, name, key); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.names.expand(waitingSQL), name, h.Partition, key, int64(limit))
		if err != nil {
			return translate("show held key", err)
		}
		defer rows.Close()
		for d := newDecoder(rows); d.next(); {
			p, err := decodeParked(d)
			if err != nil {
				return fmt.Errorf("show held key: %w", err)
			}
			parked = append(parked, p)
		}
		return translate("show held key", rows.Err())
	})
	return h, parked, err
}

func decodeParked(d *decoder) (p store.ParkedInfo, err error) {
	p.Reason = store.ParkReason(d.string(0))
	attempts, err := d.int(1)
	if err != nil {
		return p, err
	}
	p.Attempts = int(attempts)
	if p.ParkedAt, err = d.time(2); err != nil {
		return p, err
	}
	if p.DueAt, err = d.time(3); err != nil {
		return p, err
	}
	p.History = readHistory(d.json(4))
	p.Message, _, err = d.message(5) // an unreadable message is shown as far as it can be read
	return p, err
}

func (s *Store) showHeld(ctx context.Context, tx pgx.Tx, name, key string) (store.HeldInfo, error) {
	if _, err := tx.Exec(ctx, "select "+formatSQL); err != nil {
		return store.HeldInfo{}, translate("show held key", err)
	}
	rows, err := tx.Query(ctx, s.heldSQL(showHeldSQL), name, key)
	if err != nil {
		return store.HeldInfo{}, translate("show held key", err)
	}
	found, err := pgx.CollectRows(rows, scanHeld)
	if err != nil {
		return store.HeldInfo{}, translate("show held key", err)
	}
	if len(found) == 0 {
		return store.HeldInfo{}, fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
	}
	return found[0], nil
}

const (
	// keepPartitionsSQL keeps the number of partitions from changing, and runs before anything is looked up by partition. {leases}
	// is the first table that decisions use among those that Repartition locks.
	keepPartitionsSQL = `lock table {leases} in row share mode`

	// lockLeaseSQL blocks settlements of partitions: $1 relay, $2 partitions.
	lockLeaseSQL = `select 1 from {leases} where relay = $1::text and partition = any($2::int4[])
order by partition for update`

	// findHeadSQL makes the first queued message of a key its blocking message, unless the key waits for a decision about a
	// dead-lettered blocking message. $1 relay, $2 partition, $3 key.
	findHeadSQL = `
update {held} h set ` + newHeadSQL + `
from (` + firstWaitingSQL + ` and p.partition = $2::int4 and p.key = $3::text ` + firstOnlySQL + `) w
where h.relay = $1::text and h.key = $3::text and h.next_attempt_at is not null`

	// letKeyGoSQL makes a key due at once, so that the process that holds the partition continues or releases it: only that process
	// knows which messages it has in memory. $1 relay, $2 partition, $3 key.
	letKeyGoSQL = `
update {held} h set next_attempt_at = clock_timestamp(), ` + newHeadSQL + `
from (select 1) as one left join lateral (` + firstWaitingSQL + ` and p.partition = $2::int4 and p.key = $3::text ` + firstOnlySQL + `) w
	on true
where h.relay = $1::text and h.key = $3::text`

	// giveUpSQL moves parked messages of a key to the dead letters: $1 relay, $2 partition, $3 key, $4 the sequence of the message,
	// $5 all of them, $6 reason, $7 cause, $8 attempts (-1: as parked), $9 history entry, $10 state, $11 by, $12 resolution.
	giveUpSQL = `
with gone as (
	delete from {parked} p where p.relay = $1::text and p.partition = $2::int4 and p.key = $3::text and p.due_at is null
		and ($5::bool or p.seq = $4::int8)
	returning p.*
)
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution)
select relay, partition, {message}, $6::text, $7::text, case when $8::int4 < 0 then attempts else $8::int4 end,
	case when $9::text = '' then history else (case when jsonb_array_length(history) >= 20 then history - 0 else history end)
		|| jsonb_build_array(jsonb_build_object('attempt', 0, 'at', clock_timestamp(), 'cause', $9::text)) end,
	clock_timestamp(), redrives, $10::text, case when $10::text <> 'open' then clock_timestamp() end, $11::text, $12::text
from gone order by seq`

	// discardLatestSQL closes the open dead letter of a message: $1 relay, $2 sequence, $3 by, $4 resolution, $5 partition.
	discardLatestSQL = `
update {dead} set state = 'discarded', resolved_at = clock_timestamp(), resolved_by = $3::text, resolution = $4::text
where relay = $1::text and partition = $5::int4 and seq = $2::int8 and state = 'open'`
)
