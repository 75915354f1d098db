package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/deadletter"
)

// The statements of a settlement that write dead letters. Their parameters are those of mineSQL.
const (
	deadFromParkedSQL = mineSQL + `, chosen as materialized (select * from mine m)` + moveDeadSQL

	// deadAfterAllSQL is for a message that was read from the log and has been parked since. It leaves alone what is among the
	// dead letters: it comes from a settlement whose answer was lost.
	deadAfterAllSQL = mineSQL + `, chosen as materialized (select * from mine m where not ` + hasDiedSQL + `)` + moveDeadSQL

	moveDeadSQL = `, p as (
	delete from {parked} p using chosen m where p.relay = $1::text and p.partition = m.part and p.seq = m.number
	returning p.*, m.why, m.what, m.tries, m.attempt, m.ord
)
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives)
select p.relay, p.partition, {message}, p.why, p.what, p.tries, ` + rememberSQL + `, clock_timestamp(), p.redrives
from p cross join lateral (select ` + deadEntrySQL + ` as history) as excluded order by p.ord`

	deadEntrySQL = `case when p.what = '' then '[]'::jsonb else jsonb_build_array(jsonb_build_object(
		'attempt', p.attempt, 'at', clock_timestamp(), 'cause', p.what)) end`

	// deadFromLogSQL comes after deadAfterAllSQL.
	deadFromLogSQL = mineSQL + `
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives)
select $1::text, partition, {message}, m.why, m.what, m.tries, ` + entrySQL + `, clock_timestamp(), 0
from mine m join {log} l on l.partition = m.part and l.seq = m.number
where not ` + hasDiedSQL + `
order by m.ord`
)

const (
	// chosenSQL is a deadletter.Filter: $1 numbers, $2 relay, $3 topic, $4 type, $5 key, $6 tenant, $7 reason, $8 message id,
	// $9 from, $10 to, $11 state.
	chosenSQL = `(cardinality($1::int8[]) = 0 or number = any($1::int8[])) and ($2::text = '' or relay = $2::text)
	and ($3::text = '' or topic = $3::text) and ($4::text = '' or type = $4::text) and ($5::text = '' or key = $5::text)
	and ($6::text = '' or tenant = $6::text) and ($7::text = '' or reason = $7::text) and ($8::text = '' or id = $8::text)
	and ($9::timestamptz is null or died_at >= $9::timestamptz) and ($10::timestamptz is null or died_at < $10::timestamptz)
	and ($11::text = 'any' or state = $11::text)`

	letterColumns = `number, relay, partition, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution, {message}`
	letterMessage = 13 // the column at which the message begins

	// listDeadSQL is a page: behind $12 number, $13 rows.
	listDeadSQL  = `select ` + letterColumns + ` from {dead} where ` + chosenSQL + ` and number > $12::int8 order by number limit $13::int8`
	countDeadSQL = `select count(*) from {dead} where ` + chosenSQL

	// placesSQL is where the letters to resolve are, $12 at most.
	placesSQL = `
select distinct relay, partition::int4 from (
	select relay, partition from {dead} where ` + chosenSQL + ` order by number limit $12::int8) as d
order by relay, partition`

	// lockDeadSQL locks the letters to resolve, $12 at most, and leaves out those that another caller is resolving. Their
	// leases are locked first, as in every decision about a held key: $13 relays and $14 partitions.
	lockDeadSQL = `select number from {dead} where ` + chosenSQL + `
	and (relay, partition::int4) in (select * from unnest($13::text[], $14::int4[]))
order by number limit $12::int8 for update skip locked`

	// statesSQL is for the letters that a filter names: $1 numbers.
	statesSQL = `select number, state, resolved_by from {dead} where number = any($1::int8[]) for update`

	// closeDeadSQL: $1 numbers, $2 state, $3 by, $4 resolution.
	closeDeadSQL = `update {dead} set state = $2::text, resolved_at = clock_timestamp(), resolved_by = $3::text,
	resolution = $4::text where number = any($1::int8[])`

	// lockKeysSQL keeps the keys of letters, $1 numbers, from being released while their messages are parked.
	lockKeysSQL = `select 1 from {held} h where (h.relay, h.key) in (select d.relay, d.key from {dead} d where d.number = any($1::int8[]))
order by h.relay, h.key for update`

	// redriveSQL parks letters again, $1 numbers, by $2: due at once, or, when the key is held, behind it.
	redriveSQL = `
insert into {parked} (relay, partition, {message}, reason, due_at, attempts, history, redrives, parked_at)
select d.relay, d.partition, {message}, 'redriven', case when h.held is null then clock_timestamp() end, 0,
	(case when jsonb_array_length(history) >= 20 then history - 0 else history end) || jsonb_build_array(
		jsonb_build_object('attempt', 0, 'at', clock_timestamp(), 'cause', 'redriven by ' || $2::text)),
	redrives + 1, clock_timestamp()
from {dead} d
left join lateral (select true as held from {held} h where h.relay = d.relay and h.key = d.key and d.key <> '') h on true
where number = any($1::int8[])
on conflict (relay, partition, seq) do update set reason = excluded.reason, due_at = excluded.due_at,
	attempts = excluded.attempts, history = excluded.history, redrives = excluded.redrives`

	// letKeysGoSQL makes the keys due that were held until somebody decided about these letters: $1 numbers.
	letKeysGoSQL = `
update {held} h set next_attempt_at = clock_timestamp(), seq = coalesce(w.seq, h.seq), reason = coalesce(w.reason, h.reason),
	cause = '', attempts = coalesce(w.attempts, h.attempts)
from {dead} d left join lateral (
	select p.seq, p.reason, p.attempts from {parked} p
	where p.relay = d.relay and p.partition = d.partition and p.key = d.key and p.due_at is null order by p.seq limit 1
) as w on true
where d.number = any($1::int8[]) and h.relay = d.relay and h.key = d.key and h.seq = d.seq and h.next_attempt_at is null`
)

// defaultResolve is how many letters a call resolves when no limit is given.
const defaultResolve = 1000

func filterArgs(f deadletter.Filter, more ...any) []any {
	moment := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return append([]any{list(f.Numbers), f.Relay, f.Topic, f.Type, f.Key, f.Tenant, f.Reason, f.MessageID,
		moment(f.From), moment(f.To), string(cmp.Or(f.State, deadletter.Open))}, more...)
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			page, err := s.deadPage(ctx, f, after, size)
			if err != nil {
				yield(deadletter.Letter{}, translate("list dead letters", err))
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				after = l.Number
			}
			if len(page) < size {
				return
			}
		}
	}
}

func (s *Store) deadPage(ctx context.Context, f deadletter.Filter, after int64, size int) ([]deadletter.Letter, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	var page []deadletter.Letter
	err := s.read(ctx, s.names.expand(listDeadSQL), filterArgs(f, after, int64(size)), func(rows pgx.Rows) error {
		for d := newDecoder(rows); d.next(); {
			l, err := decodeLetter(d)
			if err != nil {
				return err
			}
			page = append(page, l)
		}
		return rows.Err()
	})
	return page, err
}

func decodeLetter(d *decoder) (l deadletter.Letter, err error) {
	for _, f := range []struct {
		column int
		set    func(int64)
	}{{0, func(v int64) { l.Number = v }}, {2, func(v int64) { l.Partition = int(v) }},
		{5, func(v int64) { l.Attempts = int(v) }}, {8, func(v int64) { l.Redrives = int(v) }}} {
		v, err := d.int(f.column)
		if err != nil {
			return l, err
		}
		f.set(v)
	}
	l.Relay, l.Reason, l.Cause = d.string(1), d.string(3), d.string(4)
	l.History = readHistory(d.json(6))
	if l.DiedAt, err = d.time(7); err != nil {
		return l, err
	}
	l.State = deadletter.State(d.string(9))
	if l.ResolvedAt, err = d.time(10); err != nil {
		return l, err
	}
	l.ResolvedBy, l.Resolution = d.string(11), d.string(12)
	l.Message, _, err = d.message(letterMessage) // what cannot be read is shown as far as it can
	return l, err
}

// ShowDead implements deadletter.Store.
func (s *Store) ShowDead(ctx context.Context, number int64) (deadletter.Letter, error) {
	page, err := s.deadPage(ctx, deadletter.Filter{Numbers: []int64{number}, State: deadletter.AnyState}, 0, 1)
	if err != nil {
		return deadletter.Letter{}, translate("show dead letter", err)
	}
	if len(page) == 0 {
		return deadletter.Letter{}, fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
	}
	return page[0], nil
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (int64, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	var n int64
	err := s.pool.QueryRow(ctx, s.names.expand(countDeadSQL), filterArgs(f)...).Scan(&n)
	return n, translate("count dead letters", err)
}

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	by = oneText(by, maxCause)
	n, err := s.resolve(ctx, f, limit, func(tx pgx.Tx, numbers []int64) error {
		if _, err := tx.Exec(ctx, s.names.expand(closeDeadSQL), numbers, string(deadletter.Redriven), by, ""); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.names.expand(redriveSQL), numbers, by)
		return err
	})
	return n, translate("redrive dead letters", err)
}

// DiscardDead implements deadletter.Store.
func (s *Store) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	by, reason = oneText(by, maxCause), oneText(reason, maxCause)
	n, err := s.resolve(ctx, f, limit, func(tx pgx.Tx, numbers []int64) error {
		_, err := tx.Exec(ctx, s.names.expand(closeDeadSQL), numbers, string(deadletter.Discarded), by, reason)
		return err
	})
	return n, translate("discard dead letters", err)
}

// resolve does something with the open letters that the filter chooses and lets go the keys that were held for them, in
// one transaction.
func (s *Store) resolve(ctx context.Context, f deadletter.Filter, limit int, apply func(tx pgx.Tx, numbers []int64) error) (int, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	if f.State != "" && f.State != deadletter.Open && f.State != deadletter.AnyState {
		return 0, nil // none of these is open
	}
	f.State = deadletter.Open
	n, err := retry(func() (n int, err error) {
		err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			numbers, err := s.lockDead(ctx, tx, f, cmp.Or(limit, defaultResolve))
			if err != nil || len(numbers) == 0 {
				return err
			}
			if _, err := tx.Exec(ctx, s.names.expand(lockKeysSQL), numbers); err != nil {
				return err
			}
			if err := apply(tx, numbers); err != nil {
				return err
			}
			n = len(numbers)
			_, err = tx.Exec(ctx, s.names.expand(letKeysGoSQL), numbers)
			return err
		})
		return n, err
	})
	if n > 0 && err == nil {
		s.Wake()
	}
	return n, err
}

// checkNamed refuses numbers that are not those of open letters.
func (s *Store) checkNamed(ctx context.Context, tx pgx.Tx, numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, s.names.expand(statesSQL), numbers)
	if err != nil {
		return err
	}
	open := make(map[int64]bool)
	var number int64
	var state, by string
	_, err = pgx.ForEachRow(rows, []any{&number, &state, &by}, func() error {
		if state != string(deadletter.Open) {
			return fmt.Errorf("%w: %d was %s by %s", deadletter.ErrResolved, number, state, by)
		}
		open[number] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if !open[n] {
			return fmt.Errorf("%w: %d", deadletter.ErrNotFound, n)
		}
	}
	return nil
}

// lockDead locks letters after, so that no settlement comes in between, the leases of their partitions.
func (s *Store) lockDead(ctx context.Context, tx pgx.Tx, f deadletter.Filter, limit int) ([]int64, error) {
	rows, err := tx.Query(ctx, s.names.expand(placesSQL), filterArgs(f, int64(limit))...)
	if err != nil {
		return nil, err
	}
	relays, partitions := []string{}, []int32{}
	var relay string
	var partition int32
	if _, err = pgx.ForEachRow(rows, []any{&relay, &partition}, func() error {
		relays = append(relays, relay)
		partitions = append(partitions, partition)
		return nil
	}); err != nil {
		return nil, err
	}
	for from := 0; from < len(relays); {
		to := from
		for to < len(relays) && relays[to] == relays[from] {
			to++
		}
		if _, err := tx.Exec(ctx, s.names.expand(lockLeaseSQL), relays[from], partitions[from:to]); err != nil {
			return nil, err
		}
		from = to
	}
	if err := s.checkNamed(ctx, tx, f.Numbers); err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, s.names.expand(lockDeadSQL), filterArgs(f, int64(limit), relays, partitions)...); err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
