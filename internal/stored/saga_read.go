package stored

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/store"
)

// SagaReader implements store.SagaReader for stores over database/sql.
type SagaReader struct {
	read ReadFunc
	sql  SagaStatements
}

// ReadFunc runs f in a transaction that sees one state of the database. now is its time in microseconds.
type ReadFunc func(ctx context.Context, doing string, f func(q Query, now int64) error) error

// SagaStatements are the statements of a SagaReader.
type SagaStatements struct {
	OfID, OfRun string // an instance
	OfIDs       string // summaries
	Count       string
	Aliases     string // of a run
	Labels      string // of a run
	History     string // of a run, after a revision, with a limit
	// List returns the statement for a page of summaries.
	List func(f store.SagaFilter, after string, limit int) (text string, args []any)
	// Set makes one parameter of a list.
	Set func(values []string) any
	// At adds the time to the parameters of a statement for instances, summaries or counts, if the statement has it as a parameter.
	At func(now int64, args []any) []any
}

// NewSagaReader returns a reader.
func NewSagaReader(read ReadFunc, statements SagaStatements) SagaReader {
	return SagaReader{read: read, sql: statements}
}

// SagaInstances returns the instances that a statement selects.
func SagaInstances(ctx context.Context, q Query, text string, args []any) (out []store.SagaInstance, err error) {
	var row SagaRow
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		i, err := row.Instance(rows.Scan)
		out = append(out, i)
		return err
	})
	return out, err
}

// ShowSaga implements store.SagaReader.
func (s SagaReader) ShowSaga(ctx context.Context, id string) (i store.SagaInstance, err error) {
	err = s.read(ctx, "show a saga", func(q Query, now int64) error {
		for _, text := range []string{s.sql.OfID, s.sql.OfRun} {
			found, err := SagaInstances(ctx, q, text, s.sql.At(now, []any{id}))
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

func (s SagaReader) summaries(ctx context.Context, doing, text string, args []any) (out []store.SagaSummary, err error) {
	err = s.read(ctx, doing, func(q Query, now int64) error {
		out = nil
		var row SagaRow
		return q.Each(ctx, text, s.sql.At(now, args), func(rows *sql.Rows) error {
			i, err := row.Summary(rows.Scan)
			out = append(out, i)
			return err
		})
	})
	return out, err
}

// SagasByID implements store.SagaReader.
func (s SagaReader) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	return s.summaries(ctx, "read sagas", s.sql.OfIDs, []any{s.sql.Set(ids)})
}

// ListSagas implements store.SagaReader.
func (s SagaReader) ListSagas(ctx context.Context, f store.SagaFilter, after string, limit int) ([]store.SagaSummary, error) {
	text, args := s.sql.List(f, after, limit)
	return s.summaries(ctx, "list sagas", text, args)
}

// SagaNames implements store.SagaReader.
func (s SagaReader) SagaNames(ctx context.Context, run string) (aliases []store.SagaAlias, labels map[string]string, err error) {
	err = s.read(ctx, "read the names of a saga", func(q Query, _ int64) error {
		aliases, labels = nil, make(map[string]string)
		err := q.Each(ctx, s.sql.Aliases, []any{run}, func(rows *sql.Rows) error {
			var a store.SagaAlias
			err := rows.Scan(&a.Name, &a.Value)
			aliases = append(aliases, a)
			return err
		})
		if err != nil {
			return err
		}
		return q.Each(ctx, s.sql.Labels, []any{run}, func(rows *sql.Rows) error {
			var name, value string
			err := rows.Scan(&name, &value)
			labels[name] = value
			return err
		})
	})
	return aliases, labels, err
}

// SagaHistory implements store.SagaReader.
func (s SagaReader) SagaHistory(ctx context.Context, run string, after int64, limit int) (out []store.SagaTransition, err error) {
	err = s.read(ctx, "read the history of a saga", func(q Query, _ int64) error {
		out = nil
		return q.Each(ctx, s.sql.History, []any{run, after, limit}, func(rows *sql.Rows) error {
			t, err := Transition(rows.Scan)
			out = append(out, t)
			return err
		})
	})
	return out, err
}

// CountSagas implements store.SagaReader.
func (s SagaReader) CountSagas(ctx context.Context) (out []store.SagaCount, err error) {
	err = s.read(ctx, "count sagas", func(q Query, now int64) error {
		out = nil
		return q.Each(ctx, s.sql.Count, s.sql.At(now, nil), func(rows *sql.Rows) error {
			var c store.SagaCount
			var oldest int64
			err := rows.Scan(&c.Engine, &c.Saga, &c.Version, &c.Kind, &c.Status, &c.Direction, &c.Count, &oldest)
			c.Oldest = Duration(oldest)
			out = append(out, c)
			return err
		})
	})
	return out, err
}
