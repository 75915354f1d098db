package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/sqlite"
)

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		_, db := cloned(t, 4)
		return newStore(t, db, sqlite.Config{})
	},
	LeaveWatermark: func(t testing.TB, s inboxtest.Store[*sql.Tx], consumer string, at postrider.Position) {
		t.Helper()
		ctx := context.Background()
		tx, err := s.Begin(ctx)
		check(t, err)
		_, err = tx.ExecContext(ctx, `INSERT INTO postrider_watermarks (consumer, partition, epoch, position, moved) VALUES (?, ?, ?, ?, 1)`,
			consumer, at.Partition, at.Incarnation, at.Offset)
		check(t, err)
		_, err = tx.ExecContext(ctx, `INSERT INTO postrider_watermark_marks (consumer, partition, epoch, slot, n, position, mark, consumed)
			VALUES (?, ?, ?, 0, 1, ?, ?, x'')`, consumer, at.Partition, at.Incarnation, at.Offset, at.Mark)
		check(t, err)
		check(t, s.Commit(ctx, tx))
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
