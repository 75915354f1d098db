package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		_, db := shared.clone(t, server(t), 4)
		return newStore(t, db, mysqlstore.Config{})
	},
	LeaveWatermark: func(t testing.TB, s inboxtest.Store[*sql.Tx], consumer string, at postrider.Position) {
		t.Helper()
		ctx := context.Background()
		tx, err := s.Begin(ctx)
		must(t, err)
		_, err = tx.ExecContext(ctx, `INSERT INTO postrider_watermarks (consumer, partition_id, epoch, position, moved) VALUES (?, ?, ?, ?, 1)`,
			consumer, at.Partition, at.Incarnation, at.Offset)
		must(t, err)
		_, err = tx.ExecContext(ctx, `INSERT INTO postrider_watermark_marks (consumer, partition_id, epoch, slot, n, position, mark, consumed)
			VALUES (?, ?, ?, 0, 1, ?, ?, '')`, consumer, at.Partition, at.Incarnation, at.Offset, at.Mark)
		must(t, err)
		must(t, s.Commit(ctx, tx))
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
