package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// stepsSQL are steps of participant $1, arrays $2 run and $3 step, in the order of locking.
	stepsSQL = `unnest($2::text::text[], $3::text::text[]) with ordinality as n (run, step, ord)`

	// makeRecordsSQL makes rows to lock; lockRecordsSQL, a statement of its own since that one may wait, locks and returns them.
	makeRecordsSQL = `
insert into {saga_records} (participant, run, step) select $1::text, n.run, n.step from ` + stepsSQL + ` on conflict do nothing`

	// saveRecordsSQL: $1 participant, arrays $2 run, $3 step, $4 state, $5 type of command, $6 command, $7 type of reply, $8 reply, $9
	// first sent, $10 schema version. A record that is done is kept until its run is closed.
	saveRecordsSQL = `
insert into {saga_records} as r (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at, schema_version, purge_from)
select $1::text, run, step, state, command_type, command, reply_type, reply, first_sent_at, schema_version,
	case when state <> 'done' then clock_timestamp() end
from unnest($2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::text[], $8::text::bytea[],
	$9::text::timestamptz[], $10::text::int4[]) as n (run, step, state, command_type, command, reply_type, reply, first_sent_at, schema_version)
on conflict (participant, run, step) do update set state = excluded.state, command_type = excluded.command_type,
	command = excluded.command, reply_type = excluded.reply_type, reply = excluded.reply, first_sent_at = excluded.first_sent_at,
	schema_version = excluded.schema_version, saved_at = clock_timestamp(),
	purge_from = case when r.closed or excluded.state <> 'done' then clock_timestamp() end`

	removeRecordsSQL = `
delete from {saga_records} r using ` + stepsSQL + ` where r.participant = $1::text and r.run = n.run and r.step = n.step`

	// closeRunsSQL: $1 participant, $2 runs. A row that is only a lock is removed by the transaction that has locked it.
	closeRunsSQL = `
update {saga_records} r set closed = true, purge_from = r.saved_at from unnest($2::text::text[]) as n (run)
where r.participant = $1::text and r.run = n.run and not r.closed and r.state <> ''`
)

var lockRecordsSQL = `
select r.run, r.step, r.state, r.command_type, r.command, r.reply_type, r.reply, coalesce(` + micros(`r.first_sent_at`) + `, 0),
	` + micros(`r.saved_at`) + `, r.closed, r.schema_version, ` + sagaNowSQL + `
from ` + stepsSQL + ` cross join lateral (
	select * from {saga_records} r where r.participant = $1::text and r.run = n.run and r.step = n.step offset 0 for update) as r`

func compareSteps(a, b store.SagaStep) int {
	return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Step, b.Step))
}

// lockSagaRecords implements LockSagaRecords.
func (s *Store) lockSagaRecords(ctx context.Context, c caller, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	sorted := slices.Compact(slices.SortedFunc(slices.Values(steps), compareSteps))
	args := []any{
		participant, texts(sorted, func(s *store.SagaStep) string { return s.Run }), texts(sorted, func(s *store.SagaStep) string { return s.Step }),
	}
	var now int64
	records := make(map[store.SagaStep]store.SagaRecord, len(sorted))
	read := func(scan func(dest ...any) error) error {
		r, err := stored.Record(func(dest ...any) error { return scan(append(dest, &now)...) })
		records[r.SagaStep] = r
		return err
	}
	for range createTries {
		err := c.call(ctx, query{sql: s.sql.makeRecords, args: args}, query{sql: s.sql.lockRecords, args: args, row: read})
		if err != nil {
			return nil, time.Time{}, translate("lock records of sagas", err)
		}
		if len(records) == len(sorted) {
			break
		}
		clear(records) // one was purged in between
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

// saveSagaRecords implements SaveSagaRecords.
func (s *Store) saveSagaRecords(ctx context.Context, c caller, participant string, records []store.SagaRecord) error {
	rows := slices.SortedFunc(slices.Values(records), func(a, b store.SagaRecord) int { return compareSteps(a.SagaStep, b.SagaStep) })
	gone := slices.DeleteFunc(slices.Clone(rows), func(r store.SagaRecord) bool { return r.State != store.SagaStepNone })
	rows = slices.DeleteFunc(rows, func(r store.SagaRecord) bool { return r.State == store.SagaStepNone })
	steps := func(of []store.SagaRecord) []any {
		return []any{
			participant, texts(of, func(r *store.SagaRecord) string { return r.Run }), texts(of, func(r *store.SagaRecord) string { return r.Step }),
		}
	}
	var queries []query
	if len(rows) > 0 {
		queries = append(queries, query{sql: s.sql.saveRecords, args: append(steps(rows),
			texts(rows, func(r *store.SagaRecord) string { return string(r.State) }),
			texts(rows, func(r *store.SagaRecord) string { return r.CommandType }),
			columnArray(rows, func(r *store.SagaRecord) []byte { return r.Command }, hexBytes),
			texts(rows, func(r *store.SagaRecord) string { return r.ReplyType }),
			columnArray(rows, func(r *store.SagaRecord) []byte { return r.Reply }, hexBytes),
			columnArray(rows, func(r *store.SagaRecord) *time.Time { return momentOrNil(r.FirstSentAt) }, optional),
			columnArray(rows, func(r *store.SagaRecord) int32 { return int32(r.SchemaVersion) }, number))})
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
	return translate("close the runs of sagas", c.call(ctx, query{sql: s.sql.closeRuns, args: []any{participant, array(distinct(slices.Clone(runs)), quoted)}}))
}
