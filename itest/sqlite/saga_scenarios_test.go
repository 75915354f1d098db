package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store/sqlite"
)

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, scenariotest.Kit[*sql.Tx]{
		Open: func(t testing.TB) scenariotest.Store[*sql.Tx] {
			return newStore(t, newFile(t).migrated(t, sqlite.Config{}), sqlite.Config{})
		},
		Bubble: true,
	})
}
