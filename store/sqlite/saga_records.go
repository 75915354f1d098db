package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaRecords[*sql.Tx] = (*Store)(nil)

const (
	sagaRecordSQL = `SELECT run, step, state, command_type, command, reply_type, reply, first_sent_at, saved_at, closed, schema_version
		FROM {prefix}saga_records WHERE participant = ? AND run = ? AND step = ?`
	saveRecordSQL = `INSERT INTO {prefix}saga_records (participant, run, step, state, command_type, command, reply_type, reply, first_sent_at,
		schema_version, saved_at, purge_from) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, CASE WHEN ?12 THEN ?11 END)
		ON CONFLICT DO UPDATE SET state = excluded.state, command_type = excluded.command_type, command = excluded.command,
			reply_type = excluded.reply_type, reply = excluded.reply, first_sent_at = excluded.first_sent_at, schema_version = excluded.schema_version,
			saved_at = excluded.saved_at, purge_from = CASE WHEN closed THEN excluded.saved_at ELSE excluded.purge_from END`
	dropRecordSQL = `DELETE FROM {prefix}saga_records WHERE participant = ? AND run = ? AND step = ?`
	closeRunsSQL  = `UPDATE {prefix}saga_records SET closed = 1, purge_from = saved_at
		WHERE participant = ?1 AND run IN (SELECT value FROM json_each(?2)) AND NOT closed`
)

// LockSagaRecords implements store.SagaRecords. The lock is that of the one writer.
func (s *Store) LockSagaRecords(ctx context.Context, tx *sql.Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	out, at := make([]store.SagaRecord, len(steps)), time.Time{}
	err := s.change(ctx, "lock records of sagas", tx, func(t txn) error {
		at = stored.Time(t.now)
		for i, step := range steps {
			out[i].SagaStep = step
			err := t.each(ctx, sagaRecordSQL, []any{participant, step.Run, step.Step}, func(rows *sql.Rows) (err error) {
				out[i], err = stored.Record(rows.Scan)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, at, err
}

// SaveSagaRecords implements store.SagaRecords.
func (s *Store) SaveSagaRecords(ctx context.Context, tx *sql.Tx, participant string, records []store.SagaRecord) error {
	return s.change(ctx, "save records of sagas", tx, func(t txn) error {
		for _, r := range records {
			text, args := dropRecordSQL, []any{participant, r.Run, r.Step}
			if r.State != store.SagaStepNone {
				text = saveRecordSQL
				args = append(args, string(r.State), r.CommandType, stored.Bytes(r.Command), r.ReplyType, stored.Bytes(r.Reply), stored.FirstSent(r),
					r.SchemaVersion, t.now, stored.RecordPurgeable(r.State))
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
	return s.change(ctx, "close the runs of sagas", tx, func(t txn) error {
		_, err := t.exec(ctx, closeRunsSQL, participant, list(runs))
		return err
	})
}
