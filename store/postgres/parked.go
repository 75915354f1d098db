package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// The statements of a settlement that work on parked messages. Their parameters are those of mineSQL.
const (
	// parkedPlaceSQL is the place (ctid) of an item's parked row. Nothing moves the row meanwhile, but a consumer may delete it.
	parkedPlaceSQL = `lateral (select p.ctid as place from {parked} p
	where p.relay = $1::text and p.partition = m.part and p.seq = m.number offset 0) as w`
	// itemInLogSQL finds the log row of an item. The order by makes the planner use the index by partition and sequence; for a
	// single row of an empty segment the other indexes would do as well, and the plan would be kept once the segment is full.
	itemInLogSQL = `from {log} l where l.partition = m.part and l.seq between m.number and m.number order by l.seq limit 1`
	inLogSQL     = `lateral (select partition, ` + copiedColumns + ` ` + itemInLogSQL + `) as l`

	// copiedColumns are messageColumns of a row of the log, with stand-ins for an ID or key that no index takes. Only a program that
	// writes rows itself can write such a row. A message that is too long for its rules is dead-lettered, without a key if that is
	// too long. The header keeps what the stand-ins replace, as in package inbox.
	copiedColumns = `seq, case when octet_length(id) <= 64 then id else left(id, 7) || '~' || md5(id) end as id, topic,
	case when octet_length(key) <= 256 then key else '' end as key, type, source, subject, tenant, message_time, schema_version,
	aggregate_version, content_type, case
		when octet_length(id) <= 64 and octet_length(key) <= 256 or jsonb_typeof(headers) <> 'object' then headers
		else headers || jsonb_build_object('` + stored.OriginalHeader + `',
			jsonb_build_object('id', to_json(id)::text, 'key', to_json(key)::text)::text) end as headers,
	correlation_id, causation_id, payload, available_at, created_at`

	// missingSQL finds items that are not in the log.
	missingSQL = mineSQL + `
select m.number from mine m where (select l.seq ` + itemInLogSQL + `) is null`

	parkFromLogSQL = mineSQL + `
insert into {parked} (relay, partition, {message}, reason, due_at, attempts, history, parked_at)
select $1::text, partition, {message}, m.why,
	case when m.after >= 0 then clock_timestamp() + m.after::float8 * interval '1 microsecond' end, m.tries, ` + entrySQL + `,
	clock_timestamp()
from mine m cross join ` + inLogSQL + `
order by m.ord`

	parkAgainSQL = mineSQL + `
update {parked} p set reason = excluded.why, attempts = excluded.tries, history = ` + rememberSQL + `,
	due_at = case when excluded.after >= 0 then clock_timestamp() + excluded.after::float8 * interval '1 microsecond' end
from (select m.*, w.place, ` + entrySQL + ` as history from mine m cross join ` + parkedPlaceSQL + `) as excluded
where p.ctid = excluded.place`

	removedSQL = mineSQL + `
delete from {parked} p using mine m cross join ` + parkedPlaceSQL + ` where p.ctid = w.place`

	// entrySQL is an item's history entry, in an array that is empty if the item has no cause.
	entrySQL = `case when m.what = '' then '[]'::jsonb else jsonb_build_array(jsonb_build_object(
		'attempt', m.attempt, 'at', clock_timestamp(), 'cause', m.what)) end`

	// rememberSQL adds the entry excluded.history to p.history and keeps the last 20. It skips an entry without an attempt that
	// repeats the cause of the last entry: a message may be put off often.
	rememberSQL = `case
		when excluded.history = '[]' or (excluded.history -> 0 ->> 'attempt'::text) = '0'
			and (p.history -> -1) - 'at'::text = (excluded.history -> 0) - 'at'::text then p.history
		when jsonb_array_length(p.history) >= 20 then (p.history - 0) || excluded.history
		else p.history || excluded.history end`
)

// parkedStateSQL: $1 relay, $2 partitions, $3 held keys of each. A row has a key or a sequence; a consumer has no sequences. Of the rows
// at or before the position, only those late to the cursor are looked up, by the index (xid, seq): see fetchSQL.
const parkedStateSQL = `
with at as materialized (
	select a.partition, coalesce(c.position, 0) as position, c.snapshot, c.ceiling, c.page,
		not exists (select from {relay_partitions} g
			where g.relay = $1::text and g.partition = a.partition and ` + kindSQL + ` = 'consumer') as reads
	from unnest($2::int2[]) as a (partition) left join lateral (
		select c.position, c.snapshot, coalesce(c.ceiling, '18446744073709551615'::xid8) as ceiling, coalesce(c.page, 0) as page
		from {cursors} c where c.relay = $1::text and c.partition = a.partition order by c.n desc limit 1) as c on true
)
select a.partition::int4, h.key, null::int8 as seq from at a cross join lateral (
	select key from {held} h where h.relay = $1::text and h.partition = a.partition order by key limit $3::int8) as h
union all
(select a.partition::int4, null, p.seq from at a cross join lateral (
	select seq from {parked} p where p.relay = $1::text and p.partition = a.partition and p.seq > a.position offset 0) as p
where a.reads
union
select a.partition::int4, null, d.seq from at a cross join lateral (
	select seq from {dead} d where d.relay = $1::text and d.partition = a.partition and d.seq > a.position offset 0) as d
where a.reads
union
select c.partition::int4, null, late.seq from at c cross join lateral (
	select l.seq from (select pg_snapshot_xip(c.snapshot) as x) as t cross join lateral (
		select seq from {log} l where l.xid = t.x and l.seq > c.page and l.seq <= c.position and l.partition + 0 = c.partition
		offset 0) as l
	union all
	select l.seq from {log} l where l.xid >= pg_snapshot_xmax(c.snapshot) and l.xid < c.ceiling
		and l.seq + 0 > c.page and l.seq + 0 <= c.position and l.partition + 0 = c.partition
) as late
where c.position > 0 and c.reads and (
	exists (select 1 from {parked} p where p.relay = $1::text and p.partition = c.partition and p.seq = late.seq offset 0)
	or exists (select 1 from {dead} d where d.relay = $1::text and d.partition = c.partition and d.seq = late.seq offset 0)))
order by 1, 2, 3`

func readParkedState(rows pgx.Rows, of func(partition int) *store.ParkedState) error {
	var partition int
	var key *string
	var seq *int64
	_, err := pgx.ForEachRow(rows, []any{&partition, &key, &seq}, func() error {
		out := of(partition)
		if key != nil {
			out.Keys = append(out.Keys, *key)
		} else {
			out.Sequences = append(out.Sequences, *seq)
		}
		return nil
	})
	return err
}

// dueSQL: $1 relay, $2 partitions and $3 tokens of leases (only leases that hold count), $4 busy keys, $5 busy sequences, $6 the
// number of runs wanted plus one, $7 length of a run, $8 From of the request or null, $9 store.DueLag in microseconds. The first row has
// partition -1 and no key; its due_at is the next time at which something becomes due, and its message_time the From of the result. Every
// run begins with a row of its own (ord 0, no message), so that an empty run is visible.
//
// While a transaction is open, the index entries of rows that were removed since it began stay, and a scan looks up each of them. So one
// scan goes over them, from $8 on, to the first row that is still there, and the other begins at that.
const dueSQL = `
with clock as materialized (select clock_timestamp() as now), holding as materialized (
	select coalesce(array_agg(h.partition::int2), '{}') as partitions from (` + holdingSQL + `) as h
), began as materialized (
	select least(now - $9::float8 * interval '1 microsecond',
		(select min(next_attempt_at) from {held} where relay = $1::text and partition = any((select partitions from holding)::int2[])
			and next_attempt_at >= coalesce($8::timestamptz, '-infinity')),
		(select min(due_at) from {parked} where relay = $1::text and partition = any((select partitions from holding)::int2[])
			and due_at >= coalesce($8::timestamptz, '-infinity'))) as at
	from clock
), due as materialized (
	select d.*, row_number() over (order by d.at, d.seq) as run from (
		select h.* from clock cross join began cross join lateral (
			select partition, seq, key, true as whole, next_attempt_at as at from {held}
			where relay = $1::text and partition = any((select partitions from holding)::int2[]) and next_attempt_at >= began.at
				and next_attempt_at <= now and key <> all($4::text[])
			order by next_attempt_at, seq limit $6::int8) as h
		union all
		select p.* from clock cross join began cross join lateral (
			select partition, seq, '', false, due_at from {parked}
			where relay = $1::text and partition = any((select partitions from holding)::int2[]) and due_at >= began.at
				and due_at <= now and seq <> all($5::int8[])
			order by due_at, seq limit $6::int8) as p
	) as d order by d.at, d.seq limit $6::int8
)
select 0::int8 as run, 0::int2 as ord, -1::int2 as partition, ''::text as held, null::text as reason, 0::int4 as attempts,
	least((select min(next_attempt_at) from {held} where relay = $1::text and partition = any((select partitions from holding)::int2[])
			and next_attempt_at > now),
		(select min(due_at) from {parked} where relay = $1::text and partition = any((select partitions from holding)::int2[]) and due_at > now)) as due_at,
	now as parked_at, 0::int4 as redrives, null::int8 as seq, null::text as id, null::text as topic, null::text as key, null::text as type,
	null::text as source, null::text as subject, null::text as tenant, (select at from began) as message_time,
	null::int4 as schema_version, null::int8 as aggregate_version, null::text as content_type, null::jsonb as headers,
	null::text as correlation_id, null::text as causation_id, null::bytea as payload, null::timestamptz as available_at,
	null::timestamptz as created_at
from clock
union all
select run, 0, partition, key, null, 0, null, null, 0, seq, null, null, null, null, null, null, null, null, null, null, null, null,
	null, null, null, null, null
from due
union all
select d.run, 1, d.partition, d.key, p.* from due d cross join lateral (
	(select reason, attempts, due_at, parked_at, redrives, {message} from {parked} p
	where d.whole and p.relay = $1::text and p.partition = d.partition and p.key = d.key and p.due_at is null
	order by p.seq limit $7::int8)
	union all
	(select reason, attempts, due_at, parked_at, redrives, {message} from {parked} p
	where not d.whole and p.relay = $1::text and p.partition = d.partition and p.seq = d.seq)
) as p
order by run, ord, seq`

// Due implements store.Log.
func (s *Store) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	if _, err := s.open(ctx); err != nil {
		return store.DueResult{}, err
	}
	args := dueArgs(name, req)
	results, err := implicit(ctx, s.pool, planSQL, func(b *pgx.Batch) {
		b.Queue(s.sql.holding, args[:3]...)
		b.Queue(s.sql.openDecisions, args[:3]...)
		b.Queue(s.sql.due, args...)
	})
	if err != nil {
		return store.DueResult{}, translate("due", err)
	}
	out, err := readDue(results, req)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return out, translate("due", err)
}

// dueArgs returns the parameters of dueSQL. The first three are those of a statement about the leases.
func dueArgs(name string, req store.DueRequest) []any {
	partitions, tokens := leaseArgs(req.Leases)
	return []any{name, partitions, tokens, list(req.BusyKeys), list(req.BusySequences), int64(req.Runs) + 1, int64(req.RunLength),
		orNull(req.From), store.DueLag.Microseconds()}
}

func readDue(results pgx.BatchResults, req store.DueRequest) (store.DueResult, error) {
	holding, err := readHolding(results)
	if err != nil {
		return store.DueResult{}, err
	}
	rows, err := results.Query()
	if err != nil {
		return store.DueResult{}, err
	}
	decisions, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return store.DueResult{}, err
	}
	if rows, err = results.Query(); err != nil {
		return store.DueResult{}, err
	}
	defer rows.Close()
	r := dueReader{req: req, decoder: newDecoder(rows), out: store.DueResult{Next: -1, Decisions: decisions, Lost: lost(req.Leases, holding)}}
	err = r.read()
	return r.out, err
}

// dueReader assembles the rows of dueSQL into runs.
type dueReader struct {
	req     store.DueRequest
	decoder *decoder
	out     store.DueResult
	now     time.Time
	bytes   int
	records int
	// open reports whether the last run of out may take more records.
	open bool
}

const (
	dueMessage = 9              // the column of dueSQL where the message begins
	dueFrom    = dueMessage + 8 // message_time
)

func (r *dueReader) read() error {
	d := r.decoder
	var wanted int // records of the current run seen so far
	for d.next() {
		run, err := d.int(0)
		if err != nil {
			return err
		}
		kind, err := d.int(1)
		if err != nil {
			return err
		}
		switch {
		case run == 0:
			err = r.header()
		case kind == 0:
			if r.out.More = r.out.More || int(run) > r.req.Runs; !r.out.More {
				err, wanted = r.begin(), 0
			}
		case !r.out.More:
			wanted++
			err = r.record(wanted == 1)
		}
		if err != nil {
			return err
		}
	}
	if r.now.IsZero() && d.rows.Err() == nil {
		return errors.New("the result has no header")
	}
	if r.out.More {
		r.out.Next = 0
	}
	return d.rows.Err()
}

func (r *dueReader) header() (err error) {
	if r.now, err = r.decoder.time(7); err != nil {
		return err
	}
	if r.out.From, err = r.decoder.time(dueFrom); err != nil {
		return err
	}
	next, err := r.decoder.time(6)
	if err == nil && !next.IsZero() {
		r.out.Next = next.Sub(r.now)
	}
	return err
}

func (r *dueReader) begin() error {
	partition, err := r.decoder.int(2)
	r.out.Runs = append(r.out.Runs, store.ParkedRun{Partition: int(partition), Key: r.decoder.string(3)})
	r.open = true
	return err
}

func (r *dueReader) record(first bool) error {
	if !r.open {
		return nil
	}
	d := r.decoder
	size := d.size(dueMessage)
	if r.records > 0 && r.bytes+size > r.req.MaxBytes {
		r.open = false
		if first { // a run without records would mean that none are left
			r.out.Runs = r.out.Runs[:len(r.out.Runs)-1]
			r.out.More = true
		}
		return nil
	}
	r.records++
	r.bytes += size
	rec, err := r.decode()
	if err != nil {
		return err
	}
	run := &r.out.Runs[len(r.out.Runs)-1]
	run.Entries = append(run.Entries, rec)
	return nil
}

func (r *dueReader) decode() (store.Entry, error) {
	d := r.decoder
	attempts, err := d.int(5)
	if err != nil {
		return store.Entry{}, err
	}
	due, err := d.time(6)
	if err != nil {
		return store.Entry{}, err
	}
	parked, err := d.time(7)
	if err != nil {
		return store.Entry{}, err
	}
	redrives, err := d.int(8)
	if err != nil {
		return store.Entry{}, err
	}
	m, fault, err := d.message(dueMessage)
	if err != nil {
		return store.Entry{}, err
	}
	if m.DeliverAt.After(parked) {
		parked = m.DeliverAt
	}
	rec := store.Entry{Message: m, Err: fault, Attempts: int(attempts), Redrives: int(redrives),
		Reason: store.ParkReason(d.string(4)), ParkedFor: max(0, r.now.Sub(parked))}
	if !due.IsZero() {
		rec.Delay = due.Sub(r.now)
	}
	return rec, err
}
