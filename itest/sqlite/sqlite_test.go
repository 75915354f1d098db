// Package sqlite_test holds store/sqlite to the stores' contract, and tries what only SQLite can suffer from, with the
// modernc.org/sqlite driver.
package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/store/sqlite"
)

// file is a database file and how tests open it.
type file string

func newFile(t testing.TB) file {
	t.Helper()
	return file(filepath.Join(t.TempDir(), "outbox.db"))
}

// open opens the file, with options of the driver such as "_pragma=synchronous(off)". There is no busy_timeout by default: the
// store waits by itself.
func (f file) open(t testing.TB, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+string(f)+"?"+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// migrated opens the file with the schema in it.
func (f file) migrated(t testing.TB, cfg sqlite.Config) *sql.DB {
	t.Helper()
	db := f.open(t, "")
	if _, err := sqlite.Migrate(t.Context(), db, cfg, sqlite.Latest); err != nil {
		t.Fatal(err)
	}
	return db
}

func newStore(t testing.TB, db *sql.DB, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
