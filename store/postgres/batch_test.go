//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestBatchWritesWithTheBusiness sends one message, and then several, in one round trip with another row.
func TestBatchWritesWithTheBusiness(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 7})
	b.exec(t, "create table "+b.table("orders")+" (id int primary key)")
	msgs := oddMessages()
	send := func(order int) error {
		batch := &pgx.Batch{}
		batch.Queue("insert into "+b.table("orders")+" values ($1)", order)
		for _, part := range [][]*postrider.Message{msgs[:1], msgs[1:]} {
			if err := b.Batch().Insert(t.Context(), batch, part); err != nil {
				t.Fatal(err)
			}
		}
		return b.pool.SendBatch(t.Context(), batch).Close()
	}
	if err := send(1); err != nil {
		t.Fatal(err)
	}
	if err := send(1); err == nil {
		t.Error("a second order of the same number was taken")
	}
	got := b.all(t)
	if len(got) != len(msgs) {
		t.Fatalf("%d messages of %d", len(got), len(msgs))
	}
	for i, r := range got {
		m := *r.Message
		m.Sequence, m.CreatedAt = 0, time.Time{}
		if a, b := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", *msgs[i]); a != b || r.Err != nil {
			t.Errorf("%v: got\n%s, want\n%s", r.Err, a, b)
		}
		partition := one[int](t, b.pool, "select partition::int4 from "+b.table("log")+" where id = $1", m.ID)
		if want := postrider.PartitionOf(m.Key, m.ID, 7); partition != want {
			t.Errorf("message %s is in partition %d, want %d", m.ID, partition, want)
		}
	}
}

// A batch queued before the number of partitions changed, with statements prepared before, uses the new number.
func TestBatchGoesByThePresentNumberOfPartitions(t *testing.T) {
	t.Parallel()
	const key = "order/7"
	b := setup(t, postgres.Config{Partitions: 8})
	queue := func() *pgx.Batch {
		batch := &pgx.Batch{}
		for _, n := range []int{1, 2} {
			if err := b.Batch().Insert(t.Context(), batch, withKey(newMessages(n), key)); err != nil {
				t.Fatal(err)
			}
		}
		return batch
	}
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 10 { // the server replans the first few times
		if err := conn.SendBatch(t.Context(), queue()).Close(); err != nil {
			t.Fatal(err)
		}
	}
	late := queue()
	other := open(t, newPool(t, dsn(t), 2), b.config)
	if err := other.Repartition(t.Context(), 61); err != nil {
		t.Fatal(err)
	}
	if err := conn.SendBatch(t.Context(), late).Close(); err != nil {
		t.Fatal(err)
	}
	b.wantPartition(t, key, 33, 61)
}

func TestBatchHasNoTransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	o, err := outbox.New(b.Batch(), outbox.Config{Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Publish(t.Context(), nil, newMessages(1)...); !errors.Is(err, store.ErrNoTransaction) {
		t.Errorf("publish into no batch: %v", err)
	}
	if _, err := o.InTx(t.Context(), func(context.Context, *pgx.Batch) error { return nil }); err == nil {
		t.Error("InTx began a batch")
	}
	if ids, err := o.Publish(t.Context(), &pgx.Batch{}, newMessages(2)...); err != nil || len(ids) != 2 {
		t.Errorf("publish: %q, %v", ids, err)
	}
}
