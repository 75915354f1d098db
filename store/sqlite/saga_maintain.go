package sqlite

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaMaintenance = (*Store)(nil)

const (
	newRecordSQL     = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	expireRecordsSQL = `DELETE FROM {prefix}records WHERE kind = ? AND expires_at < ?`
	putRecordSQL     = `INSERT INTO {prefix}records (kind, id, at, body, expires_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET rev = rev + 1, at = excluded.at, body = excluded.body, expires_at = excluded.expires_at`
	liveRecordsSQL = `SELECT kind, id, at, body FROM {prefix}records WHERE kind IN (?, ?) AND (expires_at IS NULL OR expires_at >= ?)`
)

// ReportSagas implements store.SagaMaintenance.
func (s *Store) ReportSagas(ctx context.Context, engine, process string, definitions []store.SagaDefinition, ttl time.Duration) error {
	documents, err := stored.SagaReport(engine, process, definitions)
	if err != nil {
		return err
	}
	last := len(documents) - 1
	return s.write(ctx, "report definitions of sagas", durable, func(t txn) error {
		for _, d := range documents[:last] {
			if _, err := t.exec(ctx, newRecordSQL, d.Kind, d.ID, t.now, d.Body); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, expireRecordsSQL, stored.KindReport, t.now); err != nil {
			return err
		}
		report := documents[last]
		if last == 0 {
			_, err := t.exec(ctx, inTable(removeRecordSQL, store.WorkRecords), report.Kind, report.ID)
			return err
		}
		_, err := t.exec(ctx, putRecordSQL, report.Kind, report.ID, t.now, report.Body, t.now+ttl.Microseconds())
		return err
	})
}

// SagaDefinitions implements store.SagaReader.
func (s *Store) SagaDefinitions(ctx context.Context) (out []store.SagaDefinition, err error) {
	err = s.read(ctx, "read definitions of sagas", func(t txn) error {
		out, err = stored.ReadSagaDefinitions(ctx, t.query, t.now, liveRecordsSQL, stored.KindDefinition, stored.KindReport, t.now)
		return err
	})
	return out, err
}

const (
	// oldSagasSQL selects the instances to purge: those of the engine ?3 that ended before ?1, unless one that they started must be kept.
	oldSagasSQL = `SELECT r.run FROM {prefix}sagas r WHERE r.engine = ?3 AND r.purge_from <= ?1 AND NOT EXISTS (
		WITH RECURSIVE family (run, status) AS (
			SELECT c.run, c.status FROM {prefix}sagas c WHERE c.parent_run = r.run AND c.parent_run <> '' UNION ALL
			SELECT c.run, c.status FROM family f JOIN {prefix}sagas c ON c.parent_run = f.run AND c.parent_run <> '')
		SELECT 1 FROM family WHERE status NOT IN ('completed', 'compensated'))
		ORDER BY r.purge_from, r.run LIMIT +?2`
	// familiesSQL adds those that they started, directly or not: ?1 is not empty.
	familiesSQL = `WITH RECURSIVE family (run) AS (SELECT value FROM json_each(?1) UNION ALL
		SELECT c.run FROM family f JOIN {prefix}sagas c ON c.parent_run = f.run AND c.parent_run <> '')
		SELECT run FROM family`
	purgeRunsSQL = ` WHERE run IN (SELECT value FROM json_each(?))`
)

// PurgeSagas implements store.SagaMaintenance.
func (s *Store) PurgeSagas(ctx context.Context, engine string, endedFor time.Duration, limit int) (n int, err error) {
	err = s.write(ctx, "purge sagas", relaxed, func(t txn) error {
		roots, err := stored.Column[string](ctx, t.query, oldSagasSQL, t.now-endedFor.Microseconds(), limit, engine)
		if err != nil || len(roots) == 0 {
			return err
		}
		runs, err := stored.Column[string](ctx, t.query, familiesSQL, list(roots))
		if err != nil {
			return err
		}
		for _, table := range []string{"sagas", "saga_history", "saga_aliases", "saga_labels"} {
			if _, err := t.exec(ctx, `DELETE FROM {prefix}`+table+purgeRunsSQL, list(runs)); err != nil {
				return err
			}
		}
		n = len(roots)
		return nil
	})
	return n, err
}

// purgeRecordsSQL is served by the index of purge_from: the primary key would read all records of the participant.
const purgeRecordsSQL = `DELETE FROM {prefix}saga_records WHERE (participant, run, step) IN (
	SELECT participant, run, step FROM {prefix}saga_records WHERE purge_from <= ?1 AND +participant = ?3 ORDER BY purge_from LIMIT +?2)`

// PurgeSagaRecords implements store.SagaMaintenance.
func (s *Store) PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "purge records of sagas", relaxed, func(t txn) (err error) {
		n, err = t.exec(ctx, purgeRecordsSQL, t.now-savedFor.Microseconds(), limit, participant)
		return err
	})
	return int(n), err
}
