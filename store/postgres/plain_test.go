package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/postgres"
)

// TestSingleMessages writes messages one by one, in every way: those that are plain and, for each attribute that makes a
// difference, one that has it.
func TestSingleMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	db, err := sql.Open("pgx", dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	overSQL, ctx := b.SQL(db), t.Context()
	ways := []func(m *postrider.Message) error{
		func(m *postrider.Message) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.Insert(ctx, tx, []*postrider.Message{m}) })
		},
		func(m *postrider.Message) error {
			tx, err := overSQL.Begin(ctx)
			if err != nil {
				return err
			}
			if err := overSQL.Insert(ctx, tx, []*postrider.Message{m}); err != nil {
				return err
			}
			return overSQL.Commit(ctx, tx)
		},
		func(m *postrider.Message) error {
			batch := &pgx.Batch{}
			if err := b.Batch().Insert(ctx, batch, []*postrider.Message{m}); err != nil {
				return err
			}
			return b.pool.SendBatch(ctx, batch).Close()
		},
	}
	var want []postrider.Message
	for way, write := range ways {
		for i, change := range []func(m *postrider.Message){
			func(*postrider.Message) {},
			func(m *postrider.Message) { m.Key, m.SchemaVersion = `k"\'{ü`, 3 },
			func(m *postrider.Message) { m.Payload = []byte{} },
			func(m *postrider.Message) { m.Subject = "s" },
			func(m *postrider.Message) { m.Tenant = "t" },
			func(m *postrider.Message) { m.AggregateVersion = 1 << 40 },
			func(m *postrider.Message) { m.Headers = map[string]string{"a": `"b"`} },
			func(m *postrider.Message) { m.CorrelationID = "c" },
			func(m *postrider.Message) { m.CausationID = "c" },
			func(m *postrider.Message) { m.DeliverAt = time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC) },
		} {
			m := postrider.Message{ID: fmt.Sprintf("%d-%d", way, i), Type: "x", Topic: "t", Source: "/s", ContentType: "a/b",
				Time: time.Date(2026, 2, 3, 4, 5, 6, 789_000, time.UTC), Payload: []byte("\x00\xff\\p'\"")}
			change(&m)
			if err := write(&m); err != nil {
				t.Fatal(err)
			}
			want = append(want, m)
		}
	}
	got := b.all(t)
	if len(got) != len(want) {
		t.Fatalf("%d messages of %d", len(got), len(want))
	}
	for i, r := range got {
		m := *r.Message
		m.Sequence, m.CreatedAt = 0, time.Time{}
		if a, b := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", want[i]); a != b || r.Err != nil {
			t.Errorf("%v: got\n%s, want\n%s", r.Err, a, b)
		}
		partition := one[int](t, b.pool, "select partition::int4 from "+b.table("log")+" where id = $1", m.ID)
		if want := postrider.PartitionOf(m.Key, m.ID, postgres.DefaultPartitions); partition != want {
			t.Errorf("message %s is in partition %d, want %d", m.ID, partition, want)
		}
	}
}
