//go:build !race

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRollingUpgradeOfCalls: programs of schema version 17, whose records have no schema version, and of this one share records of calls
// that have begun, while the schema is migrated and afterwards.
func TestRollingUpgradeOfCalls(t *testing.T) {
	t.Parallel()
	notInShort(t)
	scenariotest.RollingUpgrade(t, scenariotest.Kit[pgx.Tx]{
		Open: func(t testing.TB) scenariotest.Store[pgx.Tx] { return cloned(t, dsn(t), postgres.Config{}, 24) },
	}, scenariotest.Release[pgx.Tx]{
		Migrate: func(t testing.TB, s scenariotest.Store[pgx.Tx], old bool) {
			t.Helper()
			to := postgres.Latest
			if old {
				to = 17
			}
			b := s.(*bundle)
			if _, err := postgres.Migrate(t.Context(), b.pool, b.config, to); err != nil {
				t.Fatal(err)
			}
		},
		Records: func(s scenariotest.Store[pgx.Tx]) saga.Records[pgx.Tx] {
			return &recordsOf17{s.(*bundle), s.(*bundle).table("saga_records")}
		},
	})
}

// recordsOf17 executes the statements of programs of schema version 17, for one record at a time.
type recordsOf17 struct {
	*bundle
	table string
}

func (r *recordsOf17) LockSagaRecords(ctx context.Context, tx pgx.Tx, participant string, steps []store.SagaStep) (locked []store.SagaRecord, now time.Time, err error) {
	for _, step := range steps {
		if _, err := tx.Exec(ctx, "insert into "+r.table+" (participant, run, step) values ($1, $2, $3) on conflict do nothing",
			participant, step.Run, step.Step); err != nil {
			return nil, now, err
		}
		var first *time.Time
		var at time.Time
		l := store.SagaRecord{SagaStep: step}
		if err := tx.QueryRow(ctx, `
select r.state, r.command_type, r.command, r.reply_type, r.reply, r.first_sent_at, r.saved_at, r.closed, clock_timestamp()
from (select 1) as n cross join lateral (select * from `+r.table+` r where r.participant = $1 and r.run = $2 and r.step = $3 offset 0 for update) as r`,
			participant, step.Run, step.Step).Scan(
			&l.State, &l.CommandType, &l.Command, &l.ReplyType, &l.Reply, &first, &at, &l.Closed, &now); err != nil {
			return nil, now, err
		}
		if first != nil {
			l.FirstSentAt = *first
		}
		locked = append(locked, l)
	}
	return locked, now, nil
}

func (r *recordsOf17) SaveSagaRecords(ctx context.Context, tx pgx.Tx, participant string, records []store.SagaRecord) error {
	for _, s := range records {
		if s.State == store.SagaStepNone {
			if _, err := tx.Exec(ctx, "delete from "+r.table+" where participant = $1 and run = $2 and step = $3", participant, s.Run, s.Step); err != nil {
				return err
			}
			continue
		}
		if _, err := tx.Exec(ctx, `
insert into `+r.table+` as r (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at, purge_from)
values ($1, $2, $3, $4, $5, coalesce($6::bytea, ''), $7, coalesce($8::bytea, ''), $9, case when $4 <> 'done' then clock_timestamp() end)
on conflict (participant, run, step) do update set state = excluded.state, command_type = excluded.command_type,
	command = excluded.command, reply_type = excluded.reply_type, reply = excluded.reply, first_sent_at = excluded.first_sent_at,
	saved_at = clock_timestamp(), purge_from = case when r.closed or excluded.state <> 'done' then clock_timestamp() end`,
			participant, s.Run, s.Step, string(s.State), s.CommandType, s.Command, s.ReplyType, s.Reply, s.FirstSentAt); err != nil {
			return err
		}
	}
	return nil
}
