package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/sqlite"
)

// consumed is a store with its database.
type consumed struct {
	*sqlite.Store
	db *sql.DB
}

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		_, db := cloned(t, 4)
		return consumed{newStore(t, db, sqlite.Config{}), db}
	},
	MigrateWatermarks: func(t testing.TB, s inboxtest.Store[*sql.Tx], left []inboxtest.Watermark) {
		t.Helper()
		ctx, db := context.Background(), s.(consumed).db
		_, err := sqlite.Migrate(ctx, db, sqlite.Config{}, 15)
		check(t, err)
		for i, w := range left {
			_, err = db.ExecContext(ctx, `INSERT INTO postrider_watermarks (consumer, partition, epoch, position, moved) VALUES (?, ?, ?, ?, ?)`,
				w.Consumer, w.At.Partition, w.At.Incarnation, w.At.Offset, i+1)
			check(t, err)
			_, err = db.ExecContext(ctx, `INSERT INTO postrider_watermark_marks (consumer, partition, epoch, slot, n, position, mark, consumed)
				VALUES (?, ?, ?, 0, 1, ?, ?, x'')`, w.Consumer, w.At.Partition, w.At.Incarnation, w.At.Offset, w.At.Mark)
			check(t, err)
		}
		_, err = sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest)
		check(t, err)
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
