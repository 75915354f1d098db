package postgres

import (
	"github.com/postrider/postrider/internal/stored"
)

// Statements find rows of sagas in subqueries of their own, for each run, so that every plan is a lookup by index. One of the arrays of
// each is read by a subquery, too: the planner then does not see how many rows it has, and so uses one plan for all, while it
// would plan again for each short array, which takes longer than everything else.

// sagaNowSQL is the database's time in microseconds.
const sagaNowSQL = `(extract(epoch from clock_timestamp()) operator(pg_catalog.*) 1000000)::int8`

func micros(column string) string {
	return `(extract(epoch from ` + column + `) operator(pg_catalog.*) 1000000)::int8`
}

// The columns of instances and summaries, for stored.SagaRow; the table is s.
var (
	sagaColumns     = stored.SagaInstanceColumns(sagaNowSQL, micros)
	sagaSummarySQL  = `select ` + stored.SagaColumns(sagaNowSQL, micros) + ` from {sagas} s `
	sagaInstanceSQL = `select ` + sagaColumns + ` from {sagas} s `
)

// loadSagasSQL locks row by row in the order of the array, which is sorted, and returns what the transaction left that had locked
// the row before. $1 runs.
var loadSagasSQL = `
select ` + sagaColumns + `
from unnest((select $1::text[])) as r (run) cross join lateral (select * from {sagas} s where s.run = r.run offset 0 for update) as s
where ` + hexSQL

// findSagasSQL: arrays $1 ID, $2 saga, $3 key, $4 name and $5 value of an alias.
const findSagasSQL = `
select coalesce(case
	when l.id <> '' then (select s.run from {sagas} s where s.id = l.id)
	when l.key <> '' then (select s.run from {sagas} s where s.saga = l.saga and s.saga_key = l.key and s.holds_key)
	else (select a.run from {saga_aliases} a where a.saga = l.saga and a.name = l.name and a.value = l.value) end, '')
from unnest((select $1::text[]), $2::text[], $3::text[], $4::text[], $5::text[])
	with ordinality as l (id, saga, key, name, value, ord)
order by l.ord`

const (
	// changedArrays are $1 to $14, the columns of stored.SagaChanged.
	changedArrays = `(select $1::text[]), $2::text[], $3::bool[], $4::bool[], $5::text[], $6::text[],
	$7::text[], $8::int4[], $9::int4[], $10::int8[], $11::int8[], $12::text[], $13::bytea[],
	$14::bytea[]`

	// createSagasSQL inserts in the order of the arrays, which are sorted by ID. $15 to $27 are the columns of stored.SagaFixed. It
	// waits for other transactions that insert the same ID or key, and returns the runs that it inserted. Those have their first entry of
	// the history, of $28 to $36: the arrays of writeHistorySQL.
	createSagasSQL = `
with clock as materialized (select clock_timestamp() as now), created as (
insert into {sagas} (` + stored.SagaFixed + `, ` + stored.SagaChanged + `, holds_key, rev, started_at, updated_at, stuck_at)
select ` + stored.SagaFixed + `, ` + stored.SagaChanged + `, saga_key <> '', 1, clock.now, clock.now,
	case when status = 'stuck' then clock.now end
from clock cross join unnest(` + changedArrays + `, $15::text[], $16::text[], $17::text[], $18::text[], $19::int4[],
	$20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[],
	$27::text[]) as n (` + stored.SagaChanged + `, ` + stored.SagaFixed + `)
on conflict do nothing returning run
), written as (
insert into {saga_history} (` + historyColumns + `, at) select ` + historyColumns + `, clock.now
from clock cross join unnest((select $28::text[]), $29::int8[], $30::text[], $31::text[], $32::text[], $33::text[],
	$34::text[], $35::text[], $36::bytea[]) as h (` + historyColumns + `) join created using (run)
)
select run from created`

	// saveSagasSQL changes the instances of arrays $15 run and $16 revision, each of which must have the revision before its $17
	// transitions, and counts those that it changed. The rows are locked, so they stay where they are.
	saveSagasSQL = `
with saved as (
	update {sagas} s set (` + stored.SagaChanged + `) = (` + changedFromC + `),
		rev = c.rev, updated_at = clock_timestamp(), holds_key = s.holds_key and not w.ends,
		stuck_at = case when c.status = 'stuck' then coalesce(s.stuck_at, clock_timestamp()) end,
		ended_at = case when w.ends then coalesce(s.ended_at, clock_timestamp()) end,
		purge_from = case when c.status in ('completed', 'compensated') and s.parent_run = '' then coalesce(s.ended_at, clock_timestamp()) end
	from unnest(` + changedArrays + `, $15::text[], $16::int8[], $17::int4[])
		as c (` + stored.SagaChanged + `, run, rev, transitions)
	cross join lateral (select s.ctid as place, c.status in ('completed', 'compensated', 'abandoned') as ends
		from {sagas} s where s.run = c.run and s.rev = c.rev - c.transitions offset 0 for update) as w
	where s.ctid = w.place returning 1
)
select count(*) from saved`
	changedFromC = `c.status, c.direction, c.paused, c.past_pivot, c.cause, c.detail, c.waiting, c.obligations, c.released, c.deadline_us,
		c.timer_us, c.timer_id, c.state, c.data`

	// setSagaVersionSQL: $1 run, $2 version, $3 hash.
	setSagaVersionSQL = `
with changed as (update {sagas} set version = $2::int4, hash = $3::text where run = $1::text returning 1) select count(*) from changed`

	// writeHistorySQL: arrays $1 run, $2 rev, $3 input, $4 step, $5 message ID, $6 actor, $7 note, $8 entries, $9 patch.
	historyColumns  = `run, rev, input, step, message_id, actor, note, entries, patch`
	writeHistorySQL = `
insert into {saga_history} (` + historyColumns + `, at) select ` + historyColumns + `, clock_timestamp()
from unnest((select $1::text[]), $2::int8[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
	$8::text[], $9::bytea[]) as h (` + historyColumns + `)`

	// addAliasesSQL adds aliases, arrays $1 run, $2 name, $3 value, in sorted order; strangeAliasesSQL then counts those that
	// belong to another instance.
	aliasesSQL    = `unnest($1::text[], $2::text[], $3::text[]) as n (run, name, value) join {sagas} s on s.run = n.run`
	addAliasesSQL = `
insert into {saga_aliases} (saga, name, value, run) select s.saga, n.name, n.value, n.run from ` + aliasesSQL + `
order by s.saga, n.name, n.value on conflict do nothing`
	strangeAliasesSQL = `
select count(*) from ` + aliasesSQL + ` join {saga_aliases} a on a.saga = s.saga and a.name = n.name and a.value = n.value
where a.run <> n.run`

	// setLabelsSQL sets labels, arrays $1 run, $2 name, $3 value; dropLabelsSQL removes those without a value.
	labelsSQL    = `unnest($1::text[], $2::text[], $3::text[]) as n (run, name, value)`
	setLabelsSQL = `
insert into {saga_labels} (run, name, value) select n.run, n.name, n.value from ` + labelsSQL + ` where n.value <> ''
on conflict (run, name) do update set value = excluded.value`
	dropLabelsSQL = `delete from {saga_labels} l using ` + labelsSQL + ` where n.value = '' and l.run = n.run and l.name = n.name`
)

// existingSagasSQL returns, for each new instance, the one that has its run or ID, or holds its key: arrays $1 run, $2 ID, $3 saga,
// $4 key.
var existingSagasSQL = `
select n.run, ` + sagaColumns + `
from unnest((select $1::text[]), $2::text[], $3::text[], $4::text[]) as n (run, id, saga, key)
cross join lateral (
	select s.* from (
		select 1 as rank, x.run from {sagas} x where x.run = n.run
		union all select 2, x.run from {sagas} x where x.id = n.id
		union all select 3, x.run from {sagas} x where x.saga = n.saga and x.saga_key = n.key and x.holds_key
	) as found join {sagas} s on s.run = found.run order by found.rank limit 1
) as s where ` + hexSQL

// sagaStatements holds the statements of transactions with sagas, with table names filled in.
type sagaStatements struct {
	loadSagas, findSagas, createSagas, existingSagas, saveSagas, setSagaVersion, writeHistory string
	addAliases, strangeAliases, setLabels, dropLabels                                         string
	makeRecords, lockSaved, lockRecords, saveRecords, removeRecords, closeRuns                string
}

func newSagaStatements(n names) sagaStatements {
	return sagaStatements{
		loadSagas: n.expand(loadSagasSQL), findSagas: n.expand(findSagasSQL), createSagas: n.expand(createSagasSQL),
		existingSagas: n.expand(existingSagasSQL), saveSagas: n.expand(saveSagasSQL), setSagaVersion: n.expand(setSagaVersionSQL), writeHistory: n.expand(writeHistorySQL),
		addAliases: n.expand(addAliasesSQL), strangeAliases: n.expand(strangeAliasesSQL),
		setLabels: n.expand(setLabelsSQL), dropLabels: n.expand(dropLabelsSQL),
		makeRecords: n.expand(makeRecordsSQL), lockSaved: n.expand(lockSavedSQL), lockRecords: n.expand(lockRecordsSQL), saveRecords: n.expand(saveRecordsSQL),
		removeRecords: n.expand(removeRecordsSQL), closeRuns: n.expand(closeRunsSQL),
	}
}

// columnOf returns a column of several rows.
func columnOf[Row, T any](rows []Row, of func(r *Row) T) []T {
	values := make([]T, len(rows))
	for i := range rows {
		values[i] = of(&rows[i])
	}
	return values
}

// bytesOf is columnOf for bytes, of which none are null.
func bytesOf[Row any](rows []Row, of func(r *Row) []byte) [][]byte {
	return columnOf(rows, func(r *Row) []byte { return stored.Bytes(of(r)) })
}
