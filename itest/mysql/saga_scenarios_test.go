package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/postrider/postrider/saga/scenariotest"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, scenariotest.Kit[*sql.Tx]{
		Open: func(t testing.TB) scenariotest.Store[*sql.Tx] {
			return newStore(t, newDatabase(t).migrated(t, nil, mysqlstore.Config{}), mysqlstore.Config{})
		},
	})
}
