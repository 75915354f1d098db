package postgres

// planSQL precedes a fetch, in the same round trip and for its transaction only. The desired plan is known and does not depend on
// the parameters: index scans, planned once. Left alone, the planner compiles the statement (JIT) because a log is large, or
// scans a segment that was empty at planning time.
const planSQL = `select ` + formatSQL + `, pg_catalog.set_config('jit', 'off', true),
	pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('enable_seqscan', 'off', true),
	pg_catalog.set_config('enable_bitmapscan', 'off', true)`

// fetchSQL returns a header (kind 0), late rows (kind 1) and fresh rows (kind 2), all under the one snapshot of the statement.
// The package comment explains why nothing is skipped.
//
// Parameters:
//
//   - $1 partitions and $2 positions, for fresh rows;
//   - $3 limit, of late rows per group and of fresh rows per partition;
//   - for late rows, groups of partitions with the same snapshot: $4 snapshot, $5 upTo, $6 page, $7 positions as an array by
//     partition (null: not in the group), $8 the ids between the snapshot's xmax and the ceiling, or $9 the ceiling if they are
//     too many to list, $10 the largest position.
//
// The header's seq is how many transaction ids were assigned beyond its snapshot. It is computed while the statement runs, so it
// is read after the snapshot was taken. With Config.DeliverAfterFlush, the header's topic is {unflushed}.
//
// Late rows of a transaction are found by the index (xid, seq); the index is not read for transactions that are still running.
// Transactions between the snapshot's xmax and the ceiling were running too; usually they are few and are listed like the others.
// If they are too many (savepoints take ids as well), they are a range of the index, and its rows are sorted for each page. The
// ceiling is never null, so it always bounds the range. In this branch seq is compared as seq + 0, which no index serves:
// otherwise a plan made when a segment had just been vacuumed empty could choose the index (partition, seq), which was then just
// as good, and would keep reading all of that index once the segment is full.
const fetchSQL = `
select 0::int2 as kind, 0::int2 as partition, age(pg_snapshot_xmax(pg_current_snapshot())::xid)::int8 as seq,
	pg_current_snapshot()::text as id, {unflushed}::text as topic, null::text as key, null::text as type, null::text as source,
	null::text as subject, null::text as tenant, null::timestamptz as message_time, null::int4 as schema_version,
	null::int8 as aggregate_version, null::text as content_type, null::jsonb as headers, null::text as correlation_id,
	null::text as causation_id, null::bytea as payload, null::timestamptz as available_at, clock_timestamp() as created_at
union all
select 1::int2, late.* from (
	select snapshot::pg_snapshot, coalesce(nullif(upto, '')::pg_snapshot, pg_current_snapshot()) as upto, page,
		positions::int8[], listed::xid8[], coalesce(nullif(ceiling, ''), '18446744073709551615')::xid8 as ceiling, last
	from unnest($4::text[], $5::text[], $6::int8[], $7::text[], $8::text[], $9::text[], $10::int8[])
		as g (snapshot, upto, page, positions, listed, ceiling, last)
) as g cross join lateral (
	select * from (
		(select r.* from (select pg_snapshot_xip(g.snapshot) as x union all select unnest(g.listed)) as t cross join lateral (
			select partition, {message} from {log} l
			where l.xid = t.x and l.seq > g.page and l.seq <= g.last and l.seq <= g.positions[l.partition + 1]
			order by l.seq limit $3::int8) as r
		where pg_visible_in_snapshot(t.x, g.upto))
		union all
		(select partition, {message} from {log} l
		where l.xid >= pg_snapshot_xmax(g.snapshot) and l.xid < g.ceiling
			and l.seq + 0 > g.page and l.seq + 0 <= g.positions[l.partition + 1]
			and pg_visible_in_snapshot(l.xid, g.upto)
		order by l.seq limit $3::int8)
	) as l order by seq limit $3::int8
) as late
union all
select 2::int2, fresh.* from unnest($1::int2[], $2::int8[]) as f (partition, position) cross join lateral (
	select l.partition, {message} from {log} l
	where l.partition = f.partition and l.seq > f.position order by l.seq limit $3::int8
) as fresh`

const (
	kindHeader = 0
	kindLate   = 1
	kindFresh  = 2
)
