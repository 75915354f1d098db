//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// contentsSQL returns a digest of all rows of the log, in order, and their count.
const contentsSQL = `select count(*) || ' rows, ' || coalesce(md5(string_agg(md5(l::text), '' order by seq, id)), '') from %s l`

// TestMigrateSegments migrates a log from before segments by seq to the newest version and back.
func TestMigrateSegments(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"empty": 0, "small": 50, "large": 30000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, migrate := older(t, 6)
			at := time.Now().UTC().Truncate(time.Hour)
			for i := range 3 { // in segments by time, and in the default one
				b.exec(t, fmt.Sprintf("create table %s partition of %s for values from ('%s') to ('%s')", b.table(fmt.Sprintf("log_%s", at.Add(-time.Duration(i)*time.Hour).Format("20060102150405"))),
					b.table("log"), at.Add(-time.Duration(i)*time.Hour).Format(time.RFC3339), at.Add(time.Duration(1-i)*time.Hour).Format(time.RFC3339)))
			}
			for i := range 10 { // in some transactions
				b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, headers, payload, available_at, created_at)
					select i %% 8, 'id ' || i, 'orders', 'k' || i %% 100, 'x', '{"a": "b"}', convert_to('payload ' || i, 'UTF8'), null, $2::timestamptz - i * interval '0.5 s'
					from generate_series(1, $1::int4) as i`, b.table("log")), rows/10, at.Add(-time.Duration(i%5)*time.Hour))
			}
			b.exec(t, "create role "+b.config.Schema)
			t.Cleanup(func() { b.exec(t, "drop owned by "+b.config.Schema); b.exec(t, "drop role "+b.config.Schema) })
			b.exec(t, fmt.Sprintf("grant insert, select on %s to %s with grant option", b.table("log"), b.config.Schema))
			b.exec(t, fmt.Sprintf("grant usage on sequence %s to public", b.table("log_seq_seq")))
			state := func() string {
				return one[string](t, b.pool, fmt.Sprintf(contentsSQL, b.table("log"))) +
					one[string](t, b.pool, `select string_agg(a::text, ' ' order by a::text) from pg_class c, aclexplode(c.relacl) a
						where c.oid in ($1::text::regclass, $2::text::regclass)`, b.table("log"), b.table("log_seq_seq")) + fmt.Sprint(b.next(t))
			}
			before := state()
			for range 2 {
				migrate(postgres.Latest)
				if after := state(); after != before {
					t.Errorf("after the migration: %s\nbefore: %s", after, before)
				}
				migrate(6)
				if after := state(); after != before {
					t.Errorf("after the way back: %s\nbefore: %s", after, before)
				}
			}
			migrate(postgres.Latest)
			b.Store = open(t, b.pool, b.config)
			leases := b.lease(t, "r")
			if rows <= 8000 {
				if n := b.deliverAll(t, "r", leases); n != rows {
					t.Errorf("%d messages are delivered, want %d", n, rows)
				}
			}
			b.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish")))
			b.maintainUntil(t, store.Retention{For: time.Hour}, "the segment with the old messages is ended", func(store.Maintained) bool {
				return rows == 0 || b.next(t) == 1<<39
			})
		})
	}
}

// TestMigrateKeepsCursors: cursors keep their meaning, for late rows too.
func TestMigrateKeepsCursors(t *testing.T) {
	t.Parallel()
	b, migrate := older(t, postgres.Latest) // the present program delivers; the log is then that of the older version
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, $1::text, 't', 'x')", b.table("log"))
	b.Store = open(t, b.pool, b.config)
	leases := b.lease(t, "r")
	tx := b.begin(t)
	if _, err := tx.Exec(t.Context(), insert, "late"); err != nil {
		t.Fatal(err)
	}
	b.exec(t, insert, "delivered")
	if n := b.deliverAll(t, "r", leases); n != 1 {
		t.Fatalf("%d messages", n)
	}
	b.exec(t, insert, "fresh")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	migrate(6)
	migrate(postgres.Latest)
	records := b.deliver(t, "r", b.lease(t, "r"))
	if len(records) != 2 || records[0].Message.ID != "late" || records[1].Message.ID != "fresh" {
		t.Errorf("%+v, want the late and the fresh message", records)
	}
}

// TestMigrateALogWithNumbersTwice migrates a log with duplicate numbers, as a sequence that was set back leaves them.
func TestMigrateALogWithNumbersTwice(t *testing.T) {
	t.Parallel()
	b, migrate := older(t, 6)
	for range 2 {
		b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, i::text, 't', 'x' from generate_series(1, 5) as i", b.table("log")))
		b.exec(t, fmt.Sprintf("select setval('%s', 2)", b.table("log_seq_seq")))
	}
	migrate(postgres.Latest)
	b.Store = open(t, b.pool, b.config)
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'new', 't', 'x')", b.table("log")))
	if n := b.deliverAll(t, "r", b.lease(t, "r")); n != 11 {
		t.Errorf("%d messages, want all 11", n)
	}
}

// older is an outbox of an older version, not opened, with a function to migrate it to another version.
func older(t *testing.T, version int) (b *bundle, migrate func(to int)) {
	t.Helper()
	pool := newPool(t, dsn(t), 8)
	b = &bundle{pool: pool, config: postgres.Config{Schema: newSchema(t, pool), SegmentFor: time.Minute}}
	migrate = func(to int) {
		t.Helper()
		if _, err := postgres.Migrate(context.Background(), pool, b.config, to); err != nil {
			t.Fatal(err)
		}
	}
	migrate(version)
	return b, migrate
}
