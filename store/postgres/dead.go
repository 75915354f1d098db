package postgres

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// The statements of a settlement that write dead letters. Their parameters are those of mineSQL.
const (
	deadFromParkedSQL = mineSQL + `, p as (
	delete from {parked} p using mine m cross join ` + parkedPlaceSQL + ` where p.ctid = w.place
	returning p.*, m.why, m.what, m.tries, m.attempt, m.name, m.ord
)
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives, state, resolved_by, resolution, resolved_at)
select p.relay, p.partition, {message}, p.why, p.what, p.tries, ` + rememberSQL + `, clock_timestamp(), p.redrives, ` + resolutionSQL + `
from p cross join lateral (select ` + deadEntrySQL + ` as history) as excluded order by p.ord`

	deadEntrySQL = `case when p.what = '' then '[]'::jsonb else jsonb_build_array(jsonb_build_object(
		'attempt', p.attempt, 'at', clock_timestamp(), 'cause', p.what)) end`

	// resolutionSQL: the name of an item is who has discarded the message, '' if it is open.
	resolutionSQL = `case when name = '' then 'open' else 'discarded' end, name, case when name = '' then '' else why end,
	case when name <> '' then clock_timestamp() end`

	deadFromLogSQL = mineSQL + `
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives, state, resolved_by, resolution, resolved_at)
select $1::text, partition, {message}, m.why, m.what, m.tries, ` + entrySQL + `, clock_timestamp(), 0, ` + resolutionSQL + `
from mine m cross join ` + inLogSQL + `
order by m.ord`
)

const (
	// chosenSQL is a store.DeadFilter: $1 numbers, $2 relay, $3 topic, $4 type, $5 key, $6 tenant, $7 reason, $8 message id,
	// $9 from, $10 to, $11 state, $12 part of the cause, $13 fingerprint, $14 redrive, $15 side.
	chosenSQL = `(cardinality($1::int8[]) = 0 or number = any($1::int8[])) and ($2::text = '' or relay = $2::text)
	and ($3::text = '' or topic = $3::text) and ($4::text = '' or type = $4::text) and ($5::text = '' or key = $5::text)
	and ($6::text = '' or tenant = $6::text) and ($7::text = '' or reason = $7::text) and ($8::text = '' or id = $8::text)
	and ($9::timestamptz is null or died_at >= $9::timestamptz) and ($10::timestamptz is null or died_at < $10::timestamptz)
	and ($11::text = 'any' or state = $11::text) and ($12::text = '' or strpos(cause, $12::text) > 0)
	and ($13::text = '' or fingerprint = $13::text) and ($14::int8 = 0 or redrive = $14::int8)
	and ($15::text = '' or ` + sideSQL + ` = $15::text)`

	sideSQL = `case when relay in (` + consumerNamesSQL + `) then 'consumer' else 'relay' end`

	deadColumns = `number, relay, partition, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution, edits, redrive, ` + sideSQL + `, {message}`
	deadMessageColumn = 16 // the column where the message begins

	// queriedSQL is a store.DeadQuery without its limit: after $16, up to $17.
	queriedSQL   = chosenSQL + ` and number > $16::int8 and number <= $17::int8`
	listDeadSQL  = `select ` + deadColumns + ` from {dead} where ` + queriedSQL + ` order by number limit $18::int8`
	countDeadSQL = `select count(*) from {dead} where ` + queriedSQL

	spanSQL       = `select count(*), coalesce(min(number), 0), coalesce(max(number), 0) from (select number from {dead} where ` + queriedSQL
	oldestSpanSQL = spanSQL + ` order by number limit $18::int8) as d`
	newestSpanSQL = spanSQL + ` order by number desc limit $18::int8) as d`

	// pieceSQL selects dead letters to resolve: redriven less often than $18 (negative: no limit).
	pieceSQL = queriedSQL + ` and ($18::int8 < 0 or redrives < $18::int8)`

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

	// namedSQL: $1 numbers.
	namedSQL = `select number, state, resolved_by, redrives from {dead} where number = any($1::int8[])`

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

func filterArgs(f store.DeadFilter, more ...any) []any {
	moment := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return append([]any{list(f.Numbers), f.Relay, f.Topic, f.Type, f.Key, f.Tenant, f.Reason, f.MessageID,
		moment(f.From), moment(f.To), string(cmp.Or(f.State, store.DeadOpen)), f.Cause, f.Fingerprint, f.Redrive,
		string(f.Side)}, more...)
}

// queryArgs are the parameters of a query.
func queryArgs(q store.DeadQuery, more ...any) []any {
	return filterArgs(q.DeadFilter, append([]any{q.After, cmp.Or(q.UpTo, math.MaxInt64)}, more...)...)
}

// DeadLetters implements store.Reader.
func (r records) DeadLetters(ctx context.Context, q store.DeadQuery) (out []store.DeadLetter, err error) {
	limit := int64(cmp.Or(q.Limit, math.MaxInt64))
	read := func(rows pgx.Rows) error {
		for d := newDecoder(rows); d.next(); {
			l, err := decodeDead(d)
			if err != nil {
				return err
			}
			out = append(out, l)
		}
		return rows.Err()
	}
	err = r.query(ctx, listDeadSQL, queryArgs(q, limit), read)
	if code(err) != insufficientPrivilege || r.tx != nil {
		return out, err
	}
	// An operator may have no right to read contents (Grants).
	err = r.query(ctx, strings.Replace(listDeadSQL, "{message}", withoutContent, 1), queryArgs(q, limit), read)
	for i := range out {
		out[i].Unreadable = notReadable
	}
	return out, err
}

// notReadable is said of messages that are shown without their contents.
const notReadable = "the database role may not read headers and payload"

// withoutContent are the messageColumns with empty headers and payload.
var withoutContent = strings.NewReplacer("headers", "'{}'::jsonb", "payload", "''::bytea").Replace(messageColumns)

// CountDead implements store.Reader.
func (r records) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	err = r.query(ctx, countDeadSQL, queryArgs(q), func(rows pgx.Rows) error {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		return err
	})
	return n, err
}

// SpanDead implements store.Reader.
func (r records) SpanDead(ctx context.Context, q store.DeadQuery, newest bool) (found store.DeadSpan, err error) {
	text := oldestSpanSQL
	if newest {
		text = newestSpanSQL
	}
	err = r.query(ctx, text, queryArgs(q, int64(cmp.Or(q.Limit, math.MaxInt64))), func(rows pgx.Rows) error {
		found, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[store.DeadSpan])
		return err
	})
	return found, err
}

func decodeDead(d *decoder) (l store.DeadLetter, err error) {
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
	l.State = store.DeadState(d.string(9))
	if l.ResolvedAt, err = d.time(10); err != nil {
		return l, err
	}
	l.ResolvedBy, l.Resolution = d.string(11), d.string(12)
	l.Side = store.Kind(d.string(15))
	var unreadable error
	if l.Message, unreadable, err = d.message(deadMessageColumn); unreadable != nil {
		l.Unreadable = unreadable.Error()
	}
	return l, err
}

// decisionSQL begins a transaction of an operator or a redrive, which waits for the disk. It locks leases, and so blocks
// settlements, over several round trips. If this process is paused or disconnected in between, the server ends its session after
// this time and settlements continue.
const decisionSQL = `begin isolation level read committed; set local idle_in_transaction_session_timeout = '5s'; select ` + formatSQL + `, ` + filterPlanSQL + `, ` + durableSQL

func (s *Store) decision(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: decisionSQL}, f)
}

// NamedDead implements store.Writer.
func (r records) NamedDead(ctx context.Context, numbers []int64) (out []store.NamedDead, err error) {
	err = r.query(ctx, namedSQL, []any{list(numbers)}, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.NamedDead])
		return err
	})
	return out, err
}

// places are the partitions of dead letters, by relay.
type places struct {
	relays     []string
	partitions []int32
}

// LockDead implements store.Writer.
func (r records) LockDead(ctx context.Context, q store.DeadQuery, below int) (found store.LockedDead, err error) {
	at := places{relays: []string{}, partitions: []int32{}}
	var relay string
	var partition int32
	var n, last, all int64
	limit := int64(cmp.Or(q.Limit, math.MaxInt64))
	err = r.query(ctx, placesSQL, queryArgs(q, below, limit), func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&relay, &partition, &n, &last}, func() error {
			at.relays, at.partitions = append(at.relays, relay), append(at.partitions, partition)
			all, found.Last = all+n, max(found.Last, last)
			return nil
		})
		return err
	})
	if err != nil || all == 0 {
		return found, err
	}
	if err := r.lockLeases(ctx, at); err != nil {
		return found, err
	}
	found.More, q.UpTo = all == limit, found.Last
	err = r.query(ctx, lockDeadSQL, queryArgs(q, below, at.relays, at.partitions), func(rows pgx.Rows) error {
		found.Open, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.OpenDead])
		return err
	})
	return found, err
}

// lockLeases locks the leases of partitions, so that no settlement of theirs runs.
func (r records) lockLeases(ctx context.Context, at places) error {
	for from := 0; from < len(at.relays); {
		to := from
		for to < len(at.relays) && at.relays[to] == at.relays[from] {
			to++
		}
		if err := r.exec(ctx, lockLeaseSQL, at.relays[from], at.partitions[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// Resolve implements store.Writer.
func (r records) Resolve(ctx context.Context, numbers []int64, how store.Resolution) error {
	if err := r.exec(ctx, lockKeysSQL, numbers); err != nil {
		return err
	}
	if how.State == store.DeadRedriven {
		if err := r.exec(ctx, sentBackSQL, numbers, how.By, how.Redrive); err != nil {
			return err
		}
		if err := r.exec(ctx, redriveSQL, numbers, how.By); err != nil {
			return err
		}
	} else if err := r.exec(ctx, closeDeadSQL, numbers, string(how.State), how.By, how.Reason); err != nil {
		return err
	}
	return r.exec(ctx, letKeysGoSQL, numbers)
}
