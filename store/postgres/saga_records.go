package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// stepsSQL are steps of participant $1, arrays $2 run and $3 step, in the order of locking.
	stepsSQL = `unnest((select $2::text[]), $3::text[]) with ordinality as n (run, step, ord)`

	// saveRecordsSQL: $1 participant, arrays $2 run, $3 step, $4 state, $5 type of command, $6 command, $7 type of reply, $8 reply, $9
	// first sent, $10 schema version. It counts the rows, which are locked, so they stay where they are. A new one keeps its purge_from, so
	// that no index changes; old programs lock one without. A long command or reply that is as it was is not written again.
	saveRecordsSQL = `
with saved as (
	update {saga_records} r set state = n.state, command_type = n.command_type, command = case when r.command = n.command then r.command else n.command end,
		reply_type = n.reply_type, reply = case when r.reply = n.reply then r.reply else n.reply end, first_sent_at = n.first_sent_at,
		schema_version = n.schema_version, saved_at = clock_timestamp(),
		purge_from = case when r.state = '' and r.purge_from is not null then r.purge_from else clock_timestamp() end
	from unnest((select $2::text[]), $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::bytea[],
		$9::timestamptz[], $10::int4[]) as n (run, step, state, command_type, command, reply_type, reply, first_sent_at, schema_version)
	cross join lateral (select r.ctid as place from {saga_records} r
		where r.participant = $1::text and r.run = n.run and r.step = n.step offset 0) as w
	where r.ctid = w.place returning 1
)
select count(*) from saved`

	removeRecordsSQL = `
delete from {saga_records} r using ` + stepsSQL + ` where r.participant = $1::text and r.run = n.run and r.step = n.step`

	// closeRunsSQL: $1 participant, $2 runs. A row that is only a lock is removed by the transaction that has locked it. No index
	// changes, unless the purge has looked at the record before.
	closeRunsSQL = `
update {saga_records} r set closed = true, purge_from = coalesce(r.purge_from, r.saved_at) from unnest((select $2::text[])) as n (run)
where r.participant = $1::text and r.run = n.run and not r.closed and r.state <> ''`
)

// recordColumns are those of stored.Record, and the database's time; the table is r.
var recordColumns = `r.run, r.step, r.state, r.command_type, r.command, r.reply_type, r.reply, coalesce(` + micros(`r.first_sent_at`) + `, 0),
	` + micros(`r.saved_at`) + `, r.closed, r.schema_version, ` + sagaNowSQL

var (
	// makeRecordsSQL makes rows to lock, and returns them. A row is at once in the index of purge_from, which is the only one beside the
	// primary key, so that neither saving nor closing its record changes an index.
	makeRecordsSQL = `
insert into {saga_records} as r (participant, run, step, purge_from) select $1::text, n.run, n.step, clock_timestamp()
from ` + stepsSQL + ` where ` + hexSQL + ` on conflict do nothing returning ` + recordColumns

	// lockSavedSQL locks and returns records that were there, in a statement of its own since the first may wait. lockRecordsSQL also
	// takes rows that are only a lock.
	lockSavedSQL   = fmt.Sprintf(lockSQL, recordColumns, ` and r.state <> ''`)
	lockRecordsSQL = fmt.Sprintf(lockSQL, recordColumns, ``)
)

const lockSQL = `
select %s from ` + stepsSQL + ` cross join lateral (
	select * from {saga_records} r where r.participant = $1::text and r.run = n.run and r.step = n.step%s offset 0 for update) as r
where ` + hexSQL

func compareSteps(a, b store.SagaStep) int {
	return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Step, b.Step))
}

// lockSagaRecords implements LockSagaRecords.
func (s *Store) lockSagaRecords(ctx context.Context, c caller, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	sorted := slices.Compact(slices.SortedFunc(slices.Values(steps), compareSteps))
	args := []any{
		participant, columnOf(sorted, func(s *store.SagaStep) string { return s.Run }), columnOf(sorted, func(s *store.SagaStep) string { return s.Step }),
	}
	var now int64
	records := make(map[store.SagaStep]store.SagaRecord, len(sorted))
	read := func(scan func(dest ...any) error) error {
		r, err := stored.Record(func(dest ...any) error { return scan(append(dest, &now)...) })
		records[r.SagaStep] = r
		return err
	}
	made := query{sql: s.sql.makeRecords, args: args, row: read}
	err := c.call(ctx, made, query{sql: s.sql.lockSaved, args: args, row: read})
	for tries := 0; err == nil && len(records) < len(sorted) && tries < createTries; tries++ { // one is only a lock, or was purged in between
		err = c.call(ctx, made, query{sql: s.sql.lockRecords, args: args, row: read})
	}
	if err != nil {
		return nil, time.Time{}, translate("lock records of sagas", err)
	}
	out := make([]store.SagaRecord, len(steps))
	for i, step := range steps {
		r, found := records[step]
		if !found {
			return nil, time.Time{}, fmt.Errorf("lock records of sagas: that of step %s of run %s is removed each time", step.Step, step.Run)
		}
		r.Command, r.Reply = slices.Clone(r.Command), slices.Clone(r.Reply)
		out[i] = r
	}
	return out, stored.Time(now), nil
}

// errNotLocked: what is written otherwise could be lost, or overwrite what another transaction has written.
var errNotLocked = errors.New("a record is not locked")

// saveSagaRecords implements SaveSagaRecords.
func (s *Store) saveSagaRecords(ctx context.Context, c caller, participant string, records []store.SagaRecord) error {
	rows := slices.SortedFunc(slices.Values(records), func(a, b store.SagaRecord) int { return compareSteps(a.SagaStep, b.SagaStep) })
	gone := slices.DeleteFunc(slices.Clone(rows), func(r store.SagaRecord) bool { return r.State != store.SagaStepNone })
	rows = slices.DeleteFunc(rows, func(r store.SagaRecord) bool { return r.State == store.SagaStepNone })
	steps := func(of []store.SagaRecord) []any {
		return []any{
			participant, columnOf(of, func(r *store.SagaRecord) string { return r.Run }), columnOf(of, func(r *store.SagaRecord) string { return r.Step }),
		}
	}
	var queries []query
	if len(rows) > 0 {
		queries = append(queries, query{sql: s.sql.saveRecords, args: append(steps(rows),
			columnOf(rows, func(r *store.SagaRecord) string { return string(r.State) }),
			columnOf(rows, func(r *store.SagaRecord) string { return r.CommandType }),
			bytesOf(rows, func(r *store.SagaRecord) []byte { return r.Command }),
			columnOf(rows, func(r *store.SagaRecord) string { return r.ReplyType }),
			bytesOf(rows, func(r *store.SagaRecord) []byte { return r.Reply }),
			columnOf(rows, func(r *store.SagaRecord) *time.Time { return momentOrNil(r.FirstSentAt) }),
			columnOf(rows, func(r *store.SagaRecord) int32 { return int32(r.SchemaVersion) })), row: wantCount(len(rows), errNotLocked)})
	}
	if len(gone) > 0 {
		queries = append(queries, query{sql: s.sql.removeRecords, args: steps(gone)})
	}
	return translate("save records of sagas", c.call(ctx, queries...))
}

func momentOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// closeSagaRuns implements CloseSagaRuns.
func (s *Store) closeSagaRuns(ctx context.Context, c caller, participant string, runs []string) error {
	return translate("close the runs of sagas", c.call(ctx, query{sql: s.sql.closeRuns, args: []any{participant, list(distinct(slices.Clone(runs)))}}))
}
