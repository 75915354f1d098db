package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaStore[*sql.Tx] = (*Store)(nil)

// The statements that read an instance: ?1 is the time.
var (
	sagaInstanceSQL = `SELECT ` + stored.SagaInstanceColumns(`?1`, asIs) + ` FROM {prefix}sagas s `
	loadSagasSQL    = sagaInstanceSQL + `WHERE s.run IN (SELECT value FROM json_each(?2)) ORDER BY s.run`
	sagaOfRunSQL    = sagaInstanceSQL + `WHERE s.run = ?2`
	sagaOfIDSQL     = sagaInstanceSQL + `WHERE s.id = ?2`
	sagaOfKeySQL    = sagaInstanceSQL + `WHERE s.saga = ?2 AND s.saga_key = ?3 AND s.holds_key`
)

const (
	runOfIDSQL    = `SELECT run FROM {prefix}sagas WHERE id = ?`
	runOfKeySQL   = `SELECT run FROM {prefix}sagas WHERE saga = ? AND saga_key = ? AND holds_key`
	runOfAliasSQL = `SELECT run FROM {prefix}saga_aliases WHERE saga = ? AND name = ? AND value = ?`
)

const (
	createSagaSQL = `INSERT INTO {prefix}sagas (` + stored.SagaFixed + `, ` + stored.SagaChanged + `, rev, holds_key, started_at, updated_at, stuck_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)`
	// saveSagaSQL: ?15 run, ?16 revision, ?17 the revision before, ?18 the time, ?19 whether the instance is stuck, ?20 whether it
	// has ended, ?21 whether it may be purged.
	saveSagaSQL = `UPDATE {prefix}sagas SET (` + stored.SagaChanged + `) = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14),
		rev = ?16, updated_at = ?18, holds_key = holds_key AND NOT ?20, stuck_at = CASE WHEN ?19 THEN coalesce(stuck_at, ?18) END,
		ended_at = CASE WHEN ?20 THEN coalesce(ended_at, ?18) END,
		purge_from = CASE WHEN ?21 AND parent_run = '' THEN coalesce(ended_at, ?18) END
		WHERE run = ?15 AND rev = ?17 RETURNING saga`
	setSagaVersionSQL = `UPDATE {prefix}sagas SET version = ?, hash = ? WHERE run = ? RETURNING run`
	writeHistorySQL   = `INSERT INTO {prefix}saga_history (run, rev, input, step, message_id, actor, note, entries, patch, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	addAliasSQL  = `INSERT INTO {prefix}saga_aliases (saga, name, value, run) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	setLabelSQL  = `INSERT INTO {prefix}saga_labels (run, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value`
	dropLabelSQL = `DELETE FROM {prefix}saga_labels WHERE run = ? AND name = ?`
)

// asIs: times are stored as microseconds.
func asIs(column string) string { return column }

// instances returns the instances that a statement selects, whose first parameter is the time.
func (t txn) instances(ctx context.Context, text string, args ...any) ([]store.SagaInstance, error) {
	return stored.SagaInstances(ctx, t.query, text, append([]any{t.now}, args...))
}

// change runs part of a user's transaction that holds the write lock.
func (s *Store) change(ctx context.Context, doing string, tx *sql.Tx, f func(txn) error) error {
	return s.within(doing, tx, func(t txn) error {
		if _, err := t.exec(ctx, lockSQL); err != nil {
			return err
		}
		t.now = s.now() // after the wait for the lock
		return f(t)
	})
}

// LoadSagas implements store.SagaStore. The lock is that of the one writer.
func (s *Store) LoadSagas(ctx context.Context, tx *sql.Tx, runs []string) (out []store.SagaInstance, err error) {
	err = s.change(ctx, "load sagas", tx, func(t txn) error {
		out, err = t.instances(ctx, loadSagasSQL, list(runs))
		return err
	})
	return out, err
}

// FindSagas implements store.SagaStore.
func (s *Store) FindSagas(ctx context.Context, tx *sql.Tx, lookups []store.SagaLookup) (out []string, err error) {
	err = s.within("find sagas", tx, func(t txn) error {
		out, err = stored.FindSagas(ctx, t.query, lookups, runOfIDSQL, runOfKeySQL, runOfAliasSQL)
		return err
	})
	return out, err
}

// CreateSagas implements store.SagaStore.
func (s *Store) CreateSagas(ctx context.Context, tx *sql.Tx, starts []store.SagaStart) (existing []*store.SagaInstance, err error) {
	err = s.change(ctx, "create sagas", tx, func(t txn) error {
		for _, st := range starts {
			found, err := t.existingSaga(ctx, st)
			if err == nil && found == nil {
				err = t.createSaga(ctx, st)
			}
			if err != nil {
				return fmt.Errorf("instance %s: %w", st.ID, err)
			}
			existing = append(existing, found)
		}
		return nil
	})
	return existing, err
}

// SetSagaVersion implements store.SagaStore.
func (s *Store) SetSagaVersion(ctx context.Context, tx *sql.Tx, run string, version int, hash string) error {
	return s.change(ctx, "set the version of a saga", tx, func(t txn) error {
		var changed string
		err := t.get(ctx, setSagaVersionSQL, []any{version, hash, run}, &changed)
		if errors.Is(err, sql.ErrNoRows) {
			return store.ErrNoSaga
		}
		return err
	})
}

// existingSaga returns the instance that has the run or ID of a new one, or holds its key.
func (t txn) existingSaga(ctx context.Context, st store.SagaStart) (*store.SagaInstance, error) {
	for _, q := range []struct {
		text string
		args []any
	}{{sagaOfRunSQL, []any{st.Run}}, {sagaOfIDSQL, []any{st.ID}}, {sagaOfKeySQL, []any{st.Saga, st.Key}}} {
		found, err := t.instances(ctx, q.text, q.args...)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
		}
	}
	return nil, nil
}

func (t txn) createSaga(ctx context.Context, st store.SagaStart) error {
	values := append(stored.SagaFixedValues(st), stored.SagaChangedValues(st.SagaCondition, st.SagaTimes, st.SagaBody)...)
	values = append(values, st.Key != "", t.now, t.now, sql.Null[int64]{V: t.now, Valid: st.Status == store.SagaStuck})
	if _, err := t.exec(ctx, createSagaSQL, values...); err != nil {
		return err
	}
	if err := t.writeHistory(ctx, st.Run, 1, []store.SagaTransition{st.Transition}); err != nil {
		return err
	}
	return t.nameSaga(ctx, st.Saga, st.Run, st.Aliases, st.Labels)
}

// SaveSagas implements store.SagaStore.
func (s *Store) SaveSagas(ctx context.Context, tx *sql.Tx, changes []store.SagaChange) error {
	return s.change(ctx, "save sagas", tx, func(t txn) error {
		for _, c := range changes {
			if err := t.saveSaga(ctx, c); err != nil {
				return fmt.Errorf("run %s in revision %d: %w", c.Run, c.Rev, err)
			}
		}
		return nil
	})
}

func (t txn) saveSaga(ctx context.Context, c store.SagaChange) error {
	if len(c.Transitions) == 0 {
		return store.ErrSagaMoved
	}
	var saga string
	err := t.get(ctx, saveSagaSQL, append(stored.SagaChangedValues(c.SagaCondition, c.SagaTimes, c.SagaBody), c.Run, c.Rev, c.Rev-int64(len(c.Transitions)), t.now,
		c.Status == store.SagaStuck, c.Status.Ended(), stored.Purgeable(c.Status)), &saga)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrSagaMoved
	}
	if err != nil {
		return err
	}
	if err := t.writeHistory(ctx, c.Run, c.Rev, c.Transitions); err != nil {
		return err
	}
	return t.nameSaga(ctx, saga, c.Run, c.Aliases, c.Labels)
}

// writeHistory writes transitions, the last of which has revision rev.
func (t txn) writeHistory(ctx context.Context, run string, rev int64, transitions []store.SagaTransition) error {
	for i, tr := range transitions {
		values, err := stored.TransitionValues(run, rev-int64(len(transitions)-1-i), tr)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, writeHistorySQL, append(values, t.now)...); err != nil {
			return err
		}
	}
	return nil
}

// nameSaga adds aliases and changes labels.
func (t txn) nameSaga(ctx context.Context, saga, run string, aliases []store.SagaAlias, labels map[string]string) error {
	for _, a := range aliases {
		if _, err := t.exec(ctx, addAliasSQL, saga, a.Name, a.Value, run); err != nil {
			return err
		}
		var has string
		if err := t.get(ctx, runOfAliasSQL, []any{saga, a.Name, a.Value}, &has); err != nil {
			return err
		}
		if has != run {
			return fmt.Errorf("%w: %s %q", store.ErrSagaAliasTaken, a.Name, a.Value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		text, args := setLabelSQL, []any{run, name, labels[name]}
		if labels[name] == "" {
			text, args = dropLabelSQL, args[:2]
		}
		if _, err := t.exec(ctx, text, args...); err != nil {
			return err
		}
	}
	return nil
}
