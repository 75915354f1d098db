package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// consumed is a store with its database.
type consumed struct {
	*mysqlstore.Store
	db *sql.DB
}

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		_, db := shared.clone(t, server(t), 4)
		return consumed{newStore(t, db, mysqlstore.Config{}), db}
	},
	MigrateWatermarks: func(t testing.TB, s inboxtest.Store[*sql.Tx], left []inboxtest.Watermark) {
		t.Helper()
		ctx, db := context.Background(), s.(consumed).db
		_, err := mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, 15)
		must(t, err)
		for i, w := range left {
			_, err = db.ExecContext(ctx, `INSERT INTO postrider_watermarks (consumer, partition_id, epoch, position, moved) VALUES (?, ?, ?, ?, ?)`,
				w.Consumer, w.At.Partition, w.At.Incarnation, w.At.Offset, i+1)
			must(t, err)
			_, err = db.ExecContext(ctx, `INSERT INTO postrider_watermark_marks (consumer, partition_id, epoch, slot, n, position, mark, consumed)
				VALUES (?, ?, ?, 0, 1, ?, ?, '')`, w.Consumer, w.At.Partition, w.At.Incarnation, w.At.Offset, w.At.Mark)
			must(t, err)
		}
		_, err = mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, mysqlstore.Latest)
		must(t, err)
	},
	Undo:      deadlock,
	Histories: 2,
}

// deadlock makes tx the victim of a deadlock: the other transaction has more changes.
func deadlock(ctx context.Context, s inboxtest.Store[*sql.Tx], tx *sql.Tx) error {
	claim := func(tx *sql.Tx, ids ...string) error {
		var msgs []store.ClaimRequest
		for _, id := range ids {
			msgs = append(msgs, store.ClaimRequest{ID: id})
		}
		_, err := s.Claim(ctx, tx, "deadlock", msgs)
		return err
	}
	heavy := []string{"one"}
	for i := range 500 {
		heavy = append(heavy, fmt.Sprint("heavy-", i))
	}
	other, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Rollback(ctx, other) }()
	if err := errors.Join(claim(other, heavy...), claim(tx, "two")); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- claim(other, "two") }()
	err = claim(tx, "one")
	if lost := <-done; lost != nil || !errors.Is(err, mysqlstore.ErrDeadlock) {
		panic(fmt.Sprintf("not the victim: %v; the other: %v", err, lost))
	}
	return err
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers)
}

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers)
}
