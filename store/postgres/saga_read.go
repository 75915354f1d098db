package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaReader = (*Store)(nil)

const (
	sagaNamesSQL   = `select 'alias', name, value from {saga_aliases} where run = $1::text union all select 'label', name, value from {saga_labels} where run = $1::text order by 1, 2, 3`
	sagaHistorySQL = `
select rev, (extract(epoch from at) operator(pg_catalog.*) 1000000)::int8, input, step, message_id, actor, note, entries, patch from {saga_history}
where run = $1::text and rev > $2::int8 order by rev limit $3::int8`
	countSagasSQL = `
select engine, saga, version, kind, status, direction, count(*), (extract(epoch from clock_timestamp() - min(started_at)) operator(pg_catalog.*) 1000000)::int8
from {sagas} where ended_at is null group by engine, saga, version, kind, status, direction
order by engine, saga, version, kind, status, direction`
)

// readSagas runs queries that read what is committed. The desired plans are scans of an index; left alone, the planner reads whole
// tables that were empty when it planned.
func (s *Store) readSagas(ctx context.Context, doing string, queries ...query) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	for i := range queries {
		queries[i].sql = s.names.expand(queries[i].sql)
	}
	return translate(doing, s.runQueries(ctx, append([]query{{sql: txPlanSQL + ", " + formatSQL}}, queries...)...))
}

// ShowSaga implements store.SagaReader.
func (s *Store) ShowSaga(ctx context.Context, id string) (store.SagaInstance, error) {
	var byID, byRun []store.SagaInstance
	err := s.readSagas(ctx, "show a saga",
		query{sql: sagaInstanceSQL + `where s.id = $1::text`, args: []any{id}, row: instances(&byID)},
		query{sql: sagaInstanceSQL + `where s.run = $1::text`, args: []any{id}, row: instances(&byRun)})
	found := append(byID, byRun...)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", store.ErrNoSaga, id)
	}
	if err != nil {
		return store.SagaInstance{}, err
	}
	return found[0], nil
}

// summaries appends rows of summaries to a slice.
func summaries(into *[]store.SagaSummary) func(scan func(dest ...any) error) error {
	var row stored.SagaRow
	return func(scan func(dest ...any) error) error {
		i, err := row.Summary(scan)
		*into = append(*into, i)
		return err
	}
}

// SagasByID implements store.SagaReader.
func (s *Store) SagasByID(ctx context.Context, ids []string) (out []store.SagaSummary, err error) {
	err = s.readSagas(ctx, "read sagas",
		query{sql: sagaSummarySQL + `where s.id = any($1::text::text[])`, args: []any{array(ids, quoted)}, row: summaries(&out)})
	return out, err
}

// ListSagas implements store.SagaReader.
func (s *Store) ListSagas(ctx context.Context, f store.SagaFilter, after string, limit int) (out []store.SagaSummary, err error) {
	q := listSagas(f, after, limit)
	q.row = summaries(&out)
	return out, s.readSagas(ctx, "list sagas", q)
}

func listSagas(f store.SagaFilter, after string, limit int) (q query) {
	arg := func(value any) string {
		q.args = append(q.args, value)
		place := `$` + strconv.Itoa(len(q.args))
		if _, is := value.(string); is {
			return place + `::text`
		}
		return place + `::int8`
	}
	where := stored.SagaSQL{
		Labels:   `{saga_labels}`,
		Arg:      arg,
		Contains: func(text, part string) string { return `strpos(` + text + `, ` + part + `) > 0` },
		Age:      func(column string) string { return micros(`clock_timestamp() - ` + column) },
	}.Where(f, after)
	q.sql = sagaSummarySQL + `where ` + where + ` order by s.run limit ` + arg(int64(limit))
	return q
}

// SagaNames implements store.SagaReader.
func (s *Store) SagaNames(ctx context.Context, run string) (aliases []store.SagaAlias, labels map[string]string, err error) {
	labels = make(map[string]string)
	err = s.readSagas(ctx, "read the names of a saga", query{sql: sagaNamesSQL, args: []any{run}, row: func(scan func(dest ...any) error) error {
		var kind, name, value string
		err := scan(&kind, &name, &value)
		if kind == "alias" {
			aliases = append(aliases, store.SagaAlias{Name: name, Value: value})
		} else {
			labels[name] = value
		}
		return err
	}})
	return aliases, labels, err
}

// SagaHistory implements store.SagaReader.
func (s *Store) SagaHistory(ctx context.Context, run string, after int64, limit int) (out []store.SagaTransition, err error) {
	err = s.readSagas(ctx, "read the history of a saga", query{
		sql: sagaHistorySQL, args: []any{run, after, int64(limit)},
		row: func(scan func(dest ...any) error) error {
			t, err := stored.Transition(scan)
			out = append(out, t)
			return err
		},
	})
	return out, err
}

// CountSagas implements store.SagaReader.
func (s *Store) CountSagas(ctx context.Context) (out []store.SagaCount, err error) {
	err = s.readSagas(ctx, "count sagas", query{sql: countSagasSQL, row: func(scan func(dest ...any) error) error {
		var c store.SagaCount
		var oldest int64
		err := scan(&c.Engine, &c.Saga, &c.Version, &c.Kind, &c.Status, &c.Direction, &c.Count, &oldest)
		c.Oldest = time.Duration(oldest) * time.Microsecond
		out = append(out, c)
		return err
	}})
	return out, err
}
