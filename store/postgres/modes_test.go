package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestStoreInEveryExecMode runs the suite in the modes other than the default one: without prepared statements, with
// results in text format, with parameters that nobody described.
func TestStoreInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			conformance(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		})
	}
}
