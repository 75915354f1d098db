package mysqlstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaMaintenance = (*Store)(nil)

const (
	newRecordSQL = `INSERT INTO {prefix}records (kind, id, at, body) VALUES (?, ?, {now}, ?) ON DUPLICATE KEY UPDATE kind = VALUES(kind)`
	putRecordSQL = `INSERT INTO {prefix}records (kind, id, at, body, expires_at) VALUES (?, ?, {now}, ?, {now} + ?)
		ON DUPLICATE KEY UPDATE rev = rev + 1, at = VALUES(at), body = VALUES(body), expires_at = VALUES(expires_at)`
	expireRecordsSQL = `DELETE FROM {prefix}records WHERE kind = ? AND expires_at < {now}`
	liveRecordsSQL   = `SELECT kind, id, at, body FROM {prefix}records WHERE kind IN ? AND (expires_at IS NULL OR expires_at >= {now})`
)

// ReportSagas implements store.SagaMaintenance.
func (s *Store) ReportSagas(ctx context.Context, engine, process string, definitions []store.SagaDefinition, ttl time.Duration) error {
	documents, err := stored.SagaReport(engine, process, definitions)
	if err != nil {
		return err
	}
	last := len(documents) - 1
	slices.SortFunc(documents[:last], stored.CompareDocuments) // all processes lock in one order
	return s.write(ctx, "report definitions of sagas", func(t txn) error {
		for _, d := range documents[:last] {
			if _, err := t.exec(ctx, newRecordSQL, d.Kind, d.ID, d.Body); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, expireRecordsSQL, stored.KindReport); err != nil {
			return err
		}
		report := documents[last]
		if last == 0 {
			_, err := t.exec(ctx, inTable(removeRecordSQL, store.WorkRecords), report.Kind, report.ID)
			return err
		}
		_, err := t.exec(ctx, putRecordSQL, report.Kind, report.ID, report.Body, ttl.Microseconds())
		return err
	})
}

// SagaDefinitions implements store.SagaReader.
func (s *Store) SagaDefinitions(ctx context.Context) (out []store.SagaDefinition, err error) {
	err = s.read(ctx, "read definitions of sagas", func(t txn) error {
		out, err = stored.ReadSagaDefinitions(ctx, t.query, t.now, liveRecordsSQL, []string{stored.KindDefinition, stored.KindReport})
		return err
	})
	return out, err
}

const (
	// oldSagasSQL: ?1 age, ?2 and ?3 the end and run of the last one before, ?4 limit, ?5 engine.
	oldSagasSQL = `SELECT run, purge_from FROM {prefix}sagas FORCE INDEX ({prefix}sagas_purge) WHERE engine = ?5 AND purge_from <= {now} - ?1
		AND (purge_from, run) > (?2, ?3) AND purge_from >= ?2 ORDER BY purge_from, run LIMIT ?4`
	childrenSQL  = `SELECT run, parent_run FROM {prefix}sagas WHERE parent_run IN ?`
	lockRunsSQL  = `SELECT run FROM {prefix}sagas FORCE INDEX (PRIMARY) WHERE run IN ? AND status IN ('completed', 'compensated') FOR UPDATE SKIP LOCKED`
	purgeRunsSQL = ` WHERE run IN ?`
)

// PurgeSagas implements store.SagaMaintenance. An instance stays if one of those that it started, directly or not, must be kept or
// is locked.
func (s *Store) PurgeSagas(ctx context.Context, engine string, endedFor time.Duration, limit int) (n int, err error) {
	err = s.write(ctx, "purge sagas", func(t txn) error {
		n = 0
		var end int64
		run := ""
		for n < limit {
			var roots []string
			err := t.each(ctx, oldSagasSQL, []any{endedFor.Microseconds(), end, run, limit - n, engine}, func(rows *sql.Rows) error {
				err := rows.Scan(&run, &end)
				roots = append(roots, run)
				return err
			})
			if err != nil || len(roots) == 0 {
				return err
			}
			purged, err := t.purgeRoots(ctx, roots)
			if err != nil {
				return err
			}
			n += purged
		}
		return nil
	})
	return n, err
}

// purgeRoots removes those of the instances that can be removed with all that they started, and returns how many.
func (t txn) purgeRoots(ctx context.Context, roots []string) (int, error) {
	rootOf := make(map[string]string) // of each run of the families
	for _, run := range roots {
		rootOf[run] = run
	}
	all := slices.Clone(roots)
	for level := roots; len(level) > 0; {
		var next []string
		err := t.each(ctx, childrenSQL, []any{level}, func(rows *sql.Rows) error {
			var run, parent string
			err := rows.Scan(&run, &parent)
			rootOf[run], next = rootOf[parent], append(next, run)
			return err
		})
		if err != nil {
			return 0, err
		}
		all, level = append(all, next...), next
	}
	locked, err := stored.Column[string](ctx, t.query, lockRunsSQL, all)
	if err != nil {
		return 0, err
	}
	free, kept := set(locked), make(map[string]bool)
	for _, run := range all {
		if !free[run] {
			kept[rootOf[run]] = true
		}
	}
	all = slices.DeleteFunc(all, func(run string) bool { return kept[rootOf[run]] })
	for _, table := range []string{"sagas", "saga_history", "saga_aliases", "saga_labels"} {
		if _, err := t.exec(ctx, `DELETE FROM {prefix}`+table+purgeRunsSQL, all); err != nil {
			return 0, err
		}
	}
	return len(roots) - len(kept), nil
}

// purgeRecordsSQL is served by the index of purge_from: the primary key would read all records of the participant.
const purgeRecordsSQL = `DELETE FROM {prefix}saga_records WHERE purge_from <= {now} - ? AND CONCAT(participant, '') = ? ORDER BY purge_from LIMIT ?`

// PurgeSagaRecords implements store.SagaMaintenance.
func (s *Store) PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "purge records of sagas", func(t txn) (err error) {
		n, err = t.exec(ctx, purgeRecordsSQL, savedFor.Microseconds(), participant, limit)
		return err
	})
	return int(n), err
}
