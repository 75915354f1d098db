// Package sqlite_test tests store/sqlite against the stores' contract, and against problems specific to SQLite, with the
// modernc.org/sqlite driver.
package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"sync"
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
	u := url.URL{Scheme: "file", Path: string(f), RawQuery: options} // the names of subtests may have a #
	db, err := sql.Open("sqlite", u.String())
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

// templates are the functions that return the content of a file with a migrated outbox, by number of partitions.
var templates sync.Map

// cloned creates and opens a file with an outbox. Copying a migrated file takes a fraction of the time of the migrations.
func cloned(t testing.TB, partitions int) (file, *sql.DB) {
	t.Helper()
	create, _ := templates.LoadOrStore(partitions, sync.OnceValues(func() ([]byte, error) { return template(partitions) }))
	content, err := create.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	f := newFile(t)
	if err := os.WriteFile(string(f), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return f, f.open(t, "")
}

func template(partitions int) (content []byte, err error) {
	dir, err := os.MkdirTemp("", "postrider-template-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "outbox.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return nil, err
	}
	_, err = sqlite.Migrate(context.Background(), db, sqlite.Config{Partitions: partitions}, sqlite.Latest)
	if err := errors.Join(err, db.Close()); err != nil { // closing the last connection moves the WAL into the file
		return nil, err
	}
	return os.ReadFile(path)
}

func newStore(t testing.TB, db *sql.DB, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
