package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/postrider/postrider/store/sqlite"
	"github.com/postrider/postrider/store/storetest"
)

func TestMigrateKinds(t *testing.T) {
	t.Parallel()
	migrate := func(to int) func(t testing.TB, s storetest.Store[*sql.Tx]) {
		return func(t testing.TB, s storetest.Store[*sql.Tx]) {
			t.Helper()
			if _, err := sqlite.Migrate(t.Context(), s.(opened).file.open(t, ""), sqlite.Config{}, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MigrateKinds(t, features, harness, storetest.KindMigration[*sql.Tx]{
		Down: migrate(9), Up: migrate(sqlite.Latest),
		Begin: func(t testing.TB, s storetest.Store[*sql.Tx], name string, position int64) {
			t.Helper()
			db := s.(opened).file.open(t, "")
			for p := range 4 {
				if _, err := db.ExecContext(t.Context(), `INSERT INTO postrider_cursors (relay, partition, position, settled_at)
					VALUES (?, ?, ?, 1)`, name, p, position); err != nil {
					t.Fatal(err)
				}
			}
		},
		Consumers: func(t testing.TB, s storetest.Store[*sql.Tx]) (names []string) {
			t.Helper()
			rows, err := s.(opened).file.open(t, "").QueryContext(t.Context(),
				`SELECT DISTINCT relay FROM postrider_cursors WHERE position = ? ORDER BY relay`, int64(storetest.OldConsumerPosition))
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var name string
				if err := rows.Scan(&name); err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return names
		},
	})
}
