package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// ExplainDue reads what is due with a plan for any parameters, as in production, and returns the plan.
func (s *Store) ExplainDue(ctx context.Context, name string, req store.DueRequest) (string, error) {
	var lines []string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{planSQL, "set local plan_cache_mode = force_generic_plan", "prepare due as " + s.sql.due} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		// Parameters are in the text, since EXPLAIN would take them for constants otherwise.
		args := append([]any{pgx.QueryExecModeSimpleProtocol}, dueArgs(name, req)...)
		rows, err := tx.Query(ctx, "explain (analyze, buffers, timing off) execute due ($1, $2, $3, $4, $5, $6, $7, $8, $9)", args...)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "deallocate due")
		return err
	})
	return strings.Join(lines, "\n"), err
}
