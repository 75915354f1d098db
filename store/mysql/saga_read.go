package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaReader = (*Store)(nil)

var (
	sagaSummarySQL = `SELECT ` + stored.SagaColumns(`{now}`, asIs) + ` FROM {prefix}sagas s `
	sagasByIDSQL   = sagaSummarySQL + `WHERE s.id IN ?`
)

const (
	sagaAliasesSQL = `SELECT name, value FROM {prefix}saga_aliases WHERE run = ? ORDER BY name, value`
	sagaLabelsSQL  = `SELECT name, value FROM {prefix}saga_labels WHERE run = ?`
	sagaHistorySQL = `SELECT rev, at, input, step, message_id, actor, note, entries, patch FROM {prefix}saga_history
		WHERE run = ? AND rev > ? ORDER BY rev LIMIT ?`
	// openSagasSQL: left alone, the server reads all instances in the order of their runs.
	openSagasSQL  = `FORCE INDEX ({prefix}sagas_open) `
	countSagasSQL = `SELECT engine, saga, version, kind, status, direction, COUNT(*), {now} - MIN(started_at) FROM {prefix}sagas ` + openSagasSQL + `
		WHERE ended_at IS NULL GROUP BY engine, saga, version, kind, status, direction ORDER BY 1, 2, 3, 4, 5, 6`
)

// ShowSaga implements store.SagaReader.
func (s *Store) ShowSaga(ctx context.Context, id string) (i store.SagaInstance, err error) {
	err = s.read(ctx, "show a saga", func(t txn) error {
		for _, text := range []string{sagaOfIDSQL, sagaOfRunSQL} {
			found, err := t.instances(ctx, text, id)
			if err != nil {
				return err
			}
			if len(found) > 0 {
				i = found[0]
				return nil
			}
		}
		return fmt.Errorf("%w: %s", store.ErrNoSaga, id)
	})
	return i, err
}

// summaries returns the summaries that a statement selects.
func (t txn) summaries(ctx context.Context, text string, args ...any) (out []store.SagaSummary, err error) {
	var row stored.SagaRow
	err = t.each(ctx, text, args, func(rows *sql.Rows) error {
		i, err := row.Summary(rows.Scan)
		out = append(out, i)
		return err
	})
	return out, err
}

// SagasByID implements store.SagaReader.
func (s *Store) SagasByID(ctx context.Context, ids []string) (out []store.SagaSummary, err error) {
	err = s.read(ctx, "read sagas", func(t txn) error {
		out, err = t.summaries(ctx, sagasByIDSQL, ids)
		return err
	})
	return out, err
}

// ListSagas implements store.SagaReader.
func (s *Store) ListSagas(ctx context.Context, f store.SagaFilter, after string, limit int) (out []store.SagaSummary, err error) {
	err = s.read(ctx, "list sagas", func(t txn) error {
		text, args := listSagas(f, after, limit)
		out, err = t.summaries(ctx, text, args...)
		return err
	})
	return out, err
}

// listSagas returns the statement that lists sagas, and its parameters.
func listSagas(f store.SagaFilter, after string, limit int) (text string, args []any) {
	where := stored.SagaSQL{
		Labels:   `{prefix}saga_labels`,
		Arg:      func(value any) string { args = append(args, value); return `?` },
		Contains: func(text, part string) string { return `LOCATE(` + part + `, ` + text + `) > 0` },
		Age:      func(column string) string { return `{now} - ` + column },
	}.Where(f, after)
	index := ""
	if stored.OnlyOpen(f) {
		index = openSagasSQL
	}
	return sagaSummarySQL + index + `WHERE ` + where + ` ORDER BY s.run LIMIT ?`, append(args, limit)
}

// SagaNames implements store.SagaReader.
func (s *Store) SagaNames(ctx context.Context, run string) (aliases []store.SagaAlias, labels map[string]string, err error) {
	labels = make(map[string]string)
	err = s.read(ctx, "read the names of a saga", func(t txn) error {
		err := t.each(ctx, sagaAliasesSQL, []any{run}, func(rows *sql.Rows) error {
			var a store.SagaAlias
			err := rows.Scan(&a.Name, &a.Value)
			aliases = append(aliases, a)
			return err
		})
		if err != nil {
			return err
		}
		return t.each(ctx, sagaLabelsSQL, []any{run}, func(rows *sql.Rows) error {
			var name, value string
			err := rows.Scan(&name, &value)
			labels[name] = value
			return err
		})
	})
	return aliases, labels, err
}

// SagaHistory implements store.SagaReader.
func (s *Store) SagaHistory(ctx context.Context, run string, after int64, limit int) (out []store.SagaTransition, err error) {
	err = s.read(ctx, "read the history of a saga", func(t txn) error {
		return t.each(ctx, sagaHistorySQL, []any{run, after, limit}, func(rows *sql.Rows) error {
			tr, err := stored.Transition(rows.Scan)
			out = append(out, tr)
			return err
		})
	})
	return out, err
}

// CountSagas implements store.SagaReader.
func (s *Store) CountSagas(ctx context.Context) (out []store.SagaCount, err error) {
	err = s.read(ctx, "count sagas", func(t txn) error {
		return t.each(ctx, countSagasSQL, nil, func(rows *sql.Rows) error {
			var c store.SagaCount
			var oldest int64
			err := rows.Scan(&c.Engine, &c.Saga, &c.Version, &c.Kind, &c.Status, &c.Direction, &c.Count, &oldest)
			c.Oldest = time.Duration(oldest) * time.Microsecond
			out = append(out, c)
			return err
		})
	})
	return out, err
}
