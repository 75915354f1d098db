package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/sqlite"
	"github.com/postrider/postrider/store/storetest"
)

// opened is a store that knows its file.
type opened struct {
	*sqlite.Store
	file file
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, features, harness)
}

var features = storetest.Features{
	Bubble:    true,
	Histories: modelHistories,
	OneWriter: "SQLite has one writer at a time: a transaction that began to write later commits later",
}

var harness = storetest.Harness[*sql.Tx]{
	Open: func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
		f, db := cloned(t, partitions)
		return opened{newStore(t, db, sqlite.Config{}), f}
	},
	Reopen: func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
		f := s.(opened).file
		db := f.open(t, "")
		return opened{newStore(t, db, sqlite.Config{}), f}
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
}

func statement(format string) func(context.Context, *sql.Tx, string) error {
	return func(ctx context.Context, tx *sql.Tx, name string) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(format, name))
		return err
	}
}
