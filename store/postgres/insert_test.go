//go:build !race

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// way inserts messages in a transaction of its own.
type way struct {
	name   string
	insert func(msgs ...*postrider.Message) error
}

// ways returns all ways to insert, each over one connection. They know the current number of partitions.
func (b *bundle) ways(t *testing.T) []way {
	t.Helper()
	ctx, s := t.Context(), open(t, newPool(t, dsn(t), 1), b.config)
	all := []way{
		{name: "pgx", insert: func(msgs ...*postrider.Message) error { return inTx(ctx, s, msgs) }},
		{name: "pgx.Batch", insert: func(msgs ...*postrider.Message) error {
			batch := &pgx.Batch{}
			if err := s.Batch().Insert(ctx, batch, msgs); err != nil {
				return err
			}
			return s.Pool().SendBatch(ctx, batch).Close()
		}},
	}
	noTLS := withParam(t, dsn(t), "sslmode", "disable") // lib/pq asks for TLS unless told otherwise
	for _, d := range []struct{ name, driver, dsn string }{
		{"database/sql with pgx", "pgx", dsn(t)},
		{"database/sql with pgx, simple protocol", "pgx", withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol")},
		{"database/sql with lib/pq", "postgres", noTLS},
		{"database/sql with lib/pq, binary parameters", "postgres", withParam(t, noTLS, "binary_parameters", "yes")},
	} {
		db, err := sql.Open(d.driver, d.dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(1)
		all = append(all, way{name: d.name, insert: func(msgs ...*postrider.Message) error { return inTx(ctx, s.SQL(db), msgs) }})
	}
	return all
}

func inTx[Tx any](ctx context.Context, s store.Outbox[Tx], msgs []*postrider.Message) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	if err := s.Insert(ctx, tx, msgs); err != nil {
		_ = s.Rollback(ctx, tx)
		return err
	}
	return s.Commit(ctx, tx)
}

// TestSingleMessages writes messages one by one, in every way: plain ones and, for each attribute that makes a difference, one
// that has it.
func TestSingleMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	var want []postrider.Message
	for _, way := range b.ways(t) {
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
			m := postrider.Message{ID: fmt.Sprintf("%s %d", way.name, i), Type: "x", Topic: "t", Source: "/s", ContentType: "a/b",
				Time: time.Date(2026, 2, 3, 4, 5, 6, 789_000, time.UTC), Payload: []byte("\x00\xff\\p'\"")}
			change(&m)
			if err := way.insert(&m); err != nil {
				t.Fatalf("message %s: %v", m.ID, err)
			}
			want = append(want, m)
		}
	}
	b.wantMessages(t, want)
	b.wantPartitions(t, len(want), postgres.DefaultPartitions)
}

// wantMessages wants exactly these messages in the log, in this order.
func (b *bundle) wantMessages(t *testing.T, want []postrider.Message) {
	t.Helper()
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
	}
}

// wantPartitions wants n messages in the log, each in its partition among all.
func (b *bundle) wantPartitions(t *testing.T, n, all int) {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), "select key, id, partition::int4 from "+b.table("log"))
	if err != nil {
		t.Fatal(err)
	}
	var key, id string
	var partition int
	_, err = pgx.ForEachRow(rows, []any{&key, &id, &partition}, func() error {
		if want := postrider.PartitionOf(key, id, all); partition != want {
			t.Errorf("message %s of key %q is in partition %d of %d, want %d", id, key, partition, all, want)
		}
		return nil
	})
	if got := rows.CommandTag().RowsAffected(); err != nil || got != int64(n) {
		t.Errorf("%d messages, %v, want %d", got, err, n)
	}
}

// TestMessagesTogether writes, in every way, messages that are hard to encode as text, and messages that are all plain.
func TestMessagesTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	var want []postrider.Message
	for _, way := range b.ways(t) {
		plain := newMessages(5)
		for i, m := range plain {
			m.ID, m.Time, m.SchemaVersion = fmt.Sprintf("%s %d", way.name, i), m.Time.UTC().Truncate(time.Microsecond), i
		}
		odd := oddMessages()
		for _, m := range odd {
			m.ID = way.name + m.ID
		}
		for _, msgs := range [][]*postrider.Message{odd, plain} {
			if err := way.insert(msgs...); err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
			for _, m := range msgs {
				want = append(want, *m)
			}
		}
	}
	b.wantMessages(t, want)
	b.wantPartitions(t, len(want), postgres.DefaultPartitions)
}

// TestInsertsGoByThePresentNumberOfPartitions runs every statement, in every way, before and after another process changes the
// number of partitions.
func TestInsertsGoByThePresentNumberOfPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 8})
	ways, written := b.ways(t), 0
	insert := func() {
		for _, way := range ways {
			for _, key := range []string{"order/7", ""} {
				for _, tenant := range []string{"", "acme"} {
					for _, n := range []int{1, 3} {
						msgs := withKey(newMessages(n), key)
						for _, m := range msgs {
							m.ID, m.Tenant = postrider.NewID(), tenant
						}
						if err := way.insert(msgs...); err != nil {
							t.Fatalf("%s: %v", way.name, err)
						}
						written += n
					}
				}
			}
		}
	}
	for range 7 { // the server replans the first few times
		insert()
	}
	b.wantPartitions(t, written, 8)
	other := open(t, newPool(t, dsn(t), 2), b.config)
	if err := other.Repartition(t.Context(), 61); err != nil {
		t.Fatal(err)
	}
	insert()
	b.wantPartitions(t, written, 61)
}

// TestInsertsArePlannedLikeThoseByHand: a plan contains neither the number of partitions nor the alternative computation.
func TestInsertsArePlannedLikeThoseByHand(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	full := newMessages(2)
	full[0].Tenant = "acme"
	for name, msgs := range map[string][]*postrider.Message{
		"plain": newMessages(1), "one": full[:1], "plain, many": newMessages(2), "many": full,
	} {
		plan, err := b.ExplainInsert(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"md5", "Filter", "Function Scan", "Values Scan"} {
			if strings.Contains(plan, bad) {
				t.Errorf("%s: the plan has a %s:\n%s", name, bad, plan)
			}
		}
		if name == "plain" && strings.Contains(plan, "Subquery") {
			t.Errorf("%s: the plan has more than a row of values:\n%s", name, plan)
		}
	}
}

// TestInsertSaysThatTheDatabaseDroppedMessages: a trigger keeps one of two messages from being written.
func TestInsertSaysThatTheDatabaseDroppedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, "create function "+b.table("drop_b")+"() returns trigger language plpgsql as $$ begin if new.id = 'b' then return null; end if; return new; end $$")
	b.exec(t, "create trigger drop_b before insert on "+b.table("log")+" for each row execute function "+b.table("drop_b")+"()")
	for _, way := range b.ways(t) {
		if way.name == "pgx.Batch" {
			continue // its results are the caller's
		}
		msgs := newMessages(2)
		msgs[0].ID, msgs[1].ID = "a", "b"
		if err := way.insert(msgs...); err == nil || !strings.Contains(err.Error(), "1 of 2") {
			t.Errorf("%s, two messages: %v", way.name, err)
		}
		if err := way.insert(msgs[1]); err == nil || !strings.Contains(err.Error(), "0 of 1") {
			t.Errorf("%s, one message: %v", way.name, err)
		}
	}
	b.wantPartitions(t, 0, postgres.DefaultPartitions)
}
