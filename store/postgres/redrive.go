package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// sentBackSQL closes dead letters: $1 numbers, $2 by, $3 redrive.
	sentBackSQL = `update {dead} set state = 'redriven', resolved_at = clock_timestamp(), resolved_by = $2::text, redrive = $3::int8
where number = any($1::int8[])`

	// redriveSQL parks the messages of dead letters, $1 numbers, redriven by $2. They are due at once or, if their key is held,
	// queued for it. All are due at the same time, so that those of a key come in order of sequence.
	redriveSQL = `
with clock as materialized (select clock_timestamp() as now)
insert into {parked} (relay, partition, {message}, reason, due_at, attempts, history, redrives, parked_at)
select d.relay, d.partition, {message}, 'redriven', case when h.held is null then now end, 0,
	(case when jsonb_array_length(history) >= 20 then history - 0 else history end) || jsonb_build_array(
		jsonb_build_object('attempt', 0, 'at', now, 'cause', 'redriven by ' || $2::text)),
	redrives + 1, now
from {dead} d cross join clock
left join lateral (select true as held from {held} h where h.relay = d.relay and h.key = d.key and d.key <> '') h on true
where number = any($1::int8[])
on conflict (relay, partition, seq) do update set reason = excluded.reason, due_at = excluded.due_at,
	attempts = excluded.attempts, history = excluded.history, redrives = excluded.redrives`

	redriveColumns = `id, filter::text, rate, state, started_by, started_at, ended_at, cancelled_by, selected, done, refused, skipped,
	position, up_to, next_at, failures, cause`

	// startRedriveSQL: $1 filter, $2 rate, $3 by, $4 started, $5 selected, $6 up to.
	startRedriveSQL = `
insert into {redrives} (filter, rate, started_by, started_at, selected, up_to)
values ($1::text::jsonb, $2::float8, $3::text, $4::timestamptz, $5::int8, $6::int8) returning id`

	showRedriveSQL = `select ` + redriveColumns + ` from {redrives} where id = $1::int8`

	// listRedrivesSQL: $1 state or '', before $2, $3 rows.
	listRedrivesSQL = `select ` + redriveColumns + ` from {redrives}
where ($1::text = '' or state = $1::text) and id < $2::int8 order by id desc limit $3::int8`

	// outcomeSQL counts the messages of redrive $1, of dead letters with numbers above $2 that were not erased: all, those that are
	// parked again, those of them that have failed since, and those that were dead-lettered again.
	outcomeSQL = `
select count(*), count(p.seq), count(p.seq) filter (where p.attempts > 0), (
	select count(*) from {dead} d
	where d.redrive = $1::int8 and d.redrive > 0 and d.number > $2::int8 and d.type <> '` + store.ErasedType + `' and exists (
		select 1 from {dead} l where l.relay = d.relay and l.partition = d.partition and l.seq = d.seq and l.number > d.number))
from {dead} d left join {parked} p on p.relay = d.relay and p.partition = d.partition and p.seq = d.seq and p.redrives = d.redrives + 1
where d.redrive = $1::int8 and d.redrive > 0 and d.number > $2::int8 and d.type <> '` + store.ErasedType + `'`

	// saveRedriveSQL: $1 id, then what may change.
	saveRedriveSQL = `
update {redrives} set state = $2::text, ended_at = $3::timestamptz, cancelled_by = $4::text, selected = $5::int8, done = $6::int8,
	refused = $7::int8, skipped = $8::int8, position = $9::int8, next_at = $10::timestamptz, failures = $11::int4, cause = $12::text
where id = $1::int8`

	// purgeRedrivesSQL removes redrives that ended long ago, oldest first: $1 how long in microseconds, $2 how many.
	purgeRedrivesSQL = `
delete from {redrives} where id in (
	select id from {redrives} where state <> 'running' and ended_at <= clock_timestamp() - $1::float8 * interval '1 microsecond'
	order by id limit $2::int8)`

	nowSQL = `select clock_timestamp()`
)

func scanRedrive(row pgx.CollectableRow) (r store.Redrive, err error) {
	var filter string
	var ended, next *time.Time
	err = row.Scan(&r.ID, &filter, &r.Rate, &r.State, &r.By, &r.StartedAt, &ended, &r.CancelledBy, &r.Selected, &r.Done,
		&r.Refused, &r.Skipped, &r.Position, &r.UpTo, &next, &r.Failures, &r.Cause)
	if err != nil {
		return r, err
	}
	r.StartedAt, r.EndedAt, r.NextAt = r.StartedAt.UTC(), utc(ended), utc(next)
	if err := json.Unmarshal([]byte(filter), &r.Filter); err != nil {
		return r, fmt.Errorf("the stored filter of redrive %d: %w", r.ID, err)
	}
	return r, nil
}

// utc converts a nullable time; null is the zero time.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// orNull returns a time as a parameter; the zero time is null.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// redrives reads the redrives that a statement returns.
func (r records) redrives(ctx context.Context, sql string, args ...any) (out []store.Redrive, err error) {
	err = r.query(ctx, sql, args, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, scanRedrive)
		return err
	})
	return out, err
}

// redrive reads one redrive; lock is "" or " for update".
func (r records) redrive(ctx context.Context, id int64, lock string) (store.Redrive, error) {
	found, err := r.redrives(ctx, showRedriveSQL+lock, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("redrive %d: %w", id, store.ErrNoRedrive)
	}
	if err != nil {
		return store.Redrive{}, err
	}
	return found[0], nil
}

// Redrive implements store.Reader.
func (r records) Redrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.redrive(ctx, id, "")
}

// LockRedrive implements store.Writer.
func (r records) LockRedrive(ctx context.Context, id int64) (store.Redrive, error) {
	return r.redrive(ctx, id, " for update")
}

// Redrives implements store.Reader.
func (r records) Redrives(ctx context.Context, state store.RedriveState, before int64, limit int) ([]store.Redrive, error) {
	return r.redrives(ctx, listRedrivesSQL, string(state), before, int64(limit))
}

// Redriven implements store.Reader.
func (r records) Redriven(ctx context.Context, id, after int64) (n store.Redriven, err error) {
	err = r.query(ctx, outcomeSQL, []any{id, after}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n.Found, &n.Parked, &n.Failing, &n.Dead}, func() error { return nil })
		return err
	})
	return n, err
}

// AddRedrive implements store.Writer.
func (r records) AddRedrive(ctx context.Context, added store.Redrive) (int64, error) {
	filter, err := json.Marshal(added.Filter)
	if err != nil {
		return 0, err
	}
	return onlyOf[int64](ctx, r, startRedriveSQL, string(filter), added.Rate, added.By, added.StartedAt, added.Selected, added.UpTo)
}

// SaveRedrive implements store.Writer.
func (r records) SaveRedrive(ctx context.Context, saved store.Redrive) error {
	return r.exec(ctx, saveRedriveSQL, saved.ID, string(saved.State), orNull(saved.EndedAt), saved.CancelledBy, saved.Selected,
		saved.Done, saved.Refused, saved.Skipped, saved.Position, orNull(saved.NextAt), saved.Failures, saved.Cause)
}

// purgeRedrives removes redrives that ended at least keep ago, at most store.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	_, err := s.pool.Exec(ctx, s.names.expand(purgeRedrivesSQL), keep.Microseconds(), int64(store.PurgeRedrives))
	return translate("purge redrives", err)
}
