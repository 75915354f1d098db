//go:build !race

package mysql_test

import (
	"slices"
	"testing"

	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestMigrationScripts: the statements for other tools make a working schema, and take it back.
func TestMigrationScripts(t *testing.T) {
	t.Parallel()
	scripts, err := mysqlstore.MigrationScripts(mysqlstore.Config{Partitions: 3})
	must(t, err)
	db := newDatabase(t).open(t, nil)
	run := func(statements []string) {
		t.Helper()
		for _, text := range statements {
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
		}
	}
	for _, s := range scripts {
		run(s.Up)
	}
	s, err := mysqlstore.New(db, mysqlstore.Config{})
	must(t, err)
	if n, err := s.Partitions(t.Context()); n != 3 || err != nil {
		t.Errorf("%d partitions, %v; want 3", n, err)
	}
	for _, s := range slices.Backward(scripts) {
		run(s.Down)
	}
	var left int
	err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d tables are left, %v", left, err)
	}
}
