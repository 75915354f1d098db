package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/deadletter"
)

// The statements of a settlement that write dead letters. Their parameters are those of mineSQL.
const (
	deadFromParkedSQL = mineSQL + `, p as (
	delete from {parked} p using mine m cross join ` + parkedPlaceSQL + ` where p.ctid = w.place
	returning p.*, m.why, m.what, m.tries, m.attempt, m.ord
)
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives)
select p.relay, p.partition, {message}, p.why, p.what, p.tries, ` + rememberSQL + `, clock_timestamp(), p.redrives
from p cross join lateral (select ` + deadEntrySQL + ` as history) as excluded order by p.ord`

	deadEntrySQL = `case when p.what = '' then '[]'::jsonb else jsonb_build_array(jsonb_build_object(
		'attempt', p.attempt, 'at', clock_timestamp(), 'cause', p.what)) end`

	deadFromLogSQL = mineSQL + `
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives)
select $1::text, partition, {message}, m.why, m.what, m.tries, ` + entrySQL + `, clock_timestamp(), 0
from mine m cross join ` + inLogSQL + `
order by m.ord`
)

const (
	// chosenSQL is a deadletter.Filter: $1 numbers, $2 relay, $3 topic, $4 type, $5 key, $6 tenant, $7 reason, $8 message id,
	// $9 from, $10 to, $11 state, $12 part of the cause, $13 fingerprint, $14 redrive, $15 side.
	chosenSQL = `(cardinality($1::int8[]) = 0 or number = any($1::int8[])) and ($2::text = '' or relay = $2::text)
	and ($3::text = '' or topic = $3::text) and ($4::text = '' or type = $4::text) and ($5::text = '' or key = $5::text)
	and ($6::text = '' or tenant = $6::text) and ($7::text = '' or reason = $7::text) and ($8::text = '' or id = $8::text)
	and ($9::timestamptz is null or died_at >= $9::timestamptz) and ($10::timestamptz is null or died_at < $10::timestamptz)
	and ($11::text = 'any' or state = $11::text) and ($12::text = '' or strpos(cause, $12::text) > 0)
	and ($13::text = '' or fingerprint = $13::text) and ($14::int8 = 0 or redrive = $14::int8)
	and ($15::text = '' or ` + sideSQL + ` = $15::text)`

	// sideSQL: the cursors of a consumer are always at the end of the log.
	sideSQL = `case when relay in (select c.relay from {cursors} c where c.position = 9223372036854775806)
	then 'consumer' else 'relay' end`

	letterColumns = `number, relay, partition, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution, edits, redrive, ` + sideSQL + `, {message}`
	letterMessage = 16 // the column where the message begins

	// listDeadSQL reads one page: after number $16, $17 rows.
	listDeadSQL  = `select ` + letterColumns + ` from {dead} where ` + chosenSQL + ` and number > $16::int8 order by number limit $17::int8`
	countDeadSQL = `select count(*) from {dead} where ` + chosenSQL

	// pieceSQL selects dead letters to resolve: after $16, up to $17, redriven less often than $18 (negative: no limit).
	pieceSQL = chosenSQL + ` and number > $16::int8 and number <= $17::int8 and ($18::int4 < 0 or redrives < $18::int4)`

	// placesSQL returns their relays and partitions, with the count and the last number of each, for $19 dead letters at most.
	placesSQL = `
select relay, partition::int4, count(*), max(number)
from (select number, relay, partition from {dead} where ` + pieceSQL + ` order by number limit $19::int8) as d
group by relay, partition order by relay, partition`

	// lockDeadSQL locks them. Their leases are locked first, as in every decision about a held key: $19 relays and $20 partitions.
	lockDeadSQL = `
select number, redrives from {dead} where ` + pieceSQL + `
	and (relay, partition::int4) in (select * from unnest($19::text[], $20::int4[]))
order by number for update`

	// statesSQL is for the dead letters that a filter names: $1 numbers.
	statesSQL = `select number, state, resolved_by, redrives from {dead} where number = any($1::int8[]) order by number for update`

	// closeDeadSQL: $1 numbers, $2 state, $3 by, $4 resolution.
	closeDeadSQL = `update {dead} set state = $2::text, resolved_at = clock_timestamp(), resolved_by = $3::text,
	resolution = $4::text where number = any($1::int8[])`

	// lockKeysSQL keeps the keys of dead letters, $1 numbers, from being released while their messages are parked.
	lockKeysSQL = `select 1 from {held} h where (h.relay, h.key) in (select d.relay, d.key from {dead} d where d.number = any($1::int8[]))
order by h.relay, h.key for update`

	// letKeysGoSQL makes the keys due that were held until a decision about these dead letters: $1 numbers.
	letKeysGoSQL = `
update {held} h set next_attempt_at = clock_timestamp(), seq = coalesce(w.seq, h.seq), reason = coalesce(w.reason, h.reason),
	cause = '', attempts = coalesce(w.attempts, h.attempts)
from {dead} d left join lateral (
	select p.seq, p.reason, p.attempts from {parked} p
	where p.relay = d.relay and p.partition = d.partition and p.key = d.key and p.due_at is null order by p.seq limit 1
) as w on true
where d.number = any($1::int8[]) and h.relay = d.relay and h.key = d.key and h.seq = d.seq and h.next_attempt_at is null`
)

// defaultResolve is how many dead letters a call resolves without a limit.
const defaultResolve = 1000

func filterArgs(f deadletter.Filter, more ...any) []any {
	moment := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return append([]any{list(f.Numbers), f.Relay, f.Topic, f.Type, f.Key, f.Tenant, f.Reason, f.MessageID,
		moment(f.From), moment(f.To), string(cmp.Or(f.State, deadletter.Open)), f.Cause, f.Fingerprint, f.Redrive,
		string(f.Side)}, more...)
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Record, error] {
	return func(yield func(deadletter.Record, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			page, err := s.deadPage(ctx, f, after, size)
			if err != nil {
				yield(deadletter.Record{}, translate("list dead letters", err))
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

func (s *Store) deadPage(ctx context.Context, f deadletter.Filter, after int64, size int) ([]deadletter.Record, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.markCauses(ctx, f); err != nil {
		return nil, err
	}
	var page []deadletter.Record
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

func decodeLetter(d *decoder) (l deadletter.Record, err error) {
	for _, f := range []struct {
		column int
		set    func(int64)
	}{{0, func(v int64) { l.Number = v }}, {2, func(v int64) { l.Partition = int(v) }},
		{5, func(v int64) { l.Attempts = int(v) }}, {8, func(v int64) { l.Redrives = int(v) }},
		{13, func(v int64) { l.Edits = int(v) }}, {14, func(v int64) { l.Redrive = v }}} {
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
	l.Side = deadletter.Side(d.string(15))
	var unreadable error
	if l.Message, unreadable, err = d.message(letterMessage); unreadable != nil {
		l.Unreadable = unreadable.Error()
	}
	return l, err
}

// ShowDead implements deadletter.Store.
func (s *Store) ShowDead(ctx context.Context, number int64) (deadletter.Record, error) {
	page, err := s.deadPage(ctx, deadletter.Filter{Numbers: []int64{number}, State: deadletter.AnyState}, 0, 1)
	if err != nil {
		return deadletter.Record{}, translate("show dead letter", err)
	}
	if len(page) == 0 {
		return deadletter.Record{}, fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
	}
	return page[0], nil
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (int64, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	if err := s.markCauses(ctx, f); err != nil {
		return 0, translate("count dead letters", err)
	}
	var n int64
	err := s.pool.QueryRow(ctx, s.names.expand(countDeadSQL), filterArgs(f)...).Scan(&n)
	return n, translate("count dead letters", err)
}

// decisionSQL begins a transaction of an operator or a redrive. It locks leases, and so blocks settlements, over several round
// trips. If this process is paused or disconnected in between, the server ends its session after this time and settlements
// continue.
const decisionSQL = `begin isolation level read committed; set local idle_in_transaction_session_timeout = '5s'; select ` + formatSQL

func (s *Store) decision(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: decisionSQL}, f)
}

// DiscardDead implements deadletter.Store.
func (s *Store) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	by, reason = oneText(by, maxCause), oneText(reason, maxCause)
	f.MaxRedrives = deadletter.Unbounded
	n, err := s.resolve(ctx, f, limit, func(tx pgx.Tx, numbers []int64) error {
		_, err := tx.Exec(ctx, s.names.expand(closeDeadSQL), numbers, string(deadletter.Discarded), by, reason)
		return err
	})
	return n, translate("discard dead letters", err)
}

// resolve applies a function to the open dead letters that the filter selects and allows, in one transaction.
func (s *Store) resolve(ctx context.Context, f deadletter.Filter, limit int, apply func(tx pgx.Tx, numbers []int64) error) (int, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	if err := s.markCauses(ctx, f); err != nil {
		return 0, err
	}
	p := piece{
		filter: f, upTo: math.MaxInt64, limit: cmp.Or(limit, defaultResolve),
		bound: cmp.Or(f.MaxRedrives, deadletter.DefaultMaxRedrives), allNamed: len(f.Numbers) > 0,
	}
	n, err := retry(func() (n int, err error) {
		err = s.decision(ctx, func(tx pgx.Tx) error {
			n, err = s.resolvePiece(ctx, tx, p, apply)
			return err
		})
		return n, err
	})
	if n > 0 && err == nil {
		s.Wake()
	}
	return n, err
}

// resolvePiece goes on to the next piece if others resolved a whole piece just before it was locked.
func (s *Store) resolvePiece(ctx context.Context, tx pgx.Tx, p piece, apply func(tx pgx.Tx, numbers []int64) error) (int, error) {
	for {
		found, err := s.lockDead(ctx, tx, p)
		if err != nil || found.n == 0 {
			return 0, err
		}
		if len(found.letters) == 0 {
			p.after = found.last
			continue
		}
		numbers := make([]int64, len(found.letters))
		for i, l := range found.letters {
			numbers[i] = l.Number
		}
		return len(numbers), s.letGoAfter(ctx, tx, numbers, func() error { return apply(tx, numbers) })
	}
}

// letGoAfter locks the keys of dead letters, resolves the dead letters, and releases the keys that were held for them.
func (s *Store) letGoAfter(ctx context.Context, tx pgx.Tx, numbers []int64, resolve func() error) error {
	if _, err := tx.Exec(ctx, s.names.expand(lockKeysSQL), numbers); err != nil {
		return err
	}
	if err := resolve(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.names.expand(letKeysGoSQL), numbers)
	return err
}

// checkNamed refuses numbers that are not those of open dead letters, or whose messages were redriven too often.
func (s *Store) checkNamed(ctx context.Context, tx pgx.Tx, p piece) error {
	rows, err := tx.Query(ctx, s.names.expand(statesSQL), list(p.filter.Numbers))
	if err != nil {
		return err
	}
	open := make(map[int64]bool)
	var number int64
	var redrives int
	var state, by string
	_, err = pgx.ForEachRow(rows, []any{&number, &state, &by, &redrives}, func() error {
		if state != string(deadletter.Open) {
			return fmt.Errorf("%w: %d was %s by %s", deadletter.ErrResolved, number, state, by)
		}
		if p.bound >= 0 && redrives >= p.bound {
			return deadletter.RefuseTooOften(number, redrives)
		}
		open[number] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range p.filter.Numbers {
		if !open[n] {
			return fmt.Errorf("%w: %d", deadletter.ErrNotFound, n)
		}
	}
	return nil
}

// piece selects dead letters to resolve in one transaction.
type piece struct {
	filter      deadletter.Filter
	after, upTo int64 // number
	limit       int
	bound       int  // redriven less often than this; negative: no limit
	allNamed    bool // the dead letters that the filter names must all be open
}

func (p piece) args(more ...any) []any {
	f := p.filter
	f.State = deadletter.Open
	return filterArgs(f, append([]any{p.after, p.upTo, p.bound}, more...)...)
}

// lockedRecords are the dead letters of a piece.
type lockedRecords struct {
	// n were found, and last is the highest number among them; the list omits those that others have resolved since.
	n, last int64
	letters []deadletter.Candidate
}

// lockDead locks dead letters, and before them the leases of their partitions, so that no settlement runs in between.
func (s *Store) lockDead(ctx context.Context, tx pgx.Tx, p piece) (found lockedRecords, err error) {
	if state := p.filter.State; state != "" && state != deadletter.Open && state != deadletter.AnyState {
		return found, nil // none of these is open
	}
	if _, err := tx.Exec(ctx, s.names.expand(keepPartitionsSQL)); err != nil {
		return found, err
	}
	rows, err := tx.Query(ctx, s.names.expand(placesSQL), p.args(int64(p.limit))...)
	if err != nil {
		return found, err
	}
	relays, partitions := []string{}, []int32{}
	var relay string
	var partition int32
	var n, last int64
	if _, err = pgx.ForEachRow(rows, []any{&relay, &partition, &n, &last}, func() error {
		relays, partitions = append(relays, relay), append(partitions, partition)
		found.n, found.last = found.n+n, max(found.last, last)
		return nil
	}); err != nil {
		return found, err
	}
	for from := 0; from < len(relays); {
		to := from
		for to < len(relays) && relays[to] == relays[from] {
			to++
		}
		if _, err := tx.Exec(ctx, s.names.expand(lockLeaseSQL), relays[from], partitions[from:to]); err != nil {
			return found, err
		}
		from = to
	}
	if p.allNamed {
		if err := s.checkNamed(ctx, tx, p); err != nil {
			return found, err
		}
	}
	if found.n == 0 {
		return found, nil
	}
	p.upTo = found.last
	if rows, err = tx.Query(ctx, s.names.expand(lockDeadSQL), p.args(relays, partitions)...); err != nil {
		return found, err
	}
	found.letters, err = pgx.CollectRows(rows, pgx.RowToStructByPos[deadletter.Candidate])
	return found, err
}
