package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/deadletter"
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

	// startRedriveSQL: $1 filter, $2 rate, $3 by, $4 selected.
	startRedriveSQL = `
insert into {redrives} (filter, rate, started_by, selected, up_to)
select $1::text::jsonb, $2::float8, $3::text, $4::int8, (select coalesce(max(number), 0) from {dead}) returning ` + redriveColumns

	showRedriveSQL = `select ` + redriveColumns + ` from {redrives} where id = $1::int8`

	// listRedrivesSQL: $1 state or '', before $2, $3 rows.
	listRedrivesSQL = `select ` + redriveColumns + ` from {redrives}
where ($1::text = '' or state = $1::text) and id < $2::int8 order by id desc limit $3::int8`

	// outcomeSQL counts the messages of redrive $1 that are parked again, and those that were dead-lettered again.
	outcomeSQL = `select
	(select count(*) from {dead} d join {parked} p on p.relay = d.relay and p.partition = d.partition and p.seq = d.seq
		and p.redrives = d.redrives + 1 where d.redrive = $1::int8 and d.redrive > 0),
	(select count(*) from {dead} d where d.redrive = $1::int8 and d.redrive > 0 and exists (
		select 1 from {dead} l where l.relay = d.relay and l.partition = d.partition and l.seq = d.seq and l.number > d.number))`

	// saveRedriveSQL: $1 id, then what may change.
	saveRedriveSQL = `
update {redrives} set state = $2::text, ended_at = $3::timestamptz, cancelled_by = $4::text, selected = $5::int8, done = $6::int8,
	refused = $7::int8, skipped = $8::int8, position = $9::int8, next_at = $10::timestamptz, failures = $11::int4, cause = $12::text
where id = $1::int8`

	// purgeRedrivesSQL removes redrives that ended long ago, oldest first: $1 how long in microseconds, $2 how many.
	purgeRedrivesSQL = `
delete from {redrives} where id in (
	select id from {redrives} where state <> 'running' and ended_at <= clock_timestamp() - $1::int8 * interval '1 microsecond'
	order by id limit $2::int8)`

	nowSQL = `select clock_timestamp()`
)

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	by = oneText(by, maxCause)
	n, err := s.resolve(ctx, f, limit, func(tx pgx.Tx, numbers []int64) error {
		return s.sendBack(ctx, tx, numbers, 0, by)
	})
	return n, translate("redrive dead letters", err)
}

// sendBack closes dead letters and parks their messages.
func (s *Store) sendBack(ctx context.Context, tx pgx.Tx, numbers []int64, id int64, by string) error {
	if _, err := tx.Exec(ctx, s.names.expand(sentBackSQL), numbers, by, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.names.expand(redriveSQL), numbers, by)
	return err
}

func scanRedrive(row pgx.CollectableRow) (r deadletter.Redrive, err error) {
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

// inRedrive runs f in a transaction, and again after a conflict with others.
func (s *Store) inRedrive(ctx context.Context, doing string, f func(tx pgx.Tx) error) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.decision(ctx, f)
	})
	return translate(doing, err)
}

// findRedrive reads a redrive; lock is "" or " for update".
func (s *Store) findRedrive(ctx context.Context, tx pgx.Tx, id int64, lock string) (deadletter.Redrive, error) {
	rows, err := tx.Query(ctx, s.names.expand(showRedriveSQL)+lock, id)
	if err != nil {
		return deadletter.Redrive{}, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanRedrive)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("redrive %d: %w", id, deadletter.ErrNoRedrive)
	}
	return r, err
}

func (s *Store) saveRedrive(ctx context.Context, tx pgx.Tx, r deadletter.Redrive) error {
	_, err := tx.Exec(ctx, s.names.expand(saveRedriveSQL), r.ID, string(r.State), orNull(r.EndedAt), r.CancelledBy, r.Selected,
		r.Done, r.Refused, r.Skipped, r.Position, orNull(r.NextAt), r.Failures, r.Cause)
	return err
}

// StartRedrive implements deadletter.RedriveStore.
func (s *Store) StartRedrive(ctx context.Context, p deadletter.Plan) (r deadletter.Redrive, err error) {
	if err := p.Validate(); err != nil {
		return r, err
	}
	filter, err := json.Marshal(p.Filter)
	if err != nil {
		return r, fmt.Errorf("start a redrive: %w", err)
	}
	if _, err := s.open(ctx); err != nil {
		return r, err
	}
	if err := s.markCauses(ctx, p.Filter); err != nil {
		return r, err
	}
	err = s.inRedrive(ctx, "start a redrive", func(tx pgx.Tx) error {
		if err := s.checkNamed(ctx, tx, piece{filter: p.Filter, bound: deadletter.Unbounded}); err != nil {
			return err
		}
		var selected int64
		if err := tx.QueryRow(ctx, s.names.expand(countDeadSQL), filterArgs(p.Filter)...).Scan(&selected); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.names.expand(startRedriveSQL), string(filter), p.Rate, oneText(p.By, maxCause), selected)
		if err != nil {
			return err
		}
		r, err = pgx.CollectExactlyOneRow(rows, scanRedrive)
		return err
	})
	if err == nil {
		s.Wake()
	}
	return r, err
}

// StepRedrive implements deadletter.RedriveStore.
func (s *Store) StepRedrive(ctx context.Context, id int64, limit int) (r deadletter.Redrive, wait time.Duration, err error) {
	const doing = "step of a redrive"
	err = s.inRedrive(ctx, doing, func(tx pgx.Tx) error {
		r, err = s.findRedrive(ctx, tx, id, "")
		return err
	})
	if err == nil {
		err = s.markCauses(ctx, r.Filter)
	}
	if err != nil {
		return r, 0, err
	}
	var before int64
	r, err = s.changeRedrive(ctx, doing, id, func(tx pgx.Tx, r *deadletter.Redrive, now time.Time) (bool, error) {
		before = r.Done
		if wait = r.NextAt.Sub(now); r.State != deadletter.RedriveRunning || wait > 0 {
			return false, nil
		}
		if err := s.stepRedrive(ctx, tx, r, r.Batch(cmp.Or(limit, defaultResolve)), now); err != nil {
			return false, err
		}
		wait = r.NextAt.Sub(now)
		return true, nil
	})
	if err == nil && r.Done > before {
		s.Wake()
	}
	return r, max(wait, 0), err
}

// changeRedrive locks a redrive, and stores it if change reports a change.
func (s *Store) changeRedrive(ctx context.Context, doing string, id int64,
	change func(tx pgx.Tx, r *deadletter.Redrive, now time.Time) (bool, error)) (r deadletter.Redrive, err error) {
	err = s.inRedrive(ctx, doing, func(tx pgx.Tx) error {
		if r, err = s.findRedrive(ctx, tx, id, " for update"); err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
			return err
		}
		changed, err := change(tx, &r, now.UTC())
		if err != nil || !changed {
			return err
		}
		return s.saveRedrive(ctx, tx, r)
	})
	return r, err
}

func (s *Store) stepRedrive(ctx context.Context, tx pgx.Tx, r *deadletter.Redrive, batch int, now time.Time) error {
	p := piece{filter: r.Filter, after: r.Position, upTo: r.UpTo, limit: batch, bound: deadletter.Unbounded}
	found, err := s.lockDead(ctx, tx, p)
	if err != nil {
		return err
	}
	send := r.Take(found.letters, now)
	r.Position = max(r.Position, found.last)
	if found.n < int64(batch) {
		r.Finish(now)
	}
	if len(send) == 0 {
		return nil
	}
	return s.letGoAfter(ctx, tx, send, func() error { return s.sendBack(ctx, tx, send, r.ID, r.By) })
}

// CancelRedrive implements deadletter.RedriveStore.
func (s *Store) CancelRedrive(ctx context.Context, id int64, by string) (deadletter.Redrive, error) {
	return s.changeRedrive(ctx, "cancel a redrive", id, func(_ pgx.Tx, r *deadletter.Redrive, now time.Time) (bool, error) {
		return true, r.Cancel(oneText(by, maxCause), now)
	})
}

// FailRedrive implements deadletter.RedriveStore.
func (s *Store) FailRedrive(ctx context.Context, id int64, seen int, cause string) (deadletter.Redrive, error) {
	const doing = "note the failure of a redrive"
	return s.changeRedrive(ctx, doing, id, func(_ pgx.Tx, r *deadletter.Redrive, now time.Time) (bool, error) {
		return r.Fail(seen, oneText(cause, maxCause), now), nil
	})
}

// purgeRedrives removes redrives that ended at least keep ago, at most deadletter.PurgeRedrives of them.
func (s *Store) purgeRedrives(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	_, err := s.pool.Exec(ctx, s.names.expand(purgeRedrivesSQL), keep.Microseconds(), int64(deadletter.PurgeRedrives))
	return translate("purge redrives", err)
}

// ShowRedrive implements deadletter.RedriveStore.
func (s *Store) ShowRedrive(ctx context.Context, id int64) (r deadletter.Redrive, err error) {
	err = s.inRedrive(ctx, "show a redrive", func(tx pgx.Tx) error {
		if r, err = s.findRedrive(ctx, tx, id, ""); err != nil {
			return err
		}
		r.Outcome = &deadletter.Outcome{}
		err = tx.QueryRow(ctx, s.names.expand(outcomeSQL), id).Scan(&r.Outcome.Waiting, &r.Outcome.Failed)
		r.Outcome.Delivered = r.Done - r.Outcome.Waiting - r.Outcome.Failed
		return err
	})
	return r, err
}

// ListRedrives implements deadletter.RedriveStore.
func (s *Store) ListRedrives(ctx context.Context, state deadletter.RedriveState) iter.Seq2[deadletter.Redrive, error] {
	return func(yield func(deadletter.Redrive, error) bool) {
		for before := int64(1) << 62; ; {
			page, err := s.redrivePage(ctx, state, before)
			if err != nil {
				yield(deadletter.Redrive{}, translate("list redrives", err))
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				before = r.ID
			}
			if len(page) < listPage {
				return
			}
		}
	}
}

func (s *Store) redrivePage(ctx context.Context, state deadletter.RedriveState, before int64) (page []deadletter.Redrive, err error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	args := []any{string(state), before, int64(listPage)}
	err = s.read(ctx, s.names.expand(listRedrivesSQL), args, func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, scanRedrive)
		return err
	})
	return page, err
}
