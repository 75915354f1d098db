package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// ExplainSagas returns the plan, for any parameters, of each statement that finds instances or records of sagas.
func (s *Store) ExplainSagas(ctx context.Context, lists map[string]store.SagaFilter) (map[string]string, error) {
	out := make(map[string]string)
	var err error
	explain := func(name, before, sql string, parameters int) {
		if err == nil {
			out[name], err = s.explainGeneric(ctx, before, s.names.expand(sql), parameters)
		}
	}
	for name, f := range lists {
		q := listSagas(f, "", 10)
		explain(name, txPlanSQL, q.sql, len(q.args))
	}
	explain("count", txPlanSQL, countSagasSQL, 0)
	explain("by ID", txPlanSQL, sagaSummarySQL+`where s.id = any($1::text::text[])`, 1)
	explain("purge", settlePlanSQL, lockOldSagasSQL, 3)
	explain("purge records", settlePlanSQL, purgeRecordsSQL, 3)
	const none = `select 1`
	explain("load", none, loadSagasSQL, 1)
	explain("find", none, findSagasSQL, 5)
	explain("existing", none, existingSagasSQL, 4)
	explain("save", none, saveSagasSQL, 17)
	explain("lock records", none, lockRecordsSQL, 3)
	explain("save records", none, saveRecordsSQL, 10)
	explain("close runs", none, closeRunsSQL, 2)
	return out, err
}

func (s *Store) explainGeneric(ctx context.Context, before, sql string, parameters int) (string, error) {
	var lines []string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{before, "set local plan_cache_mode = force_generic_plan", "prepare explained as " + sql} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		execute := "explain (costs off) execute explained"
		if parameters > 0 {
			execute += " (null" + strings.Repeat(", null", parameters-1) + ")"
		}
		rows, err := tx.Query(ctx, execute)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "deallocate explained")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", sql, err)
	}
	return strings.Join(lines, "\n"), nil
}
