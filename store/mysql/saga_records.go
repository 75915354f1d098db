package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaRecords[*sql.Tx] = (*Store)(nil)

const (
	// makeRecordSQL makes a row to lock, or locks the one that exists.
	makeRecordsSQL = `INSERT INTO {prefix}saga_records (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at, saved_at)
		VALUES `
	newRecordRow   = `(?, ?, ?, '', '', '', '', '', 0, {now})`
	lockRecordsSQL = ` ON DUPLICATE KEY UPDATE participant = VALUES(participant)`
	sagaRecordsSQL = `SELECT run, step, state, command_type, command, reply_type, reply, first_sent_at, saved_at, closed, schema_version, {now}
		FROM {prefix}saga_records FORCE INDEX (PRIMARY) WHERE participant = ? AND (`
	stepSQL = `(run = ? AND step = ?)`

	saveRecordSQL = `INSERT INTO {prefix}saga_records (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at,
		schema_version, saved_at, purge_from) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, {now}, IF(?11, {now}, NULL))
		ON DUPLICATE KEY UPDATE state = VALUES(state), command_type = VALUES(command_type), command = VALUES(command),
			reply_type = VALUES(reply_type), reply = VALUES(reply), first_sent_at = VALUES(first_sent_at),
			schema_version = VALUES(schema_version), saved_at = VALUES(saved_at),
			purge_from = IF(closed, VALUES(saved_at), VALUES(purge_from))`
	dropRecordSQL = `DELETE FROM {prefix}saga_records WHERE participant = ? AND run = ? AND step = ?`
	closeRunsSQL  = `UPDATE {prefix}saga_records FORCE INDEX (PRIMARY) SET closed = 1, purge_from = saved_at
		WHERE participant = ? AND run IN ? AND closed = 0 AND state <> ''`
)

func compareSteps(a, b store.SagaStep) int {
	return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Step, b.Step))
}

// LockSagaRecords implements store.SagaRecords.
func (s *Store) LockSagaRecords(ctx context.Context, tx *sql.Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	sorted := slices.Compact(slices.SortedFunc(slices.Values(steps), compareSteps))
	records, now := make(map[store.SagaStep]store.SagaRecord), int64(0)
	err := s.within("lock records of sagas", tx, func(t txn) error {
		if len(sorted) == 0 {
			return nil
		}
		var rows, keys []any
		for _, step := range sorted {
			rows, keys = append(rows, participant, step.Run, step.Step), append(keys, step.Run, step.Step)
		}
		more := len(sorted) - 1
		if _, err := t.exec(ctx, makeRecordsSQL+newRecordRow+strings.Repeat(`, `+newRecordRow, more)+lockRecordsSQL, rows...); err != nil {
			return err
		}
		text := sagaRecordsSQL + stepSQL + strings.Repeat(` OR `+stepSQL, more) + `) FOR UPDATE`
		return t.each(ctx, text, append([]any{participant}, keys...), func(rows *sql.Rows) error {
			r, err := stored.Record(func(dest ...any) error { return rows.Scan(append(dest, &now)...) })
			records[r.SagaStep] = r
			return err
		})
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	out := make([]store.SagaRecord, len(steps))
	for i, step := range steps {
		out[i] = records[step]
		out[i].Command, out[i].Reply = slices.Clone(out[i].Command), slices.Clone(out[i].Reply)
	}
	return out, stored.Time(now), nil
}

// SaveSagaRecords implements store.SagaRecords.
func (s *Store) SaveSagaRecords(ctx context.Context, tx *sql.Tx, participant string, records []store.SagaRecord) error {
	return s.within("save records of sagas", tx, func(t txn) error {
		for _, r := range records {
			text, args := dropRecordSQL, []any{participant, r.Run, r.Step}
			if r.State != store.SagaStepNone {
				text = saveRecordSQL
				args = append(args, string(r.State), r.CommandType, stored.Bytes(r.Command), r.ReplyType, stored.Bytes(r.Reply), stored.FirstSent(r),
					r.SchemaVersion, stored.RecordPurgeable(r.State))
			}
			if _, err := t.exec(ctx, text, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// CloseSagaRuns implements store.SagaRecords.
func (s *Store) CloseSagaRuns(ctx context.Context, tx *sql.Tx, participant string, runs []string) error {
	return s.within("close the runs of sagas", tx, func(t txn) error {
		_, err := t.exec(ctx, closeRunsSQL, participant, slices.Sorted(slices.Values(runs)))
		return err
	})
}
