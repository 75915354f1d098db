package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaStore[*sql.Tx] = (*Store)(nil)

// The statements that read instances.
var (
	sagaInstanceSQL = `SELECT ` + stored.SagaInstanceColumns(`{now}`, asIs) + ` FROM {prefix}sagas s `
	// loadSagasSQL locks rows in the order of the primary key.
	loadSagasSQL = sagaInstanceSQL + `FORCE INDEX (PRIMARY) WHERE s.run IN ? ORDER BY s.run FOR UPDATE`
	sagaOfRunSQL = sagaInstanceSQL + `WHERE s.run = ?`
	sagaOfIDSQL  = sagaInstanceSQL + `WHERE s.id = ?`
	sagaOfKeySQL = sagaInstanceSQL + `WHERE s.saga = ? AND s.held_key = ?`
)

const (
	// latestSQL reads what is committed, whatever the transaction has read before.
	latestSQL = ` LOCK IN SHARE MODE`

	runOfIDSQL    = `SELECT run FROM {prefix}sagas WHERE id = ?`
	runOfKeySQL   = `SELECT run FROM {prefix}sagas WHERE saga = ? AND held_key = ?`
	runOfAliasSQL = `SELECT run FROM {prefix}saga_aliases WHERE saga = ? AND name = ? AND value = ?`
	sagaOfSQL     = `SELECT saga FROM {prefix}sagas WHERE run = ?`

	createSagaSQL = `INSERT INTO {prefix}sagas (` + stored.SagaFixed + `, ` + stored.SagaChanged + `, rev, holds_key, held_key, stuck_at, started_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, {now}, {now})`

	// saveSagasSQL joins the instances with the rows of changedRow. In an update of a join, assignments have no order.
	saveSagasSQL = `UPDATE (%s) c STRAIGHT_JOIN {prefix}sagas s FORCE INDEX (PRIMARY) ON s.run = c.run AND s.rev = c.before_rev SET
		s.status = c.status, s.direction = c.direction, s.paused = c.paused, s.past_pivot = c.past_pivot, s.cause = c.cause,
		s.detail = c.detail, s.waiting = c.waiting, s.obligations = c.obligations, s.released = c.released, s.deadline_us = c.deadline_us,
		s.timer_us = c.timer_us, s.timer_id = c.timer_id, s.state = c.state, s.data = c.data, s.rev = c.rev, s.updated_at = {now},
		s.holds_key = s.holds_key AND NOT c.ends, s.held_key = IF(c.ends, NULL, s.held_key),
		s.stuck_at = IF(c.sticks, COALESCE(s.stuck_at, {now}), NULL), s.ended_at = IF(c.ends, COALESCE(s.ended_at, {now}), NULL),
		s.purge_from = IF(c.purges AND s.parent_run = '', COALESCE(s.ended_at, {now}), NULL)`
	firstChangedRow = `SELECT ? AS status, ? AS direction, ? AS paused, ? AS past_pivot, ? AS cause, ? AS detail, ? AS waiting, ? AS obligations,
		? AS released, ? AS deadline_us, ? AS timer_us, ? AS timer_id, ? AS state, ? AS data, ? AS run, ? AS rev, ? AS before_rev,
		? AS sticks, ? AS ends, ? AS purges`
	changedRow = ` UNION ALL SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`

	setSagaVersionSQL = `UPDATE {prefix}sagas SET version = ?, hash = ? WHERE run = ?`
	writeHistorySQL   = `INSERT INTO {prefix}saga_history (run, rev, input, step, message_id, actor, note, entries, patch, at) VALUES `
	historyRow        = `(?, ?, ?, ?, ?, ?, ?, ?, ?, {now})`
	addAliasSQL       = `INSERT INTO {prefix}saga_aliases (saga, name, value, run) VALUES (?, ?, ?, ?)`
	setLabelSQL       = `INSERT INTO {prefix}saga_labels (run, name, value) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)`
	dropLabelSQL      = `DELETE FROM {prefix}saga_labels WHERE run = ? AND name = ?`
)

// asIs: times are stored as microseconds.
func asIs(column string) string { return column }

// instances returns the instances that a statement selects.
func (t txn) instances(ctx context.Context, text string, args ...any) ([]store.SagaInstance, error) {
	return stored.SagaInstances(ctx, t.query, text, args)
}

// LoadSagas implements store.SagaStore.
func (s *Store) LoadSagas(ctx context.Context, tx *sql.Tx, runs []string) (out []store.SagaInstance, err error) {
	err = s.within("load sagas", tx, func(t txn) error {
		out, err = t.instances(ctx, loadSagasSQL, runs)
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

// createTries is how often an instance is tried to be created that was there and then gone again.
const createTries = 10

var errUnsteady = errors.New("other instances of the same ID or key appear and disappear")

// CreateSagas implements store.SagaStore.
func (s *Store) CreateSagas(ctx context.Context, tx *sql.Tx, starts []store.SagaStart) ([]*store.SagaInstance, error) {
	sorted := make([]int, len(starts)) // in one order, so that two calls wait for each other in one direction
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return strings.Compare(starts[a].ID, starts[b].ID) })
	existing := make([]*store.SagaInstance, len(starts))
	err := s.within("create sagas", tx, func(t txn) (err error) {
		for _, n := range sorted {
			if existing[n], err = t.createSaga(ctx, starts[n]); err != nil {
				return fmt.Errorf("instance %s: %w", starts[n].ID, err)
			}
		}
		return nil
	})
	return existing, err
}

// createSaga writes a new instance, or returns the one that exists. A duplicate key undoes only its statement.
func (t txn) createSaga(ctx context.Context, st store.SagaStart) (*store.SagaInstance, error) {
	held := any(st.Key)
	if st.Key == "" {
		held = nil
	}
	stuck := any(nil)
	if st.Status == store.SagaStuck {
		stuck = expression(nowSQL)
	}
	values := append(stored.SagaFixedValues(st), stored.SagaChangedValues(st.SagaCondition, st.SagaTimes, st.SagaBody)...)
	values = append(values, held != nil, held, stuck)
	lock := ""
	for range createTries {
		if found, err := t.existingSaga(ctx, st, lock); err != nil || found != nil {
			return found, err
		}
		_, err := t.exec(ctx, createSagaSQL, values...)
		if err == nil {
			return nil, t.writeTransitions(ctx, []store.SagaChange{{
				Run: st.Run, Rev: 1, Aliases: st.Aliases, Labels: st.Labels, Transitions: []store.SagaTransition{st.Transition},
			}})
		}
		if t.s.cfg.ErrorCode(err) != codeDuplicate {
			return nil, err
		}
		lock = latestSQL
	}
	return nil, errUnsteady
}

// SetSagaVersion implements store.SagaStore.
func (s *Store) SetSagaVersion(ctx context.Context, tx *sql.Tx, run string, version int, hash string) error {
	return s.within("set the version of a saga", tx, func(t txn) error {
		var saga string
		if err := t.get(ctx, sagaOfSQL, []any{run}, &saga); errors.Is(err, sql.ErrNoRows) {
			return store.ErrNoSaga
		} else if err != nil {
			return err
		}
		_, err := t.exec(ctx, setSagaVersionSQL, version, hash, run)
		return err
	})
}

// existingSaga returns the instance that has the run or ID of a new one, or holds its key.
func (t txn) existingSaga(ctx context.Context, st store.SagaStart, lock string) (*store.SagaInstance, error) {
	for _, q := range []struct {
		text string
		args []any
	}{{sagaOfRunSQL, []any{st.Run}}, {sagaOfIDSQL, []any{st.ID}}, {sagaOfKeySQL, []any{st.Saga, st.Key}}} {
		found, err := t.instances(ctx, q.text+lock, q.args...)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
		}
	}
	return nil, nil
}

// SaveSagas implements store.SagaStore.
func (s *Store) SaveSagas(ctx context.Context, tx *sql.Tx, changes []store.SagaChange) error {
	changes = slices.SortedFunc(slices.Values(changes), func(a, b store.SagaChange) int { return strings.Compare(a.Run, b.Run) })
	return s.within("save sagas", tx, func(t txn) error {
		if slices.ContainsFunc(changes, func(c store.SagaChange) bool { return len(c.Transitions) == 0 }) {
			return fmt.Errorf("%w: a change has no transition", store.ErrSagaMoved)
		}
		for chunk := range inChunks(changes, sizeOfChange) {
			if err := t.saveSagas(ctx, chunk); err != nil {
				return err
			}
		}
		return nil
	})
}

// inChunks splits rows so that each INSERT or UPDATE stays below the limits.
func inChunks[T any](rows []T, size func(T) int) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(rows) > 0 {
			n, bytes := 0, 0
			for n < len(rows) && n < insertRows && (n == 0 || bytes+size(rows[n]) <= insertBytes) {
				bytes += size(rows[n])
				n++
			}
			if !yield(rows[:n:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}

func sizeOfChange(c store.SagaChange) int {
	n := rowOverhead + len(c.State) + len(c.Data) + len(c.Detail) + len(c.Waiting)
	for _, t := range c.Transitions {
		n += rowOverhead + len(t.Patch) + len(t.Note)
	}
	return n
}

func (t txn) saveSagas(ctx context.Context, changes []store.SagaChange) error {
	var rows []any
	for _, c := range changes {
		rows = append(rows, stored.SagaChangedValues(c.SagaCondition, c.SagaTimes, c.SagaBody)...)
		rows = append(rows, c.Run, c.Rev, c.Rev-int64(len(c.Transitions)), c.Status == store.SagaStuck, c.Status.Ended(), stored.Purgeable(c.Status))
	}
	n, err := t.exec(ctx, fmt.Sprintf(saveSagasSQL, firstChangedRow+strings.Repeat(changedRow, len(changes)-1)), rows...)
	if err == nil && n != int64(len(changes)) {
		err = store.ErrSagaMoved
	}
	if err != nil {
		return err
	}
	return t.writeTransitions(ctx, changes)
}

// writeTransitions writes the history, aliases and labels of changes.
func (t txn) writeTransitions(ctx context.Context, changes []store.SagaChange) error {
	var history []any
	for _, c := range changes {
		for i, tr := range c.Transitions {
			values, err := stored.TransitionValues(c.Run, c.Rev-int64(len(c.Transitions)-1-i), tr)
			if err != nil {
				return err
			}
			history = append(history, values...)
		}
	}
	const columns = 9
	if _, err := t.exec(ctx, writeHistorySQL+historyRow+strings.Repeat(`, `+historyRow, len(history)/columns-1), history...); err != nil {
		return err
	}
	for _, c := range changes {
		if err := t.nameSaga(ctx, c); err != nil {
			return fmt.Errorf("run %s: %w", c.Run, err)
		}
	}
	return nil
}

// nameSaga adds aliases and changes labels.
func (t txn) nameSaga(ctx context.Context, c store.SagaChange) error {
	var saga string
	if len(c.Aliases) > 0 {
		if err := t.get(ctx, sagaOfSQL, []any{c.Run}, &saga); err != nil {
			return err
		}
	}
	for _, a := range slices.SortedFunc(slices.Values(c.Aliases), compareAliases) {
		_, err := t.exec(ctx, addAliasSQL, saga, a.Name, a.Value, c.Run)
		if err == nil {
			continue
		}
		if t.s.cfg.ErrorCode(err) != codeDuplicate {
			return err
		}
		var has string
		if err := t.get(ctx, runOfAliasSQL+latestSQL, []any{saga, a.Name, a.Value}, &has); err != nil {
			return err
		}
		if has != c.Run {
			return fmt.Errorf("%w: %s %q", store.ErrSagaAliasTaken, a.Name, a.Value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		text, args := setLabelSQL, []any{c.Run, name, c.Labels[name]}
		if c.Labels[name] == "" {
			text, args = dropLabelSQL, args[:2]
		}
		if _, err := t.exec(ctx, text, args...); err != nil {
			return err
		}
	}
	return nil
}

func compareAliases(a, b store.SagaAlias) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
}
