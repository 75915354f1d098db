package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store/postgres"
)

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, scenariotest.Kit[pgx.Tx]{
		Open: func(t testing.TB) scenariotest.Store[pgx.Tx] { return cloned(t, dsn(t), postgres.Config{}, 16) },
	})
}
