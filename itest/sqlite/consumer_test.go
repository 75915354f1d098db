package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/sqlite"
)

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		_, db := cloned(t, 4)
		return newStore(t, db, sqlite.Config{})
	},
	Bubble: true,
	Undo: func(ctx context.Context, _ inboxtest.Store[*sql.Tx], tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR ROLLBACK INTO postrider_meta SELECT * FROM postrider_meta`)
		return err
	},
	Histories: consumerHistories,
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers)
}
