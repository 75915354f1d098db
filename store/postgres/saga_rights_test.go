//go:build !race

package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRightsOfSagas: the rights listed in docs/sql-contract.md are enough to start sagas, and to take part in them.
func TestRightsOfSagas(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{})
	schema := owner.config.Schema
	as := func(name string, grants ...string) *bundle {
		role := schema + "_" + name
		owner.exec(t, "create role "+role)
		t.Cleanup(func() { owner.exec(t, "drop owned by "+role); owner.exec(t, "drop role "+role) })
		for _, grant := range append(grants, "usage on schema "+schema) {
			owner.exec(t, fmt.Sprintf("grant %s to %s", grant, role))
		}
		pool := newPool(t, withParam(t, dsn(t), "role", role), 2)
		s, err := postgres.New(pool, owner.config)
		must(t, err)
		return &bundle{Store: s, pool: pool, config: owner.config}
	}
	var tables []string
	for _, table := range []string{"sagas", "saga_history", "saga_aliases", "saga_labels"} {
		tables = append(tables, owner.table(table))
	}
	starter := as("starter", "select, insert, update on "+strings.Join(tables, ", "), "delete on "+owner.table("saga_labels"))
	st := sagaStarts(1)
	st[0].Aliases, st[0].Labels = []store.SagaAlias{{Name: "payment", Value: "1"}}, map[string]string{"customer": "42"}
	runs := starter.createSagas(t, st)
	starter.createSagas(t, st)
	must(t, starter.transition(t.Context(), runs, func(c *store.SagaChange) { c.Status = store.SagaCompleted }))

	participant := as("participant", "select, insert, update, delete on "+owner.table("saga_records"))
	steps := []store.SagaStep{{Run: runs[0], Step: "a"}, {Run: runs[0], Step: "b"}}
	must(t, pgx.BeginFunc(t.Context(), participant.pool, func(tx pgx.Tx) error {
		records, _, err := participant.LockSagaRecords(t.Context(), tx, "p", steps)
		if err != nil {
			return err
		}
		records[0].State = store.SagaStepDone
		if err := participant.SaveSagaRecords(t.Context(), tx, "p", records); err != nil {
			return err
		}
		return participant.CloseSagaRuns(t.Context(), tx, "p", runs)
	}))
}
