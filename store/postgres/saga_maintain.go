package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaMaintenance = (*Store)(nil)

const (
	// newRecordsSQL: arrays $1 kind, $2 id, $3 body.
	newRecordsSQL = `
insert into {records} (kind, id, body) select kind, id, body from unnest($1::text[], $2::text[], $3::bytea[]) as n (kind, id, body)
order by kind, id on conflict do nothing`
	expireRecordsSQL = `delete from {records} where kind = $1::text and expires_at < clock_timestamp()`
	// putRecordSQL: $1 kind, $2 id, $3 body, $4 how long it is kept in microseconds.
	putRecordSQL = `
insert into {records} as r (kind, id, body, expires_at)
values ($1::text, $2::text, $3::bytea, clock_timestamp() + $4::float8 * interval '1 microsecond')
on conflict (kind, id) do update set rev = r.rev + 1, at = clock_timestamp(), body = excluded.body, expires_at = excluded.expires_at`
	liveRecordsSQL = `
select kind, id, (extract(epoch from at) operator(pg_catalog.*) 1000000)::int8, body, (extract(epoch from clock_timestamp()) operator(pg_catalog.*) 1000000)::int8 from {records}
where kind in ($1::text, $2::text) and (expires_at is null or expires_at >= clock_timestamp())`
)

// ReportSagas implements store.SagaMaintenance.
func (s *Store) ReportSagas(ctx context.Context, engine, process string, definitions []store.SagaDefinition, ttl time.Duration) error {
	documents, err := stored.SagaReport(engine, process, definitions)
	if err != nil {
		return err
	}
	last := len(documents) - 1
	known, report := documents[:last], documents[last]
	queries := []query{{sql: expireRecordsSQL, args: []any{stored.KindReport}}}
	if len(known) == 0 {
		queries = append(queries, query{sql: inTable(removeRecordSQL, store.WorkRecords), args: []any{report.Kind, report.ID}})
	} else {
		queries = append(queries, query{sql: newRecordsSQL, args: []any{
			columnOf(known, func(d *stored.Document) string { return d.Kind }), columnOf(known, func(d *stored.Document) string { return d.ID }),
			bytesOf(known, func(d *stored.Document) []byte { return d.Body }),
		}}, query{sql: putRecordSQL, args: []any{report.Kind, report.ID, report.Body, ttl.Microseconds()}})
	}
	_, err = retry(func() (struct{}, error) {
		return struct{}{}, s.readSagas(ctx, "report definitions of sagas", slices.Clone(queries)...)
	})
	return err
}

// SagaDefinitions implements store.SagaReader.
func (s *Store) SagaDefinitions(ctx context.Context) ([]store.SagaDefinition, error) {
	var documents []stored.Document
	var now int64
	err := s.readSagas(ctx, "read definitions of sagas", query{
		sql: liveRecordsSQL, args: []any{stored.KindDefinition, stored.KindReport},
		row: func(scan func(dest ...any) error) error {
			var d stored.Document
			err := scan(&d.Kind, &d.ID, &d.At, &d.Body, &now)
			documents = append(documents, d)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return stored.SagaDefinitions(documents, now)
}

const (
	// lockOldSagasSQL locks the instances to purge: those of the engine $3 that ended $1 microseconds ago or before, $2 at
	// most. It leaves out those
	// that others have locked, and those that have started one that must be kept.
	lockOldSagasSQL = `
select r.run from {sagas} r where r.engine = $3 and r.purge_from <= clock_timestamp() - $1::float8 * interval '1 microsecond' and not exists (
	with recursive family as (
		select c.run, c.status from {sagas} c where c.parent_run = r.run and c.parent_run <> ''
		union all select c.run, c.status from family f join {sagas} c on c.parent_run = f.run and c.parent_run <> '')
	select from family where status not in ('completed', 'compensated'))
order by r.purge_from limit $2::int8 for update of r skip locked`

	// lockFamiliesSQL locks what the instances $1 have started, directly or not. Each row has the first of them, the run and whether
	// it is locked and may still be purged.
	familiesSQL = `
with recursive family as (
	select n.run as root, c.run from unnest($1::text[]) as n (run) join {sagas} c on c.parent_run = n.run and c.parent_run <> ''
	union all select f.root, c.run from family f join {sagas} c on c.parent_run = f.run and c.parent_run <> '')
select root, run from family`
	lockRunsSQL = `
select s.run from {sagas} s where s.run = any($1::text[]) and s.status in ('completed', 'compensated')
order by s.run for update skip locked`

	purgeRunsSQL = `
with runs as materialized (select unnest($1::text[]) as run),
	h as (delete from {saga_history} h using runs where h.run = runs.run),
	a as (delete from {saga_aliases} a using runs where a.run = runs.run),
	l as (delete from {saga_labels} l using runs where l.run = runs.run)
delete from {sagas} s using runs where s.run = runs.run`
)

// PurgeSagas implements store.SagaMaintenance.
func (s *Store) PurgeSagas(ctx context.Context, engine string, endedFor time.Duration, limit int) (int, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	n, err := retry(func() (int, error) {
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
		n, err := s.purgeIn(ctx, pgxCaller{tx}, engine, endedFor, limit)
		if err != nil || n == 0 {
			return 0, err
		}
		return n, tx.Commit(ctx)
	})
	return n, translate("purge sagas", err)
}

// purgeIn removes instances. A root whose children cannot all be locked stays, with all of them.
func (s *Store) purgeIn(ctx context.Context, c caller, engine string, endedFor time.Duration, limit int) (int, error) {
	var roots, locked []string
	expand := s.names.expand
	err := c.call(ctx, query{sql: readCommittedSQL}, query{sql: settlePlanSQL},
		query{sql: expand(lockOldSagasSQL), args: []any{endedFor.Microseconds(), int64(limit), engine}, row: text(&roots)})
	if err != nil || len(roots) == 0 {
		return 0, err
	}
	children := make(map[string][]string)
	var all []string
	err = c.call(ctx, query{sql: expand(familiesSQL), args: []any{array(roots, quoted)}, row: func(scan func(dest ...any) error) error {
		var root, run string
		err := scan(&root, &run)
		children[root], all = append(children[root], run), append(all, run)
		return err
	}})
	if err == nil && len(all) > 0 {
		err = c.call(ctx, query{sql: expand(lockRunsSQL), args: []any{array(all, quoted)}, row: text(&locked)})
	}
	if err != nil {
		return 0, err
	}
	free := set(locked)
	roots = slices.DeleteFunc(roots, func(root string) bool {
		return slices.ContainsFunc(children[root], func(run string) bool { return !free[run] })
	})
	runs := slices.Clone(roots)
	for _, root := range roots {
		runs = append(runs, children[root]...)
	}
	return len(roots), c.call(ctx, query{sql: expand(purgeRunsSQL), args: []any{array(runs, quoted)}})
}

// purgeRecordsSQL removes records, and counts those that it removed and those that it keeps: $1 age in microseconds, $2 limit, $3
// participant. One that is done and whose run is not closed is kept, and has no purge_from until then, so that it is not looked at again.
// The index of purge_from serves it: the other one would read all records of the participant.
const purgeRecordsSQL = `
with old as materialized (
	select ctid as place, closed or state <> 'done' as useless from {saga_records}
	where purge_from <= clock_timestamp() - $1::float8 * interval '1 microsecond'
	and participant || '' = $3::text order by purge_from limit $2::int8 for update skip locked
), gone as (
	delete from {saga_records} where ctid = any(array(select place from old where useless)) returning 1
), kept as (
	update {saga_records} set purge_from = null where ctid = any(array(select place from old where not useless)) returning 1
)
select (select count(*) from gone), (select count(*) from kept)`

// PurgeSagaRecords implements store.SagaMaintenance. If a crash loses the removal, it is repeated.
func (s *Store) PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (n int, err error) {
	for kept := 1; err == nil && kept > 0 && n < limit; {
		err = s.readSagas(ctx, "purge records of sagas", query{sql: settlePlanSQL}, query{
			sql: purgeRecordsSQL, args: []any{savedFor.Microseconds(), int64(limit - n), participant},
			row: func(scan func(dest ...any) error) error {
				var removed int
				err := scan(&removed, &kept)
				n += removed
				return err
			},
		})
	}
	return n, err
}
