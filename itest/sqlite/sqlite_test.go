// Package sqlite_test tests store/sqlite against the stores' contract, and against problems specific to SQLite, with the
// modernc.org/sqlite driver.
package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/store/sqlite"
)

// file is a database file for tests.
type file string

func newFile(t testing.TB) file {
	t.Helper()
	return file(filepath.Join(t.TempDir(), "outbox.db"))
}

// open opens the file, with options of the driver such as "_pragma=synchronous(off)". There is no busy_timeout by
// default: the store does its own waiting.
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

// migrated opens the file after migrating it.
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
