//go:build !race

package mysql_test

import (
	"database/sql"
	"testing"

	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/storetest"
)

func TestMigrateKinds(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			_, err := mysqlstore.Migrate(t.Context(), s.(opened).database.open(t, nil), mysqlstore.Config{}, to)
			must(t, err)
		}
	}
	storetest.MigrateKinds(t, features, harness, storetest.KindMigration[*sql.Tx]{
		Down: migrate(8), Up: migrate(mysqlstore.Latest),
		Begin: func(t testing.TB, s storetest.Store[*sql.Tx], name string, position int64) {
			t.Helper()
			db := s.(opened).database.open(t, nil)
			for p := range 4 {
				_, err := db.ExecContext(t.Context(), `INSERT IGNORE INTO postrider_cursors (relay, partition_id, position, gaps, settled_at, incarnation)
					VALUES (?, ?, ?, '', 1, '')`, name, p, position)
				must(t, err)
			}
		},
		Consumers: func(t testing.TB, s storetest.Store[*sql.Tx]) (names []string) {
			t.Helper()
			rows, err := s.(opened).database.open(t, nil).QueryContext(t.Context(),
				`SELECT DISTINCT relay FROM postrider_cursors WHERE position = ? ORDER BY relay`, int64(storetest.OldConsumerPosition))
			must(t, err)
			defer rows.Close()
			for rows.Next() {
				var name string
				must(t, rows.Scan(&name))
				names = append(names, name)
			}
			must(t, rows.Err())
			return names
		},
	})
}
