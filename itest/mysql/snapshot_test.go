//go:build !race

package mysql_test

import (
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestFetchSeesAPredecessor: a snapshot of MariaDB may have a message without its predecessor, although that committed first (11 of
// 125,635 statements alongside 24 writers). Here the predecessor commits right after the statement of the fetch, which looks the
// same to the fetch: nothing may overtake it.
func TestFetchSeesAPredecessor(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	w := newWorld(t, d, mysqlstore.Config{})
	var version string
	must(t, w.db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	if !strings.Contains(version, "MariaDB") {
		t.Skip("MySQL takes a snapshot under a lock")
	}
	connector, err := mysql.NewConnector(d.config.Clone())
	must(t, err)
	meanwhile := func() {}
	db := sql.OpenDB(watched{connector, func(_ driver.Conn, query string) {
		if strings.Contains(query, "UNION ALL (SELECT 2, ") {
			meanwhile()
		}
	}})
	t.Cleanup(func() { must(t, db.Close()) })
	w.store = newStore(t, db, mysqlstore.Config{Partitions: 1})
	fetch := func(what string, during *sql.Tx, want ...string) {
		t.Helper()
		meanwhile = func() {
			if meanwhile = func() {}; during != nil {
				must(t, during.Commit())
			}
		}
		if got := w.fetch(); !slices.Equal(got, want) {
			t.Errorf("%s: fetched %v, want %v", what, got, want)
		}
	}

	tx := w.begin()
	first := w.insert(tx, "k")
	second := w.publish("k")
	fetch("its predecessor commits meanwhile", tx)
	fetch("both are there", nil, first, second)

	third, tx := w.publish("k"), w.begin()
	fourth := w.insert(tx, "k")
	fifth := w.publish("k")
	fetch("what comes before it is not left out", tx, third)
	fetch("the others follow", nil, fourth, fifth)

	tx = w.begin()
	late := w.insert(tx, "k")
	fetch("another key is not kept back by an open transaction", nil, []string{w.publish("other")}...)
	sixth := w.publish("k")
	fetch("the predecessor commits late", tx)
	fetch("the late one comes first", nil, late, sixth)
	fetch("that is all", nil)
}
