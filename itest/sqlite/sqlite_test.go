// Package sqlite_test holds store/sqlite to the stores' contract, and tries what only SQLite can suffer from, with the
// modernc.org/sqlite driver.
package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/sqlite"
	"github.com/postrider/postrider/store/storetest"
)

// file is a database file and how tests open it.
type file string

func newFile(t testing.TB) file {
	t.Helper()
	return file(filepath.Join(t.TempDir(), "outbox.db"))
}

// open opens the file, with more options of the driver such as "&_pragma=busy_timeout(1)".
func (f file) open(t testing.TB, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+string(f)+"?_pragma=busy_timeout(5000)"+options)
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

// opened is a store that knows its file.
type opened struct {
	*sqlite.Store
	db   *sql.DB
	file file
}

func TestContract(t *testing.T) {
	t.Parallel()
	statement := func(format string) func(context.Context, *sql.Tx, string) error {
		return func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf(format, name))
			return err
		}
	}
	storetest.Run(t, storetest.Features{
		Bubble:    true,
		OneWriter: "SQLite has one writer at a time: a transaction that began to write later commits later",
	}, storetest.Harness[*sql.Tx]{
		Open: func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
			f := newFile(t)
			db := f.migrated(t, sqlite.Config{Partitions: partitions})
			return opened{newStore(t, db, sqlite.Config{}), db, f}
		},
		Reopen: func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
			f := s.(opened).file
			db := f.open(t, "")
			return opened{newStore(t, db, sqlite.Config{}), db, f}
		},
		Savepoint:  statement("SAVEPOINT %s"),
		RollbackTo: statement("ROLLBACK TO %s"),
		InsertUndecodable: func(ctx context.Context, s storetest.Store[*sql.Tx], tx *sql.Tx, m *postrider.Message) error {
			if err := s.Insert(ctx, tx, []*postrider.Message{m}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE postrider_log SET headers = '{"a": ' WHERE id = ?`, m.ID)
			return err
		},
	})
}
