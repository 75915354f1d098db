package sqlite

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaReader = (*Store)(nil)

var (
	sagaSummarySQL = `SELECT ` + stored.SagaColumns(`?1`, asIs) + ` FROM {prefix}sagas s WHERE `
	sagasByIDSQL   = sagaSummarySQL + `s.id IN (SELECT value FROM json_each(?2))`
)

const (
	sagaAliasesSQL = `SELECT name, value FROM {prefix}saga_aliases WHERE run = ? ORDER BY name, value`
	sagaLabelsSQL  = `SELECT name, value FROM {prefix}saga_labels WHERE run = ?`
	sagaHistorySQL = `SELECT rev, at, input, step, message_id, actor, note, entries, patch FROM {prefix}saga_history
		WHERE run = ? AND rev > ? ORDER BY rev LIMIT +?`
	countSagasSQL = `SELECT engine, saga, version, kind, status, direction, count(*), ?1 - min(started_at) FROM {prefix}sagas
		WHERE ended_at IS NULL GROUP BY engine, saga, version, kind, status, direction ORDER BY 1, 2, 3, 4, 5, 6`
)

// sagaReader implements store.SagaReader.
type sagaReader = stored.SagaReader

func (s *Store) newSagaReader() sagaReader {
	return stored.NewSagaReader(func(ctx context.Context, doing string, f func(q stored.Query, now int64) error) error {
		return s.read(ctx, doing, func(t txn) error { return f(t.query, t.now) })
	}, stored.SagaStatements{
		OfID: sagaOfIDSQL, OfRun: sagaOfRunSQL, OfIDs: sagasByIDSQL, Count: countSagasSQL, Aliases: sagaAliasesSQL, Labels: sagaLabelsSQL,
		History: sagaHistorySQL, List: listSagas,
		Set: func(values []string) any { return list(values) },
		At:  func(now int64, args []any) []any { return append([]any{now}, args...) },
	})
}

// listSagas returns the statement that lists sagas, and its parameters after the time.
func listSagas(f store.SagaFilter, after string, limit int) (text string, args []any) {
	where := stored.SagaSQL{
		Labels:   `{prefix}saga_labels`,
		Arg:      func(value any) string { args = append(args, value); return `?` },
		Contains: func(text, part string) string { return `instr(` + text + `, ` + part + `) > 0` },
		Age:      func(column string) string { return `?1 - ` + column },
	}.Where(f, after)
	return sagaSummarySQL + where + ` ORDER BY s.run LIMIT +?`, append(args, limit)
}
