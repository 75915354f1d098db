//go:build !race

package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestStatementAfterTheEnd: while a transaction is committed or rolled back, another goroutine still uses its *sql.Tx.
// Its statement runs after the end, and before the *sql.Tx knows of it. Its changes must not be committed.
func TestStatementAfterTheEnd(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	plain := d.migrated(t, nil, mysqlstore.Config{})
	exec(t, plain, `CREATE TABLE late (statement VARCHAR(500))`)
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	tried := 0
	db := sql.OpenDB(watched{connector, func(conn driver.Conn, statement string) {
		if !strings.Contains(statement, "AND CHAIN") {
			return
		}
		tried++
		late := `INSERT INTO late VALUES ('behind ` + statement + `')`
		if _, err := conn.(driver.ExecerContext).ExecContext(t.Context(), late, nil); err != nil {
			t.Error(err)
		}
	}})
	t.Cleanup(func() { must(t, db.Close()) })
	s := newStore(t, db, mysqlstore.Config{})
	for _, end := range []func(context.Context, *sql.Tx) error{s.Commit, s.Rollback} {
		tx, err := s.Begin(t.Context())
		must(t, err)
		must(t, end(t.Context(), tx))
	}
	if tried != 2 {
		t.Errorf("%d statements were tried, want 2", tried)
	}
	var committed sql.Null[string]
	must(t, plain.QueryRow(`SELECT GROUP_CONCAT(statement) FROM late`).Scan(&committed))
	if committed.Valid {
		t.Errorf("committed: %s", committed.V)
	}
}
