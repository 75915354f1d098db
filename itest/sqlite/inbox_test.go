package sqlite_test

import (
	"testing"

	"github.com/postrider/postrider/store/sqlite"
)

// TestNothingIsCommittedAfterARollback: SQLite has rolled the transaction back, the error was ignored, and a savepoint
// has begun another transaction.
func TestNothingIsCommittedAfterARollback(t *testing.T) {
	t.Parallel()
	store := newStore(t, newFile(t).migrated(t, sqlite.Config{}), sqlite.Config{})
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := consumers.Undo(t.Context(), store, tx); err == nil {
		t.Fatal("nothing was rolled back")
	}
	if _, err := tx.ExecContext(t.Context(), `SAVEPOINT left_open`); err != nil {
		t.Fatal(err)
	}
	if err := store.Commit(t.Context(), tx); err == nil {
		t.Error("the commit has no error")
	}
}
