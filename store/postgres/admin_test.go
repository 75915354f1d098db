//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// partitionsOf returns the partitions of the messages of a key, in order.
func (b *bundle) partitionsOf(t *testing.T, key string) []int {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), "select partition::int4 from "+b.table("log")+" where key = $1 order by seq", key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantPartition wants all n messages of a key in its partition among all.
func (b *bundle) wantPartition(t *testing.T, key string, n, all int) {
	t.Helper()
	got := b.partitionsOf(t, key)
	if len(got) != n {
		t.Errorf("%d messages of %s, want %d", len(got), key, n)
	}
	for _, p := range got {
		if want := postrider.PartitionOf(key, "", all); p != want {
			t.Errorf("a message of %s is in partition %d of %d, want %d", key, p, all, want)
		}
	}
}

// A transaction whose snapshot is older than the change reads the old number from the table, at any isolation level.
func TestSnapshotsFromBeforeTheChangeWriteForTheNewNumber(t *testing.T) {
	t.Parallel()
	const key = "order/7"
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{Partitions: 8})
			begin := func() pgx.Tx {
				tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				if n := one[int](t, tx, "select partitions::int4 from "+b.table("meta")); n != 8 {
					t.Fatalf("%d partitions", n)
				}
				return tx
			}
			// Each statement is prepared, with a plan, before the change.
			b.publish(t, key)
			b.publishSQL(t, b.pool, key)
			stale := open(t, b.pool, b.config)
			goes, calls := begin(), begin()
			other := open(t, newPool(t, dsn(t), 2), b.config)
			if err := other.Repartition(t.Context(), 61); err != nil {
				t.Fatal(err)
			}
			if err := stale.Insert(t.Context(), goes, withKey(newMessages(2), key)); err != nil {
				t.Fatal(err)
			}
			b.publishSQL(t, calls, key)
			for _, tx := range []pgx.Tx{goes, calls} {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			b.publish(t, key)
			b.wantPartition(t, key, 6, 61)
		})
	}
}

func withKey(msgs []*postrider.Message, key string) []*postrider.Message {
	for _, m := range msgs {
		m.Key = key
	}
	return msgs
}

// publish writes a message in a transaction of its own.
func (b *bundle) publish(t *testing.T, key string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return b.Insert(t.Context(), tx, withKey(newMessages(1), key))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) publishSQL(t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, key string) {
	t.Helper()
	one[string](t, q, "select "+b.table("publish")+"('orders', $1::text, 'order.placed', '{}'::jsonb)", key)
}

// Publishers that wait for the change continue with the new number, however they publish.
func TestPublishersWaitForTheStep(t *testing.T) {
	t.Parallel()
	const key = "order/7"
	b := setup(t, postgres.Config{Partitions: 8})
	b.publish(t, key)
	b.publishSQL(t, b.pool, key)
	db := stdlib.OpenDBFromPool(b.pool)
	t.Cleanup(func() { _ = db.Close() })
	stale := open(t, b.pool, b.config).SQL(db)
	ctx := t.Context()

	// The change, stopped where everything is locked.
	blocker, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(ctx, "lock table "+b.table("log")+" in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	publish := []func() error{
		func() error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.Insert(ctx, tx, withKey(newMessages(1), key)) })
		},
		func() error {
			_, err := b.pool.Exec(ctx, "select "+b.table("publish")+"('orders', $1::text, 'order.placed', '{}'::jsonb)", key)
			return err
		},
		func() error {
			tx, err := stale.Begin(ctx)
			if err != nil {
				return err
			}
			if err := stale.Insert(ctx, tx, withKey(newMessages(2), key)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
	}
	for _, f := range publish {
		go func() { ended <- f() }()
	}
	b.awaitWaiters(t, len(publish))
	if err := b.RepartitionIn(ctx, blocker, 61); err != nil {
		t.Fatal(err)
	}
	if err := blocker.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for range publish {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	b.wantPartition(t, key, 6, 61)
}

// awaitWaiters waits until n sessions wait for the log.
func (b *bundle) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	for {
		waiting := one[int](t, b.pool, "select count(*)::int4 from pg_locks where relation = $1::text::regclass and not granted and "+locksHere, b.table("log"))
		if waiting == n {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d of %d wait", waiting, n)
		}
	}
}

func TestRepartitionSaysWhoIsInItsWay(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := b.Insert(t.Context(), tx, newMessages(1)); err != nil {
			return err
		}
		err := b.Repartition(t.Context(), 4)
		if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "pg_stat_activity") {
			t.Errorf("beside an open transaction: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repartition(t.Context(), 4); err != nil {
		t.Error(err)
	}
}
